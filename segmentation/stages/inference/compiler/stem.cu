// The first convolution of a network, with bias and bounds: x is (N, PLANES, height, width) in FP32, as pictures come,
// `taps` are (PLANES, SIDE, SIDE, channels) and `out` (N, rows, columns, channels) in FP16. Channels are a multiple of
// EIGHT. With `mirrored` the picture's columns count from the right. network_kernels.py has the constants. What it reads is rounded to FP16, as the other layers' input is.
// cuDNN wants the picture in FP16 and channels last first, which takes half as long as its convolution.

// A thread makes `WIDE` places of one row in eight channels. Neighbouring threads have neighbouring channels.
extern "C" __global__ void stem(const float *x, const half *taps, const half *bias, half *out, int channels, int width,
                                int height, int columns, int rows, int padding, int mirrored, float least,
                                float most) {
    int index = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    int eights = channels / EIGHT, channel = index % eights * EIGHT, first = index / eights * WIDE;
    if (first >= columns || row >= rows)
        return;
    float sums[WIDE][EIGHT];
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        read(bias + channel, sums[i]);
    for (int plane = 0; plane < PLANES; plane++) {
#pragma unroll
        for (int down = 0; down < SIDE; down++) {
            int y = row * STRIDE + down - padding;
            float weights[SIDE][EIGHT];
#pragma unroll
            for (int across = 0; across < SIDE; across++)
                read(taps + ((plane * SIDE + down) * SIDE + across) * channels + channel, weights[across]);
            const float *line = x + (((long long)blockIdx.z * PLANES + plane) * height + y) * width;
#pragma unroll
            for (int i = 0; i < (WIDE - 1) * STRIDE + SIDE; i++) {
                int column = first * STRIDE + i - padding;
                bool there = y >= 0 && y < height && column >= 0 && column < width;
                float value = there ? widened(narrowed(line[mirrored ? width - 1 - column : column])) : 0;
#pragma unroll
                for (int j = 0; j < WIDE; j++) {
                    int across = i - j * STRIDE;
                    if (across >= 0 && across < SIDE)
#pragma unroll
                        for (int k = 0; k < EIGHT; k++)
                            sums[j][k] += weights[across][k] * value;
                }
            }
        }
    }
    half *to = out + (((long long)blockIdx.z * rows + row) * columns + first) * channels + channel;
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        if (first + i < columns)
            write(sums[i], to + (long long)i * channels, least, most);
}
