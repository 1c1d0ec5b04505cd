// Helpers of all programs: kernels.py puts this file before the others. Compiled for
//   SAMPLE             unsigned char (8 bits) or unsigned short (10 bits, in the low bits)
//   SHIFT_X, SHIFT_Y   log2 of the chroma subsampling: 1, 1 for 4:2:0
//   TURNS              quarter turns, counter-clockwise, that stand a stored frame upright
//   MIRRORED           1 if the turned frame is mirrored left to right then, else 0
//   THREADS_X, THREADS_Y   threads of a block
// Planes are (N, height, width) without gaps. blockIdx.z is the number of the frame in the batch.

using sample = SAMPLE;

// Luma samples that share a chroma sample, across and down.
constexpr int ACROSS = 1 << SHIFT_X, DOWN = 1 << SHIFT_Y;

__device__ int clamp(int value, int low, int high) { return min(max(value, low), high); }

// Returns the index of sample (column, row) of this block's frame in a plane (N, height, width).
__device__ long long place(int column, int row, int width, int height) {
    return ((long long)blockIdx.z * height + row) * width + column;
}

// Returns the index, in the upright picture, of pixel (column, row) of a stored picture (height, width).
__device__ int upright(int column, int row, int width, int height) {
#if TURNS == 0
    const int x = column, y = row;
#elif TURNS == 1
    const int x = row, y = width - 1 - column;
#elif TURNS == 2
    const int x = width - 1 - column, y = height - 1 - row;
#else
    const int x = height - 1 - row, y = column;
#endif
    const int across = TURNS % 2 ? height : width;
    return y * across + (MIRRORED ? across - 1 - x : x);
}

// How a plane is shrunk along one axis, see stages/preprocess/resampling.py. `rows` has a row of 1 + `taps` numbers for
// each target place: the number of the first sample to read, then the weights of `taps` samples from that sample on.
struct Axis {
    const float *rows;
    int taps;
};

// Returns the pixel (column, row) of a plane that is shrunk by `across` and `down`.
__device__ float shrunk(const sample *plane, int width, const Axis &across, const Axis &down, int column, int row) {
    const float *weights = across.rows + column * (across.taps + 1), *lines = down.rows + row * (down.taps + 1);
    const sample *line = plane + (long long)lines[0] * width + (int)weights[0];
    float sum = 0;
    for (int j = 1; j <= down.taps; j++, line += width) {
        float part = 0;
        for (int i = 1; i <= across.taps; i++) part += weights[i] * line[i - 1];
        sum += lines[j] * part;
    }
    return sum;
}
