// Numbers of FP16, eight at a time: the channels of one place, 16 bytes.

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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// Returns two numbers as FP16, the first one in the lower half.
__device__ unsigned both_narrowed(float one, float other) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(other), "f"(one));
    return both;
}

// Return the higher and the lower numbers of two pairs. A NaN stays.
__device__ unsigned higher(unsigned one, unsigned other) {
    unsigned both;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(both) : "r"(one), "r"(other));
    return both;
}

__device__ unsigned lower(unsigned one, unsigned other) {
    unsigned both;
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(both) : "r"(one), "r"(other));
    return both;
}
#else
__device__ unsigned both_narrowed(float one, float other) {
    return narrowed(one) | (unsigned)narrowed(other) << 16;
}

__device__ half chosen(half one, half other, bool high) {
    float a = widened(one), b = widened(other);
    return a != a || (b == b && (high ? a > b : a < b)) ? one : other;
}

__device__ unsigned higher(unsigned one, unsigned other) {
    return chosen(one, other, true) | (unsigned)chosen(one >> 16, other >> 16, true) << 16;
}

__device__ unsigned lower(unsigned one, unsigned other) {
    return chosen(one, other, false) | (unsigned)chosen(one >> 16, other >> 16, false) << 16;
}
#endif

// Returns a pair within bounds. To round first changes nothing: of two numbers the lower one stays so.
__device__ unsigned bounded(unsigned both, float least, float most) {
    return lower(higher(both, both_narrowed(least, least)), both_narrowed(most, most));
}

__device__ void write(const float from[EIGHT], half *to, float least, float most) {
    unsigned all[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        all[i] = bounded(both_narrowed(from[2 * i], from[2 * i + 1]), least, most);
    *reinterpret_cast<uint4 *>(to) = uint4{all[0], all[1], all[2], all[3]};
}
