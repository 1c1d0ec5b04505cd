// Converts frames to RGB for nvJPEG.

// Chroma values at the luma samples that share a chroma sample. Chroma lies where H.264 and HEVC place it by default:
// in the columns of even luma samples, midway between two rows.
struct Tones {
    float of[DOWN][ACROSS];
};

// Returns the tones of chroma sample (column, row) of one plane (height, width).
__device__ Tones tones_at(const sample *plane, int column, int row, int width, int height) {
    const int right = min(column + 1, width - 1);
    auto read = [&](int line, int i) {
        const sample *samples = plane + (long long)clamp(line, 0, height - 1) * width;
        return i ? (samples[column] + samples[right]) * 0.5f : samples[column];
    };
    Tones found;
    for (int i = 0; i < ACROSS; i++) {
        const float here = read(row, i);
        for (int j = 0; j < DOWN; j++)
            found.of[j][i] = DOWN == 1 ? here : 0.75f * here + 0.25f * read(j ? row + 1 : row - 1, i);
    }
    return found;
}

struct Matrix {
    float of[3][4];
};

// Converts planes to RGB pictures (N, 3, height, width) of 8 bits. `matrix` takes (Y, U, V, 1) to 0..255. A thread
// converts the luma samples that share a chroma sample.
extern "C" __global__ void to_rgb(const sample *y, const sample *u, const sample *v, unsigned char *__restrict__ rgb,
                                  int width, int height, const Matrix matrix) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const long long size = (long long)width * height, chroma = place(0, 0, chroma_width, chroma_height);
    const Tones blue = tones_at(u + chroma, column, row, chroma_width, chroma_height);
    const Tones red = tones_at(v + chroma, column, row, chroma_width, chroma_height);
    for (int j = 0; j < DOWN; j++)
        for (int i = 0; i < ACROSS; i++) {
            if (ACROSS * column + i >= width || DOWN * row + j >= height) continue;
            const long long at = (long long)(DOWN * row + j) * width + ACROSS * column + i;
            const float luma = y[blockIdx.z * size + at];
            for (int c = 0; c < 3; c++) {
                const float *m = matrix.of[c];
                const float value = m[0] * luma + m[1] * blue.of[j][i] + m[2] * red.of[j][i] + m[3];
                rgb[(3 * blockIdx.z + c) * size + at] = (unsigned char)fminf(fmaxf(value + 0.5f, 0), 255);
            }
        }
}
