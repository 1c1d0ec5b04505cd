// The first convolution of a network, with bias and bounds: x is (N, PLANES, height, width) in FP32, as pictures come,
// `taps` are (PLANES, SIDE, SIDE, channels) and `out` (N, rows, columns, channels) in FP16. Channels are a multiple of
// EIGHT. With `mirrored` the picture's columns count from the right. network_kernels.py has the constants. What it reads is rounded to FP16, as the other layers' input is.
// cuDNN wants the picture in FP16 and channels last first, which takes half as long as its convolution.

// Adds the products of `WIDE` places of a row in eight channels, the first of which reads from (left, top) on. With a
// `STEP` of -1 the picture is mirrored: as each is a program of its own, all numbers have fixed places behind the first.
template <int STEP>
__device__ void convolve(float sums[WIDE][EIGHT], const float *x, const half *taps, int channels, int width, int height,
                         int left, int top) {
    for (int plane = 0; plane < PLANES; plane++) {
#pragma unroll
        for (int down = 0; down < SIDE; down++) {
            int y = top + down;
            float weights[SIDE][EIGHT];
#pragma unroll
            for (int across = 0; across < SIDE; across++)
                read(taps + ((plane * SIDE + down) * SIDE + across) * channels, weights[across]);
            const float *line = x + (((long long)blockIdx.z * PLANES + plane) * height + y) * width;
            const float *begin = line + (STEP > 0 ? left : width - 1 - left);
#pragma unroll
            for (int i = 0; i < (WIDE - 1) * STRIDE + SIDE; i++) {
                bool there = y >= 0 && y < height && left + i >= 0 && left + i < width;
                float value = there ? widened(narrowed(begin[i * STEP])) : 0;
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
}

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
    int left = first * STRIDE - padding, top = row * STRIDE - padding;
    if (mirrored)
        convolve<-1>(sums, x, taps + channel, channels, width, height, left, top);
    else
        convolve<1>(sums, x, taps + channel, channels, width, height, left, top);
    half *to = out + (((long long)blockIdx.z * rows + row) * columns + first) * channels + channel;
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        if (first + i < columns)
            write(sums[i], to + (long long)i * channels, least, most);
}
