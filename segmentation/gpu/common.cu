// What the other files begin with (see kernels.py). Compiled when first needed, for
//   SAMPLE   unsigned char (8 bits) or unsigned short (10 bits, in the low bits)
//   TURNS    quarter turns, counter-clockwise, that stand a stored frame upright

using sample = SAMPLE;

__device__ int clamp(int value, int low, int high) { return min(max(value, low), high); }

// Where pixel (column, row) of a stored picture (height, width) lies when the picture stands upright.
__device__ int upright(int column, int row, int width, int height) {
#if TURNS == 0
    return row * width + column;
#elif TURNS == 1
    return (width - 1 - column) * height + row;
#elif TURNS == 2
    return (height - 1 - row) * width + (width - 1 - column);
#else
    return column * height + (height - 1 - row);
#endif
}

// What a plane is shrunk by along one axis (preprocess/tables.py): for each place a row of the number of the first sample
// that it reads, then the weights of `taps` samples from that one on.
struct Axis {
    const float *rows;
    int taps;
};

// The pixel (column, row) of a plane that is shrunk by `across` and `down`.
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
