// Propagates masks. The formulas are in the docstrings of propagation.py. mask_kernels.py passes the constants of that
// module under their names; FARTHEST and NEAREST are the radii of searches. Layers are (N, height, width) without gaps.
// Where each of F frames has two keys, the layers of keys are (2 F, height, width), and blockIdx.z is the number of the
// key.
//
// A frame's luma is a record: its values at half, a quarter and an eighth of the size of the network's input, then
// their levels. The places of these layers are in bytes.

// A frame and one of its two keys; cuda_propagation.py writes it.
struct Key {
    const unsigned char *here, *there;  // records of the frame and of the key
    const float *mask;                  // of the key
    const unsigned char *map;
    float share;
};

__device__ const Key &key_of(const long long *keys) { return ((const Key *)keys)[blockIdx.z]; }

__device__ unsigned char level_of(float luma) { return (unsigned char)(__saturatef(luma) * 255 + 0.5f); }

// Writes the luma of the network's input (N, 3, input_height, input_width), shrunk to (height, width), and its levels
// into records of `size` bytes. `weights` are the channels' and a constant.
extern "C" __global__ void downsample(const float *input, int input_width, int input_height, const float *weights,
                                      unsigned char *records, int size, int levels, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    unsigned char *record = records + (long long)blockIdx.z * size;
    const float *frame = input + (long long)blockIdx.z * 3 * input_width * input_height;
    const float luma = luma_of(frame, input_width, input_height, weights, x, y, width, height) + weights[3];
    const int at = y * width + x;
    ((float *)record)[at] = luma, record[levels + at] = level_of(luma);
}

// Writes the luma (large_height, large_width) at the place `large` of records, shrunk to (height, width), and its
// levels.
extern "C" __global__ void halve(unsigned char *records, int size, int large, int large_width, int large_height,
                                 int values, int levels, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    unsigned char *record = records + (long long)blockIdx.z * size;
    const float *frame = (const float *)(record + large);
    const float left = (float)x * large_width / width, right = (float)(x + 1) * large_width / width;
    const float top = (float)y * large_height / height, bottom = (float)(y + 1) * large_height / height;
    float sum = 0;
    for (int j = (int)top; j < min(large_height, (int)ceilf(bottom)); j++)
        for (int i = (int)left; i < min(large_width, (int)ceilf(right)); i++)
            sum += frame[j * large_width + i] * overlap(i, left, right) * overlap(j, top, bottom);
    const float luma = sum / ((right - left) * (bottom - top));
    const int at = y * width + x;
    ((float *)(record + values))[at] = luma, record[levels + at] = level_of(luma);
}

// Returns the sum of a number of each thread of the block.
__device__ double sum_of_block(double own) {
    __shared__ double parts[256];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    parts[thread] = own;
    __syncthreads();
    for (int half = blockDim.x * blockDim.y / 2; half; half /= 2) {
        if (thread < half) parts[thread] += parts[thread + half];
        __syncthreads();
    }
    const double sum = parts[0];
    __syncthreads();  // before a next sum overwrites it
    return sum;
}

// Writes the mean difference (N - 1), in 0..1, of the levels at the place `levels` of N records, each to the next one.
// A block of threads takes two records.
extern "C" __global__ void differ(const long long *records, int levels, int width, int height, float *found) {
    const int begin = threadIdx.y * blockDim.x + threadIdx.x, step = blockDim.x * blockDim.y, count = width * height;
    const unsigned char *first = (const unsigned char *)records[blockIdx.z] + levels;
    const unsigned char *second = (const unsigned char *)records[blockIdx.z + 1] + levels;
    int own = 0;
    for (int at = begin; at < count; at += step) own += abs(first[at] - second[at]);
    const double sum = sum_of_block(own);
    if (begin == 0) found[blockIdx.z] = sum / (255.0 * count);
}

// Places of a search are tried in groups: the differences of a group, at a block of threads and BOX / 2 pixels around it,
// fit into shared memory, and so do their sums over BOX pixels across. Two differences share a word, since those of a
// box add up to less than 2^16.
constexpr int GROUP = 9, WORDS = GROUP / 2 + 1, ROWS_MOST = 8 + BOX - 1;

// Where the search from each pixel begins: at twice the coarse flow, or at no flow where `flow` is null.
struct Start {
    const int *flow;  // (2, height, width), of this block's key
    int width;
    long long plane;

    __device__ int operator()(int column, int row, int part) const {
        return flow ? 2 * flow[part * plane + row / 2 * width + column / 2] : 0;
    }
};

