// How the programs that work on masks read layers (height, width) without gaps, and add up.

// Returns the length of the part of the interval from `begin` to `end` that lies in pixel `i`, in pixels.
__device__ float overlap(int i, float begin, float end) { return fminf(i + 1.0f, end) - fmaxf((float)i, begin); }

// Returns the mean luma of the network's input (3, height, width) in one of `columns` x `rows` equal areas.
__device__ float luma_of(const float *input, int width, int height, const float *weights, int column, int row,
                         int columns, int rows) {
    const float left = (float)column * width / columns, right = (float)(column + 1) * width / columns;
    const float top = (float)row * height / rows, bottom = (float)(row + 1) * height / rows;
    const long long plane = (long long)width * height;
    float sum = 0;
    for (int y = (int)top; y < min(height, (int)ceilf(bottom)); y++)
        for (int x = (int)left; x < min(width, (int)ceilf(right)); x++) {
            const float *pixel = input + (long long)y * width + x;
            const float value = weights[0] * pixel[0] + weights[1] * pixel[plane] + weights[2] * pixel[2 * plane];
            sum += value * overlap(x, left, right) * overlap(y, top, bottom);
        }
    return sum / ((right - left) * (bottom - top));
}

// Returns the mean of a layer over a square of `size` places a side around (column, row), with the border repeated.
__device__ float box(const float *layer, int column, int row, int width, int height, int size) {
    float sum = 0;
    for (int j = row - size / 2; j <= row + size / 2; j++)
        for (int i = column - size / 2; i <= column + size / 2; i++)
            sum += layer[clamp(j, 0, height - 1) * width + clamp(i, 0, width - 1)];
    return sum / (size * size);
}

// The four places of a layer that a pixel is interpolated from, and their shares.
struct Between {
    int place[4];
    float share[4];

    __device__ float of(const float *layer) const {
        return share[0] * layer[place[0]] + share[1] * layer[place[1]] + share[2] * layer[place[2]] +
               share[3] * layer[place[3]];
    }
};

// Returns how pixel (x, y) of a picture (height, width) reads a layer (rows, columns).
__device__ Between between(int x, int y, int width, int height, int columns, int rows) {
    const float across = (float)columns / width, down = (float)rows / height;
    const float column = (x + 0.5f) * across - 0.5f, row = (y + 0.5f) * down - 0.5f;
    const int left = (int)floorf(column), top = (int)floorf(row);
    const float right_part = column - left, bottom_part = row - top;
    const int c0 = clamp(left, 0, columns - 1), c1 = clamp(left + 1, 0, columns - 1);
    const int r0 = clamp(top, 0, rows - 1) * columns, r1 = clamp(top + 1, 0, rows - 1) * columns;
    return Between{{r0 + c0, r0 + c1, r1 + c0, r1 + c1},
                   {(1 - bottom_part) * (1 - right_part), (1 - bottom_part) * right_part,
                    bottom_part * (1 - right_part), bottom_part * right_part}};
}

// Returns the sum of a number of each thread of the block. All threads call it together.
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
