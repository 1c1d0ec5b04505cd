// Products of small matrices of FP16 by a warp.

const int LANES = 32 / THREADS_X;  // of a warp that a thread does: one on a GPU, all where a thread stands for a block

#ifdef __CUDACC__
// Adds to `sums` the product of 16 x 16 and 16 x 8 numbers, of which each lane has its share: see the PTX ISA, "Matrix
// Fragments for mma.m16n8k16". `upper` and `lower` are two words of the lane's rows, `column` those of its column.
__device__ void multiply(float sums[1][4], const unsigned upper[1][2], const unsigned lower[1][2],
                         const unsigned column[1][2]) {
    float *d = sums[0];
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(upper[0][0]), "r"(lower[0][0]), "r"(upper[0][1]), "r"(lower[0][1]), "r"(column[0][0]), "r"(column[0][1]));
#else
    for (int k = 0; k < 2; k++)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(upper[0][k]), "r"(lower[0][k]), "r"(column[0][k]));
#endif
}
#endif
