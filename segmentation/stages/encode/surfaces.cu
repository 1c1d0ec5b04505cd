// Writes frames to NVENC's surfaces.

constexpr int UNUSED_BITS = sizeof(sample) == 1 ? 0 : 6;  // below the 10 bits, which NVENC reads at the top of 16

// Writes 4:2:0 planes (height, width) to surfaces (N, rows, pitch): rows of luma, then rows of U and V interleaved. The
// picture is padded to even sizes. A thread writes the luma samples that share a chroma sample, and that sample.
extern "C" __global__ void to_surfaces(const sample *y, const sample *u, const sample *v, sample *__restrict__ surfaces,
                                       int width, int height, int pitch) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    sample *surface = surfaces + (long long)blockIdx.z * (DOWN + 1) * chroma_height * pitch;
    for (int j = 0; j < DOWN; j++)
        for (int i = 0; i < ACROSS; i++) {
            const int x = ACROSS * column + i, line = DOWN * row + j;
            const long long at = place(min(x, width - 1), min(line, height - 1), width, height);
            surface[(long long)line * pitch + x] = (sample)(y[at] << UNUSED_BITS);
        }
    const long long at = place(column, row, chroma_width, chroma_height);
    sample *pair = surface + (long long)(DOWN * chroma_height + row) * pitch + 2 * column;
    pair[0] = (sample)(u[at] << UNUSED_BITS);
    pair[1] = (sample)(v[at] << UNUSED_BITS);
}
