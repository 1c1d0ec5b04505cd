// Propagates masks. The formulas are in the docstrings of propagation.py. mask_kernels.py passes the constants of that
// module under their names; FARTHEST and NEAREST are the radii of searches. Layers are (N, height, width) without gaps.
// Where each of F frames has two keys, the layers of keys are (2 F, height, width), and blockIdx.z is the number of the
// key. A thread makes BOX_ROWS places below each other where it calls `add_up`.
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

// Places of a search are tried in groups, whose differences fit into shared memory. Two differences share a word, since
// those of a box add up to less than 2^16.
constexpr int GROUP = 9, WORDS = GROUP / 2 + 1;

// Where the search from each pixel begins: at twice the coarse flow, or at no flow where `flow` is null.
struct Start {
    const int *flow;  // (2, height, width), of this block's key
    int width;
    long long plane;

    __device__ int operator()(int column, int row, int part) const {
        return flow ? 2 * flow[part * plane + row / 2 * width + column / 2] : 0;
    }
};

// Finds the numbers of the best of (2 RADIUS + 1)^2 places around the start, for this thread's BOX_ROWS pixels.
template <int RADIUS>
__device__ void find_best(const unsigned char *frame, const unsigned char *key, Start start, int width, int height,
                          int (&best)[BOX_ROWS]) {
    constexpr int SIDE = 2 * RADIUS + 1, COUNT = SIDE * SIDE;
    static_assert(COUNT % GROUP == 0);
    for (int &one : best) one = 0x7fffffff;
    for (int first = 0; first < COUNT; first += GROUP) {
        unsigned sums[BOX_ROWS][WORDS];
        add_up<BOX>(width, height, sums, [&](int column, int row, unsigned *words) {
            const int right = column + start(column, row, 0) - RADIUS, down = row + start(column, row, 1) - RADIUS;
            const int value = frame[row * width + column];
            for (int word = 0; word < WORDS; word++) words[word] = 0;
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                const int u = clamp(right + (first + i) % SIDE, 0, width - 1);
                const int v = clamp(down + (first + i) / SIDE, 0, height - 1);
                words[i / 2] |= abs(value - key[v * width + u]) << 16 * (i % 2);
            }
        });
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            const int number = first + i;
            const int away = abs(number % SIDE - RADIUS) + abs(number / SIDE - RADIUS);
            for (int j = 0; j < BOX_ROWS; j++) {
                const int cost = (sums[j][i / 2] >> 16 * (i % 2) & 0xffff) + STEP * away;
                best[j] = min(best[j], cost * COUNT + number);
            }
        }
    }
    for (int &one : best) one %= COUNT;
}

// Writes the flow (2 F, 2, height, width) from frames to keys by the levels at the place `levels` of their records. The
// search begins at twice the flow `coarse` (2 F, 2, coarse_height, coarse_width), or at no flow where it is null.
extern "C" __global__ void search(const long long *keys, int levels, const int *coarse, int coarse_width,
                                  int coarse_height, int radius, int *flow, int width, int height) {
    const long long plane = (long long)width * height, coarse_plane = (long long)coarse_width * coarse_height;
    const unsigned char *frame = key_of(keys).here + levels, *key = key_of(keys).there + levels;
    const Start start{coarse ? coarse + 2 * blockIdx.z * coarse_plane : coarse, coarse_width, coarse_plane};
    int best[BOX_ROWS];
    if (radius == FARTHEST)
        find_best<FARTHEST>(frame, key, start, width, height, best);
    else
        find_best<NEAREST>(frame, key, start, width, height, best);
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const int side = 2 * radius + 1;
    for (int i = 0; i < BOX_ROWS; i++) {
        const int y = top + i;
        if (x >= width || y >= height) return;
        const long long at = 2 * blockIdx.z * plane + y * width + x;
        flow[at] = start(x, y, 0) + best[i] % side - radius;
        flow[at + plane] = start(x, y, 1) + best[i] / side - radius;
    }
}

// Returns the value of a layer at (x, y), bilinear, the border repeated. Like OpenCV's remap, it knows 32 places
// between two pixels.
__device__ float sampled(const float *layer, float x, float y, int width, int height) {
    const int across = (int)rintf(32 * x), down = (int)rintf(32 * y), left = across >> 5, top = down >> 5;
    const float right_part = (across & 31) / 32.0f, bottom_part = (down & 31) / 32.0f;
    const int c0 = clamp(left, 0, width - 1), c1 = clamp(left + 1, 0, width - 1);
    const float *above = layer + clamp(top, 0, height - 1) * width;
    const float *below = layer + clamp(top + 1, 0, height - 1) * width;
    return (1 - bottom_part) * ((1 - right_part) * above[c0] + right_part * above[c1]) +
           bottom_part * ((1 - right_part) * below[c0] + right_part * below[c1]);
}

