// Unpacks the surfaces of NVDEC into planes.

// Four and two samples of a row, which a thread reads or writes in one access.
struct alignas(4 * sizeof(sample)) Four {
    sample value[4];
};
struct alignas(2 * sizeof(sample)) Two {
    sample value[2];
};

// Copies a surface to frame number `frame` of three planes. The surface has Y above interleaved UV (4:2:0), or above U
// and V (4:4:4). NVDEC keeps 10 bits in the high bits: `shift` is 6 for 10 bits, 0 for 8 bits.
// A thread copies four luma samples of a row, and the chroma in the same columns of the surface. It copies them one by
// one where rows don't begin at multiples of four samples.
extern "C" __global__ void unpack(const sample *surface, long long pitch, sample *y, sample *u, sample *v, int width,
                                  int height, int frame, int shift) {
    const int column = 4 * (blockIdx.x * blockDim.x + threadIdx.x), row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const bool whole = width % 4 == 0 && pitch % 4 == 0 && (size_t)surface % sizeof(Four) == 0;
    auto inside = [&](int i) { return column + i < width; };
    auto read = [&](const sample *source) {
        Four found{};
        if (whole) found = *(const Four *)source;
        for (int i = 0; i < 4; i++) {
            if (!whole && inside(i)) found.value[i] = source[i];
            found.value[i] >>= shift;
        }
        return found;
    };
    auto write = [&](sample *target, const Four &samples) {
        if (whole) *(Four *)target = samples;
        for (int i = 0; i < 4; i++)
            if (!whole && inside(i)) target[i] = samples.value[i];
    };
    write(y + ((long long)frame * height + row) * width + column, read(surface + row * pitch + column));
    const int chroma_width = width >> SHIFT_X, chroma_height = height >> SHIFT_Y;
    if (row >= chroma_height) return;
    const sample *below = surface + (height + row) * pitch + column;
    const long long target = ((long long)frame * chroma_height + row) * chroma_width + (column >> SHIFT_X);
#if SHIFT_X
    const Four uv = read(below);
    if (whole) {
        *(Two *)(u + target) = Two{uv.value[0], uv.value[2]};
        *(Two *)(v + target) = Two{uv.value[1], uv.value[3]};
    }
    for (int i = 0; i < 2; i++)
        if (!whole && inside(2 * i + 1)) u[target + i] = uv.value[2 * i], v[target + i] = uv.value[2 * i + 1];
#else
    write(u + target, read(below));
    write(v + target, read(below + height * pitch));
#endif
}