// Returns the number of the best of (2 RADIUS + 1)^2 places around the start, for this thread's pixel.
template <int RADIUS>
__device__ int best_place(const unsigned char *frame, const unsigned char *key, Start start, int width, int height) {
    constexpr int SIDE = 2 * RADIUS + 1, COUNT = SIDE * SIDE;
    static_assert(COUNT % GROUP == 0);
    __shared__ unsigned tile[WORDS][ROWS_MOST * (32 + BOX - 1)], lines[WORDS][ROWS_MOST * 32];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const int across = blockDim.x + BOX - 1, rows = blockDim.y + BOX - 1;
    const int left = blockIdx.x * blockDim.x - BOX / 2, top = blockIdx.y * blockDim.y - BOX / 2;
    int best = 0x7fffffff;
    for (int first = 0; first < COUNT; first += GROUP) {
        for (int at = thread; at < across * rows; at += threads) {
            const int column = clamp(left + at % across, 0, width - 1), row = clamp(top + at / across, 0, height - 1);
            const int right = column + start(column, row, 0) - RADIUS, down = row + start(column, row, 1) - RADIUS;
            const int value = frame[row * width + column];
            unsigned words[WORDS] = {};
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                const int u = clamp(right + (first + i) % SIDE, 0, width - 1);
                const int v = clamp(down + (first + i) / SIDE, 0, height - 1);
                words[i / 2] |= abs(value - key[v * width + u]) << 16 * (i % 2);
            }
            for (int word = 0; word < WORDS; word++) tile[word][at] = words[word];
        }
        __syncthreads();
        for (int at = thread; at < blockDim.x * rows; at += threads)
            for (int word = 0; word < WORDS; word++) {
                const unsigned *row = tile[word] + at / blockDim.x * across + at % blockDim.x;
                unsigned sum = 0;
                for (int i = 0; i < BOX; i++) sum += row[i];
                lines[word][at] = sum;
            }
        __syncthreads();  // from here on the next group may overwrite the tile
        unsigned sums[WORDS] = {};
        for (int j = 0; j < BOX; j++)
            for (int word = 0; word < WORDS; word++) sums[word] += lines[word][thread + j * blockDim.x];
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            const int number = first + i;
            const int away = abs(number % SIDE - RADIUS) + abs(number / SIDE - RADIUS);
            const int cost = (sums[i / 2] >> 16 * (i % 2) & 0xffff) + STEP * away;
            best = min(best, cost * COUNT + number);
        }
    }
    return best % COUNT;
}

// Writes the flow (2 F, 2, height, width) from frames to keys by the levels at the place `levels` of their records. The
// search begins at twice the flow `coarse` (2 F, 2, coarse_height, coarse_width), or at no flow where it is null.
extern "C" __global__ void search(const long long *keys, int levels, const int *coarse, int coarse_width,
                                  int coarse_height, int radius, int *flow, int width, int height) {
    const long long plane = (long long)width * height, coarse_plane = (long long)coarse_width * coarse_height;
    const unsigned char *frame = key_of(keys).here + levels, *key = key_of(keys).there + levels;
    const Start start{coarse ? coarse + 2 * blockIdx.z * coarse_plane : coarse, coarse_width, coarse_plane};
    const int number = radius == FARTHEST ? best_place<FARTHEST>(frame, key, start, width, height)
                                          : best_place<NEAREST>(frame, key, start, width, height);
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int side = 2 * radius + 1;
    const long long at = 2 * blockIdx.z * plane + y * width + x;
    flow[at] = start(x, y, 0) + number % side - radius;
    flow[at + plane] = start(x, y, 1) + number / side - radius;
}

// Returns the value of a layer at (x, y), bilinear, the border repeated. Like OpenCV's remap, it knows 32 places
// between two pixels.
__device__ float sampled(const float *layer, float x, float y, int width, int height) {
    x = rintf(32 * x) / 32, y = rintf(32 * y) / 32;
    const int left = (int)floorf(x), top = (int)floorf(y);
    const float right_part = x - left, bottom_part = y - top;
    const int c0 = clamp(left, 0, width - 1), c1 = clamp(left + 1, 0, width - 1);
    const float *above = layer + clamp(top, 0, height - 1) * width;
    const float *below = layer + clamp(top + 1, 0, height - 1) * width;
    return (1 - bottom_part) * ((1 - right_part) * above[c0] + right_part * above[c1]) +
           bottom_part * ((1 - right_part) * below[c0] + right_part * below[c1]);
}

// Returns the mean of a flow's part over the box around (column, row).
__device__ float mean_flow(const int *flow, int column, int row, int width, int height) {
    int sum = 0;
    for (int j = row - FLOW_BOX / 2; j <= row + FLOW_BOX / 2; j++)
        for (int i = column - FLOW_BOX / 2; i <= column + FLOW_BOX / 2; i++)
            sum += flow[clamp(j, 0, height - 1) * width + clamp(i, 0, width - 1)];
    return (float)sum / (FLOW_BOX * FLOW_BOX);
}

