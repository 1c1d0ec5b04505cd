// Kernels for frames, first those at either end: what NVDEC and nvJPEG leave over, and preprocessing. Behind common.cu,
// before background.cu and composite.cu; all are compiled together, for the values of common.cu and for
//   SHIFT_X, SHIFT_Y   log2 of the chroma's subsampling: 1, 1 for 4:2:0
//   ROWS               chroma samples below each other that a thread composites
// All planes are (N, height, width) without gaps, one frame of the batch to each blockIdx.z.

// Where sample (column, row) of this block's frame lies in such a plane.
__device__ long long place(int column, int row, int width, int height) {
    return ((long long)blockIdx.z * height + row) * width + column;
}

// Luma samples that share a chroma sample, across and down.
constexpr int ACROSS = 1 << SHIFT_X, DOWN = 1 << SHIFT_Y;

// Four samples of a row, and two, which are read and written at once.
struct alignas(4 * sizeof(sample)) Four {
    sample value[4];
};
struct alignas(2 * sizeof(sample)) Two {
    sample value[2];
};

// NVDEC's surface, Y above interleaved UV (4:2:0) or above U and V (4:4:4), becomes frame number `frame` of three
// planes. NVDEC keeps 10 bits in the high bits: `shift` is 6 for them, 0 for 8 bits. A thread for four luma samples of
// a row, and for the chroma in the same columns of the surface; one by one where rows don't begin at multiples of four.
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

// The network's input (N, 3, upright height, upright width), of which (target_width, target_height) is the size as
// stored: channel c is (clip(matrix[c] * (Y, U, V, 1), 0, 1) - mean[c]) / std[c], as `scale[c] * rgb + offset[c]`.
struct ToRgb {
    float matrix[3][4], scale[3], offset[3];
};

extern "C" __global__ void preprocess(const sample *y, const sample *u, const sample *v, int width, int height,
                                      const float *luma_across, int luma_columns, const float *luma_down,
                                      int luma_rows, const float *chroma_across, int chroma_columns,
                                      const float *chroma_down, int chroma_rows, float *target, int target_width,
                                      int target_height, const ToRgb *color) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= target_width || row >= target_height) return;
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long first = place(0, 0, width, height);
    const long long first_chroma = place(0, 0, chroma_width, chroma_height);
    const Axis across{chroma_across, chroma_columns}, down{chroma_down, chroma_rows};
    const float luma = shrunk(y + first, width, {luma_across, luma_columns}, {luma_down, luma_rows}, column, row);
    const float blue = shrunk(u + first_chroma, chroma_width, across, down, column, row);
    const float red = shrunk(v + first_chroma, chroma_width, across, down, column, row);
    const long long size = (long long)target_width * target_height;
    const long long place = upright(column, row, target_width, target_height);
    for (int c = 0; c < 3; c++) {
        const float *m = color->matrix[c];
        const float value = __saturatef(m[0] * luma + m[1] * blue + m[2] * red + m[3]);
        target[(3 * blockIdx.z + c) * size + place] = color->scale[c] * value + color->offset[c];
    }
}

// Chroma at the luma samples that share one, from where H.264 and HEVC place it unless they say otherwise: in the
// columns of even luma samples, and midway between two rows.
struct Tones {
    float of[DOWN][ACROSS];
};

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

// Planes become RGB pictures (N, 3, height, width) of 8 bits: `matrix` takes (Y, U, V, 1) to 0..255. A thread for each
// chroma sample.
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