// Writes the mean flow (2 F, 2, height, width), and the residual along it (2 F, height, width).
extern "C" __global__ void match(const long long *keys, const int *flow, float *means, float *residuals, int width,
                                 int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const long long plane = (long long)width * height;
    const int *parts = flow + 2 * blockIdx.z * plane;
    int sums[BOX_ROWS][2];
    add_up<FLOW_BOX>(width, height, sums, [&](int column, int row, int *numbers) {
        for (int i = 0; i < 2; i++) numbers[i] = parts[i * plane + row * width + column];
    });
    const float *here = (const float *)key_of(keys).here, *there = (const float *)key_of(keys).there;
    for (int i = 0; i < BOX_ROWS; i++) {
        const int y = top + i, at = y * width + x;
        if (x >= width || y >= height) return;
        const float places = FLOW_BOX * FLOW_BOX, right = sums[i][0] / places, down = sums[i][1] / places;
        means[2 * blockIdx.z * plane + at] = right, means[(2 * blockIdx.z + 1) * plane + at] = down;
        residuals[blockIdx.z * plane + at] = fabsf(here[at] - sampled(there, x + right, y + down, width, height));
    }
}

// Writes the weights of keys (2 F, height, width) from the results of `match`.
extern "C" __global__ void weigh_keys(const long long *keys, const float *residuals, float *weights, int width,
                                      int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const float *layer = residuals + (long long)blockIdx.z * width * height;
    float sums[BOX_ROWS][1];
    add_up<RESIDUAL_BOX>(width, height, sums,
                         [&](int column, int row, float *numbers) { numbers[0] = layer[row * width + column]; });
    for (int i = 0; i < BOX_ROWS; i++) {
        const int y = top + i;
        if (x >= width || y >= height) return;
        const float rest = sums[i][0] / (RESIDUAL_BOX * RESIDUAL_BOX) + RESIDUAL;
        weights[place(x, y, width, height)] = key_of(keys).share / (rest * rest);
    }
}

// Writes the keys' masks and class maps (2 F, height, width) in the places of their frames. `warped_maps` may be null.
// A thread makes ROWS pixels below each other.
extern "C" __global__ void warp(const long long *keys, const float *flow, int columns, int rows, float *warped,
                                unsigned char *warped_maps, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width) return;
    const Key key = key_of(keys);
    const float *right = flow + 2 * (long long)blockIdx.z * columns * rows, *down = right + (long long)columns * rows;
    const float across = (float)width / columns, downwards = (float)height / rows;
    for (int y = top; y < min(height, top + ROWS); y++) {
        const Between near = between(x, y, width, height, columns, rows);
        const float column = x + near.of(right) * across, row = y + near.of(down) * downwards;
        const long long at = place(x, y, width, height);
        warped[at] = sampled(key.mask, column, row, width, height);
        if (!warped_maps) continue;
        const int nearest = clamp((int)rintf(row), 0, height - 1) * width + clamp((int)rintf(column), 0, width - 1);
        warped_maps[at] = key.map[nearest];
    }
}

// Writes what is found in each frame (F, height, width), from its two keys' warped masks, class maps and weights. A
// thread makes ROWS pixels below each other.
extern "C" __global__ void blend(const float *warped, const unsigned char *warped_maps, const float *weights,
                                 int columns, int rows, float *masks, unsigned char *maps, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= width) return;
    const long long small = (long long)columns * rows, plane = (long long)width * height;
    const float *of_keys = weights + 2 * blockIdx.z * small;
    for (int y = top; y < min(height, top + ROWS); y++) {
        const Between near = between(x, y, width, height, columns, rows);
        const float first = near.of(of_keys), second = near.of(of_keys + small);
        const long long at = 2 * blockIdx.z * plane + y * width + x, found = place(x, y, width, height);
        masks[found] = (first * warped[at] + second * warped[at + plane]) / (first + second);
        if (maps) maps[found] = warped_maps[first >= second ? at : at + plane];
    }
}

// Writes the doubt about each frame (F, 2): the disagreement of its keys' warped masks (2 F, height, width), and the
// share of places that neither key shows, from their weights (2 F, rows, columns). A block of threads takes a frame.
extern "C" __global__ void measure_doubt(const long long *keys, const float *warped, const float *weights,
                                         int columns, int rows, float *found, int width, int height) {
    const int begin = threadIdx.y * blockDim.x + threadIdx.x, step = blockDim.x * blockDim.y;
    const int plane = width * height, small = columns * rows;
    const float *first = warped + 2 * (long long)blockIdx.z * plane, *second = first + plane;
    double own_first = 0, own_second = 0, own_difference = 0;
#pragma unroll 8  // with few threads, each has to ask for much at once
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
