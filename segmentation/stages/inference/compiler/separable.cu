// A convolution of 1x1 and, behind it, one of 3x3 of each channel by itself, with biases and bounds, in FP16 and
// channels-last order: x is (N, height, width, IN), `weights` are (OUT, IN), `taps` (3, 3, OUT), and `out` is (N, height /
// POOL, width / POOL, OUT). network_kernels.py has the constants. With a POOL of 2, `out` has the highest of each 2 x 2.
// What lies between the two stays within a block: in the first layers it is larger than all else that a network reads.

const int LANES = 32 / THREADS_X;  // of a warp that a thread does: one on a GPU, all where a thread stands for a block
const int TALL = 3;                // times 16 places that a warp multiplies at once
const int FEW = 4;                 // channels of a place that a thread does
const int MADE_X = TILE_X - 2, MADE_Y = TILE_Y - 2;  // places that a block makes: even
const int EIGHTS = OUT / EIGHT;
static_assert(TILE_X % 8 == 0, "chunk() is to be the same in all rows");

// The channels of a place that a lane has: those of four lanes are all of them. A product's order of channels is theirs,
// in both factors alike, so that a lane reads its own in one go.
struct alignas(IN / 2) Part {
    unsigned words[IN / 8];
};

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

// Returns where eight channels of a place lie: neighbouring places in an order in which their banks differ.
__device__ int chunk(int place, int eight) { return place * EIGHTS + (eight ^ (place * EIGHTS / 8 % EIGHTS)); }

