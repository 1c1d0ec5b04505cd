// How blocks of threads add up. All threads of a block call these functions together. Sums have a fixed order.

// Returns the sum of a number of each thread of the block.
__device__ double sum_of_block(double own) {
    __shared__ double parts[THREADS_X * THREADS_Y];
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
    parts[thread] = own;
    __syncthreads();
    for (int half = THREADS_X * THREADS_Y / 2; half; half /= 2) {
        if (thread < half) parts[thread] += parts[thread + half];
        __syncthreads();
    }
    const double sum = parts[0];
    __syncthreads();  // before a next sum overwrites it
    return sum;
}

// Returns the sum of `count` numbers.
__device__ double sum_of_all(const float *values, int count) {
    double own = 0;
    for (int at = threadIdx.y * THREADS_X + threadIdx.x; at < count; at += THREADS_X * THREADS_Y) own += values[at];
    return sum_of_block(own);
}

// What `add_up` shares among a block of threads. All its calls for the same sizes in a kernel take the same memory.
template <int SIDE, int LAYERS, typename Number>
struct Boxes {
    static constexpr int ACROSS = THREADS_X + SIDE - 1, DOWN = BOX_ROWS * THREADS_Y + SIDE - 1;
    Number tile[LAYERS][DOWN][ACROSS], lines[LAYERS][DOWN][THREADS_X];

    __device__ static Boxes &shared() {
        __shared__ Boxes boxes;
        return boxes;
    }
};

// Adds up LAYERS numbers over squares of SIDE places a side in (height, width), with the border repeated: around the
// BOX_ROWS places below each other that begin at (x, BOX_ROWS * y) for thread (x, y). `values(column, row, numbers)`
// gives the numbers of a place. A block of threads calls it together: each number is made once, then rows are added up,
// then their sums.
template <int SIDE, int LAYERS, typename Number, typename Values>
__device__ void add_up(int width, int height, Number (&sums)[BOX_ROWS][LAYERS], Values values) {
    using Shared = Boxes<SIDE, LAYERS, Number>;
    constexpr int THREADS = THREADS_X * THREADS_Y, ACROSS = Shared::ACROSS, DOWN = Shared::DOWN;
    auto &[tile, lines] = Shared::shared();
    const int left = blockIdx.x * THREADS_X - SIDE / 2, top = BOX_ROWS * blockIdx.y * THREADS_Y - SIDE / 2;
    const int thread = threadIdx.y * THREADS_X + threadIdx.x;
    for (int at = thread; at < ACROSS * DOWN; at += THREADS) {
        const int column = at % ACROSS, row = at / ACROSS;
        Number numbers[LAYERS];
        values(clamp(left + column, 0, width - 1), clamp(top + row, 0, height - 1), numbers);
        for (int layer = 0; layer < LAYERS; layer++) tile[layer][row][column] = numbers[layer];
    }
    __syncthreads();
    for (int row = threadIdx.y; row < DOWN; row += THREADS_Y)
        for (int layer = 0; layer < LAYERS; layer++) {
            Number sum = 0;
            for (int i = 0; i < SIDE; i++) sum += tile[layer][row][threadIdx.x + i];
            lines[layer][row][threadIdx.x] = sum;
        }
    __syncthreads();
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < BOX_ROWS; i++) {
            sums[i][layer] = 0;
            for (int j = 0; j < SIDE; j++)
                sums[i][layer] += lines[layer][BOX_ROWS * threadIdx.y + i + j][threadIdx.x];
        }
}
