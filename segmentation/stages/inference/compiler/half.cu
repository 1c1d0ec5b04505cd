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

// Returns a number within bounds. A NaN stays. In one expression the compiler makes branches of it.
__device__ float bounded(float value, float least, float most) {
    float raised = value < least ? least : value;
    return raised > most ? most : raised;
}

__device__ void write(const float from[EIGHT], half *to, float least, float most) {
    unsigned all[4];
#pragma unroll
    for (int i = 0; i < EIGHT; i++) {
        unsigned bits = narrowed(bounded(from[i], least, most));
        all[i / 2] = i % 2 ? all[i / 2] | bits << 16 : bits;
    }
    *reinterpret_cast<uint4 *>(to) = uint4{all[0], all[1], all[2], all[3]};
}