// Multiplies the places of a tile that begins at (left, top). Those outside of the picture are zero.
__device__ void fill(uint4 *tile, const half *x, const half *weights, const half *bias, int left, int top, int width,
                     int height) {
    for (int first = threadIdx.y * 16 * TALL; first < TILE_X * TILE_Y; first += THREADS_Y * 16 * TALL) {
        Part rows[LANES][TALL][2];
        bool there[LANES][TALL][2];
#pragma unroll
        for (int i = 0; i < LANES; i++)
#pragma unroll
            for (int m = 0; m < TALL * 2; m++) {
                int lane = threadIdx.x * LANES + i, at = first + m * 8 + lane / 4;
                int column = left + at % TILE_X, row = top + at / TILE_X;
                there[i][m / 2][m % 2] = column >= 0 && column < width && row >= 0 && row < height;
                const half *from = x + (((long long)blockIdx.z * height + row) * width + column) * IN + lane % 4 * (IN / 4);
                rows[i][m / 2][m % 2] = there[i][m / 2][m % 2] ? *reinterpret_cast<const Part *>(from) : Part{};
            }
#pragma unroll 2
        for (int eight = 0; eight < EIGHTS; eight++) {
            float sums[TALL][LANES][4];
            unsigned columns[IN / 16][LANES][2];
#pragma unroll
            for (int i = 0; i < LANES; i++) {
                int lane = threadIdx.x * LANES + i, out = eight * EIGHT + lane / 4;
                Part part = *reinterpret_cast<const Part *>(weights + out * IN + lane % 4 * (IN / 4));
#pragma unroll
                for (int k = 0; k < IN / 8; k++)
                    columns[k / 2][i][k % 2] = part.words[k];
#pragma unroll
                for (int m = 0; m < TALL; m++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        sums[m][i][k] = widened(bias[eight * EIGHT + lane % 4 * 2 + k % 2]);
            }
#pragma unroll
            for (int m = 0; m < TALL; m++)
#pragma unroll
                for (int k = 0; k < IN / 16; k++) {
                    unsigned both[2][LANES][2];
#pragma unroll
                    for (int i = 0; i < LANES; i++)
#pragma unroll
                        for (int word = 0; word < 4; word++)
                            both[word / 2][i][word % 2] = rows[i][m][word / 2].words[2 * k + word % 2];
                    multiply(sums[m], both[0], both[1], columns[k]);
                }
#pragma unroll
            for (int i = 0; i < LANES; i++)
#pragma unroll
                for (int m = 0; m < TALL * 2; m++) {
                    int lane = threadIdx.x * LANES + i, at = first + m * 8 + lane / 4;
                    const float *pair = sums[m / 2][i] + m % 2 * 2;
                    unsigned word = both_narrowed(pair[0], pair[1]);
                    reinterpret_cast<unsigned *>(tile + chunk(at, eight))[lane % 4] = there[i][m / 2][m % 2] ? word : 0;
                }
        }
    }
}

struct alignas(2 * FEW) Few {
    unsigned words[FEW / 2];
};

__device__ void widen(Few from, float to[FEW]) {  // by value: in one read
#pragma unroll
    for (int k = 0; k < FEW; k++)
        to[k] = widened((half)(from.words[k / 2] >> k % 2 * 16));
}

extern "C" __global__ void separable(const half *x, const half *weights, const half *point_bias, const half *taps,
                                     const half *bias, half *out, int width, int height, float least, float most) {
    __shared__ uint4 tile[TILE_X * TILE_Y * EIGHTS];
    const int left = blockIdx.x * MADE_X, top = blockIdx.y * MADE_Y, columns = width / POOL, rows = height / POOL;
    fill(tile, x, weights, point_bias, left - 1, top - 1, width, height);
    __syncthreads();
    // A thread makes two columns of a few channels. It keeps the sums of three rows, each of which reads three.
    const int parts = OUT / FEW;
    for (int item = threadIdx.y * THREADS_X + threadIdx.x; item < MADE_X / 2 * parts; item += THREADS_X * THREADS_Y) {
        const int part = item % parts, column = item / parts * 2;
        float factors[9][FEW], start[FEW], sums[3][2][FEW];
        Few highest;
        widen(*reinterpret_cast<const Few *>(bias + part * FEW), start);
#pragma unroll
        for (int k = 0; k < 9; k++)
            widen(*reinterpret_cast<const Few *>(taps + k * OUT + part * FEW), factors[k]);
        const Few *places[4];  // in the tile's first row: the others lie in the same order, a multiple of eight on
#pragma unroll
        for (int across = 0; across < 4; across++)
            places[across] = reinterpret_cast<const Few *>(tile + chunk(column + across, part * FEW / EIGHT)) +
                             part % (EIGHT / FEW);
#pragma unroll
        for (int row = 0; row < TILE_Y; row++) {
#pragma unroll
            for (int k = 0; k < 2 * FEW; k++)
                sums[row % 3][k / FEW][k % FEW] = start[k % FEW];
#pragma unroll
            for (int across = 0; across < 4; across++) {
                float values[FEW];
                widen(places[across][row * TILE_X * OUT / FEW], values);
#pragma unroll
                for (int down = 0; down < 3; down++)  // of the convolution that begins in row - down
#pragma unroll
                    for (int j = 0; j < 2; j++)
                        if (row >= down && across >= j && across < j + 3)
#pragma unroll
                            for (int k = 0; k < FEW; k++)
                                sums[(row - down) % 3][j][k] += factors[3 * down + across - j][k] * values[k];
            }
            if (row < 2)
                continue;
            Few made[2];
#pragma unroll
            for (int k = 0; k < FEW; k++) {
                const float *pair = sums[(row - 2) % 3][k / (FEW / 2)] + k % (FEW / 2) * 2;
                made[k / (FEW / 2)].words[k % (FEW / 2)] = both_narrowed(pair[0], pair[1]);
            }
            if (POOL == 2) {
#pragma unroll
                for (int k = 0; k < FEW / 2; k++) {
                    unsigned own = higher(made[0].words[k], made[1].words[k]);
                    highest.words[k] = row % 2 ? higher(own, highest.words[k]) : own;
                }
                if (row % 2 == 0)
                    continue;
                made[0] = highest;
            }
#pragma unroll
            for (int k = 0; k < FEW / POOL; k++) {
                unsigned &both = made[k / (FEW / 2)].words[k % (FEW / 2)];
                both = bounded(both, least, most);
            }
            const int line = (top + row - 2) / POOL;
            half *to = out + (((long long)blockIdx.z * rows + line) * columns + (left + column) / POOL) * OUT + part * FEW;
#pragma unroll
            for (int j = 0; j < 2 / POOL; j++)
                if (line < rows && (left + column) / POOL + j < columns)
                    *reinterpret_cast<Few *>(to + j * OUT) = made[j];
        }
    }
}
