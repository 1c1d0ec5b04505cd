// Convolutions of each channel by itself, with bias and bounds, in FP16 and channels-last order: x is (N, height, width,
// channels), at most `limit`, `taps` are (side, side, channels), `out` is (N, rows, columns, channels). Channels are a
// multiple of EIGHT. network_kernels.py has the constants: each SIDE, STRIDE and DILATION is a program of its own.
// cuDNN takes 0.2 s to choose a kernel for each shape of these, and is three times slower than memory allows.

// A thread makes `WIDE` places of one row in eight channels. Neighbouring threads have neighbouring channels.
extern "C" __global__ void depthwise(const half *x, const half *taps, const half *bias, half *out, int channels,
                                     int width, int height, int columns, int rows, int padding, float least,
                                     float most, float limit) {
    int index = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    int eights = channels / EIGHT, channel = index % eights * EIGHT, first = index / eights * WIDE;
    if (first >= columns || row >= rows)
        return;
    float sums[WIDE][EIGHT];
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        read(bias + channel, sums[i]);
#pragma unroll
    for (int down = 0; down < SIDE; down++) {
        int y = row * STRIDE + down * DILATION - padding;
        float weights[SIDE][EIGHT];
#pragma unroll
        for (int across = 0; across < SIDE; across++)
            read(taps + (down * SIDE + across) * channels + channel, weights[across]);
        const half *line = x + ((long long)blockIdx.z * height + y) * width * channels + channel;
#pragma unroll
        for (int i = 0; i < (WIDE - 1) * STRIDE + (SIDE - 1) * DILATION + 1; i++) {
            int column = first * STRIDE + i - padding;
            float values[EIGHT];
            read(line + (long long)column * channels, values, y >= 0 && y < height && column >= 0 && column < width);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                values[k] = values[k] > limit ? limit : values[k];
#pragma unroll
            for (int j = 0; j < WIDE; j++) {
                int away = i - j * STRIDE, across = away / DILATION;
                if (away >= 0 && away % DILATION == 0 && across < SIDE)
#pragma unroll
                    for (int k = 0; k < EIGHT; k++)
                        sums[j][k] += weights[across][k] * values[k];
            }
        }
    }
    half *to = out + (((long long)blockIdx.z * rows + row) * columns + first) * channels + channel;
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        if (first + i < columns)
            write(sums[i], to + (long long)i * channels, least, most);
}
