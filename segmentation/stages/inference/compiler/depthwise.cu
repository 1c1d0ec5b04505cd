// Convolutions of each channel by itself, with bias and bounds, in FP16 and channels-last order: x is (N, height, width,
// channels), at most `limit`, `taps` are (side, side, channels), `out` is (N, rows, columns, channels). Channels are a
// multiple of EIGHT. network_kernels.py has the constants: each SIDE, STRIDE and DILATION is a program of its own.
// cuDNN takes 0.2 s to choose a kernel for each shape of these, and is three times slower than memory allows.

using half = unsigned short;  // the bits: without headers, the compiler knows no FP16

#ifdef __CUDACC__
__device__ float widened(half bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ half narrowed(float value) {
    half bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#endif

// Reads eight numbers, or zeros where there is nothing: without branches, so that reads need not wait for each other.
__device__ void read(const half *from, float to[EIGHT], bool there = true) {
    uint4 words = there ? *reinterpret_cast<const uint4 *>(from) : uint4{0, 0, 0, 0};
    unsigned all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < EIGHT; i++)
        to[i] = widened((half)(all[i / 2] >> i % 2 * 16));
}

__device__ void write(const float from[EIGHT], half *to, float least, float most) {
    unsigned all[4];
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        unsigned bits = narrowed(from[i] < least ? least : from[i] > most ? most : from[i]);
        all[i / 2] = i % 2 ? all[i / 2] | bits << 16 : bits;
    }
    *reinterpret_cast<uint4 *>(to) = uint4{all[0], all[1], all[2], all[3]};
}

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