// Writes the mean flow (2 F, 2, height, width), and the residual along it (2 F, height, width).
extern "C" __global__ void match(const long long *keys, const int *flow, float *means, float *residuals, int width,
                                 int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const long long plane = (long long)width * height, at = y * width + x;
    const int *parts = flow + 2 * blockIdx.z * plane;
    const float right = mean_flow(parts, x, y, width, height), down = mean_flow(parts + plane, x, y, width, height);
    means[2 * blockIdx.z * plane + at] = right, means[(2 * blockIdx.z + 1) * plane + at] = down;
    const float *here = (const float *)key_of(keys).here, *there = (const float *)key_of(keys).there;
    residuals[blockIdx.z * plane + at] = fabsf(here[at] - sampled(there, x + right, y + down, width, height));
}

// Writes the weights of keys (2 F, height, width) from the results of `match`.
extern "C" __global__ void weigh_keys(const long long *keys, const float *residuals, float *weights, int width,
                                      int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const float *layer = residuals + (long long)blockIdx.z * width * height;
    const float rest = box(layer, x, y, width, height, RESIDUAL_BOX) + RESIDUAL;
    weights[place(x, y, width, height)] = key_of(keys).share / (rest * rest);
}

// Writes the keys' masks and class maps (2 F, height, width) in the places of their frames. `warped_maps` may be null.
extern "C" __global__ void warp(const long long *keys, const float *flow, int columns, int rows, float *warped,
                                unsigned char *warped_maps, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const Between near = between(x, y, width, height, columns, rows);
    const float *right = flow + 2 * (long long)blockIdx.z * columns * rows, *down = right + (long long)columns * rows;
    const float column = x + near.of(right) * width / columns, row = y + near.of(down) * height / rows;
    const long long plane = (long long)blockIdx.z * width * height, at = plane + y * width + x;
    warped[at] = sampled(key_of(keys).mask, column, row, width, height);
    if (!warped_maps) return;
    const int nearest = clamp((int)rintf(row), 0, height - 1) * width + clamp((int)rintf(column), 0, width - 1);
    warped_maps[at] = key_of(keys).map[nearest];
}

// Writes what is found in each frame (F, height, width), from its two keys' warped masks, class maps and weights.
extern "C" __global__ void blend(const float *warped, const unsigned char *warped_maps, const float *weights,
                                 int columns, int rows, float *masks, unsigned char *maps, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const Between near = between(x, y, width, height, columns, rows);
    const long long small = (long long)columns * rows, plane = (long long)width * height;
    const float *of_keys = weights + 2 * blockIdx.z * small;
    const float first = near.of(of_keys), second = near.of(of_keys + small);
    const long long at = 2 * blockIdx.z * plane + y * width + x, found = place(x, y, width, height);
    masks[found] = (first * warped[at] + second * warped[at + plane]) / (first + second);
    if (maps) maps[found] = warped_maps[first >= second ? at : at + plane];
}

// Writes the doubt about each frame (F, 2): the disagreement of its keys' warped masks (2 F, height, width), and the
// share of places that neither key shows, from their weights (2 F, rows, columns). A block of threads takes a frame.
extern "C" __global__ void doubt(const long long *keys, const float *warped, const float *weights, int columns,
                                 int rows, float *found, int width, int height) {
    const int begin = threadIdx.y * blockDim.x + threadIdx.x, step = blockDim.x * blockDim.y;
    const int plane = width * height, small = columns * rows;
    const float *first = warped + 2 * (long long)blockIdx.z * plane, *second = first + plane;
    double own_first = 0, own_second = 0, own_difference = 0;
    for (int at = begin; at < plane; at += step) {
        own_first += first[at], own_second += second[at];
        own_difference += fabsf(first[at] - second[at]);
    }
    const double larger = fmax(sum_of_block(own_first), sum_of_block(own_second)) / plane;
    const double difference = sum_of_block(own_difference) / plane;
    const Key *both = (const Key *)keys + 2 * blockIdx.z;
    const float *of_keys = weights + 2 * (long long)blockIdx.z * small;
    int own_unseen = 0;
    for (int at = begin; at < small; at += step) {
        const float one = sqrtf(both[0].share / of_keys[at]), other = sqrtf(both[1].share / of_keys[small + at]);
        own_unseen += fminf(one, other) - RESIDUAL > UNLIKE;
    }
    const double unseen = sum_of_block(own_unseen);
    if (begin) return;
    found[2 * blockIdx.z] = difference / fmax(larger, (double)SMALLEST);
    found[2 * blockIdx.z + 1] = unseen / small;
}
