// Smooths, refines, covers and rounds masks. The formulas are in the docstrings of smoothing.py and refinement.py.
// mask_kernels.py passes the constants of these modules under their names; DOUBT of refinement.py is REFINED and
// UNREFINED. Masks are upright, (N, height, width) without gaps. blockIdx.z is the number of a frame, or of a pair of
// frames. Sums have a fixed order, so that every run gives the same masks.

__device__ int halved(int size) { return (size + 1) / 2; }
__device__ int blocks(int size) { return (size + BLOCK - 1) / BLOCK; }

// The records of frames. A record has the mask, the luma at half the mask's size, and the distance of the mask from
// 1/2 in blocks. The record of frame n is in row n % rows.
struct Records {
    float *values;
    int rows, width, height;  // number of records, and size of a mask

    __device__ long long size() const { return lumas() + sures() + (long long)blocks(width) * blocks(height); }
    __device__ long long lumas() const { return (long long)width * height; }
    __device__ long long sures() const { return (long long)halved(width) * halved(height); }
    __device__ float *mask(int frame) const { return values + frame % rows * size(); }
    __device__ float *luma(int frame) const { return mask(frame) + lumas(); }
    __device__ float *sure(int frame) const { return luma(frame) + sures(); }
};

// Writes the records of the frames from number `first` on, from their masks and the network's input (N, 3,
// input_height, input_width). A thread makes one block of a mask.
extern "C" __global__ void keep(const float *masks, const float *input, int input_width, int input_height,
                                const float *weights, float *records, int held, int width, int height,
                                int first) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= blocks(width) || row >= blocks(height)) return;
    const Records kept{records, held, width, height};
    const int frame = first + blockIdx.z;
    const float *mask = masks + (long long)blockIdx.z * width * height;
    float sum = 0;
    for (int j = 0; j < BLOCK; j++)
        for (int i = 0; i < BLOCK; i++) {
            const int x = BLOCK * column + i, y = BLOCK * row + j;
            const float value = mask[(long long)min(y, height - 1) * width + min(x, width - 1)];
            sum += fabsf(value - 0.5f);
            if (x < width && y < height) kept.mask(frame)[(long long)y * width + x] = value;
        }
    kept.sure(frame)[row * blocks(width) + column] = sum / (BLOCK * BLOCK);
    const float *picture = input + (long long)blockIdx.z * 3 * input_width * input_height;
    const int columns = halved(width), rows = halved(height);
    for (int y = BLOCK / 2 * row; y < min(rows, BLOCK / 2 * (row + 1)); y++)
        for (int x = BLOCK / 2 * column; x < min(columns, BLOCK / 2 * (column + 1)); x++)
            kept.luma(frame)[y * columns + x] =
                luma_of(picture, input_width, input_height, weights, x, y, columns, rows);
}

// The numbers of a frame and of one of its 2 * REACH neighbours.
struct Pair {
    int frame, other;
};

// Returns pair number `z`, counted from the first pair of frame `first`. Frame `begin` stands in for earlier frames,
// frame `last` for later frames.
__device__ Pair pair_of(int z, int begin, int first, int last) {
    const int k = z % (2 * REACH) - REACH, frame = first + z / (2 * REACH);
    return Pair{frame, clamp(frame + (k < 0 ? k : k + 1), begin, last)};
}

// Writes the differences of luma between the frames of each pair in blocks, `changes` (2 * REACH * N, blocks(height),
// blocks(width)), and the sums of its columns, `sums` (2 * REACH * N, blocks(width)). The sums are computed from luma
// once more, because another launch takes longer.
extern "C" __global__ void change(const float *records, int held, int width, int height, int begin, int first,
                                  int last, float *changes, float *sums) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= blocks(width) || row >= blocks(height)) return;
    const Records kept{const_cast<float *>(records), held, width, height};
    const Pair pair = pair_of(blockIdx.z, begin, first, last);
    const float *here = kept.luma(pair.frame), *there = kept.luma(pair.other);
    const int lumas_across = halved(width), lumas_down = halved(height), side = BLOCK / 2;
    auto change_at = [&](int y) {
        float sum = 0;
        for (int j = side * y; j < side * (y + 1); j++)
            for (int i = side * column; i < side * (column + 1); i++) {
                const int at = min(j, lumas_down - 1) * lumas_across + min(i, lumas_across - 1);
                sum += fabsf(there[at] - here[at]);
            }
        return sum / (side * side);
    };
    changes[((long long)blockIdx.z * blocks(height) + row) * blocks(width) + column] = change_at(row);
    if (row) return;
    float sum = 0;
    for (int y = 0; y < blocks(height); y++) sum += change_at(y);
    sums[blockIdx.z * blocks(width) + column] = sum;
}

// Returns the mean of a layer (height, width) from the sums of its columns. All threads of a block call it together.
__device__ float mean_of(const float *sums, int width, int height) {
    constexpr int PARTS = 32;
    __shared__ float parts[PARTS];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (int part = thread; part < PARTS; part += blockDim.x * blockDim.y) {
        parts[part] = 0;
        for (int column = part; column < width; column += PARTS) parts[part] += sums[column];
    }
    __syncthreads();
    float sum = 0;
    for (const float part : parts) sum += part;
    return sum / ((float)width * height);
}

// Adds up LAYERS numbers over the square of BOX places a side around each thread's place (x, y) in (height, width),
// with the border repeated. `values(place, numbers)` gives the numbers of a place. A block of threads calls it together:
// each number is read once, then rows are added up, then their sums.
template <int LAYERS, typename Values>
__device__ void add_up(int width, int height, float (&sums)[LAYERS], Values values) {
    constexpr int ACROSS_MOST = 32, DOWN_MOST = 8 + BOX - 1;  // a block's, see THREADS of kernels.py
    __shared__ float tile[LAYERS][DOWN_MOST][ACROSS_MOST + BOX - 1], lines[LAYERS][DOWN_MOST][ACROSS_MOST];
    const int across = blockDim.x + BOX - 1, down = blockDim.y + BOX - 1;
    const int left = blockIdx.x * blockDim.x - BOX / 2, top = blockIdx.y * blockDim.y - BOX / 2;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    for (int at = thread; at < across * down; at += threads) {
        const int column = at % across, row = at / across;
        float numbers[LAYERS];
        values(clamp(top + row, 0, height - 1) * width + clamp(left + column, 0, width - 1), numbers);
        for (int layer = 0; layer < LAYERS; layer++) tile[layer][row][column] = numbers[layer];
    }
    __syncthreads();
    for (int at = thread; at < blockDim.x * down; at += threads) {
        const int column = at % blockDim.x, row = at / blockDim.x;
        for (int layer = 0; layer < LAYERS; layer++) {
            float sum = 0;
            for (int i = 0; i < BOX; i++) sum += tile[layer][row][column + i];
            lines[layer][row][column] = sum;
        }
    }
    __syncthreads();
    for (int layer = 0; layer < LAYERS; layer++) {
        sums[layer] = 0;
        for (int j = 0; j < BOX; j++) sums[layer] += lines[layer][threadIdx.y + j][threadIdx.x];
    }
}

// Writes the weight of the neighbour in each pair, in blocks (2 * REACH * N, blocks(height), blocks(width)), from the
// results of `change`.
extern "C" __global__ void weigh(const float *records, int held, int width, int height, int begin, int first,
                                 int last, float strength, const float *changes, const float *sums, float *weights) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    const int columns = blocks(width), rows = blocks(height);
    const bool cut = mean_of(sums + blockIdx.z * columns, columns, rows) > CUT;
    if (column >= columns || row >= rows) return;
    const long long skip = (long long)blockIdx.z * columns * rows;
    float weight = 0;
    if (!cut) {
        const Records kept{const_cast<float *>(records), held, width, height};
        const float *sure = kept.sure(pair_of(blockIdx.z, begin, first, last).frame);
        const float limit = CHANGE * (1 + DOUBT * (1 - 2 * box(sure, column, row, columns, rows, DOUBT_BOX)));
        weight = strength * fmaxf(1 - box(changes + skip, column, row, columns, rows, CHANGE_BOX) / limit, 0);
    }
    weights[skip + row * columns + column] = weight;
}

// Writes the masks of the frames from number `first` on, averaged with their neighbours.
extern "C" __global__ void average(const float *records, int held, int width, int height, int begin, int first,
                                   int last, const float *weights, float *masks) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const Records kept{const_cast<float *>(records), held, width, height};
    const int columns = blocks(width), rows = blocks(height), at = y * width + x;
    const Between near = between(x, y, BLOCK * columns, BLOCK * rows, columns, rows);
    float total = kept.mask(first + blockIdx.z)[at], counted = 1;
    for (int j = 0; j < 2 * REACH; j++) {
        const int z = 2 * REACH * blockIdx.z + j;
        const float weight = near.of(weights + (long long)z * columns * rows);
        total += weight * kept.mask(pair_of(z, begin, first, last).other)[at];
        counted += weight;
    }
    masks[(long long)blockIdx.z * width * height + at] = total / counted;
}

// Writes the guide: luma (N, height, width) as stored, shrunk to (small_height, small_width) and turned upright. A
// thread makes one pixel of the guide.
extern "C" __global__ void guide(const sample *luma, int width, int height, const float *across, int columns,
                                 const float *down, int rows, float *target, int small_width, int small_height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= small_width || row >= small_height) return;
    const sample *frame = luma + (long long)blockIdx.z * width * height;
    target[(long long)blockIdx.z * small_width * small_height + upright(column, row, small_width, small_height)] =
        shrunk(frame, width, {across, columns}, {down, rows}, column, row);
}

// Writes the guide (N, guide_height, guide_width) at the masks' size (N, height, width) to `lumas`, and the doubt in
// each mask as sums of its columns, `doubts` (N, width).
extern "C" __global__ void shrink(const float *guides, int guide_width, int guide_height, const float *masks,
                                  float *lumas, float *doubts, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const float *source = guides + (long long)blockIdx.z * guide_width * guide_height;
    const long long first = (long long)blockIdx.z * width * height;
    lumas[first + y * width + x] = between(x, y, width, height, guide_width, guide_height).of(source);
    if (y) return;
    float sum = 0;
    for (int row = 0; row < height; row++) sum += 1 - 2 * fabsf(masks[first + (long long)row * width + x] - 0.5f);
    doubts[blockIdx.z * width + x] = sum;
}

// Writes the line that is fitted around each place as three layers (u, u a, u b), `lines` (3, N, height, width). From
// the doubt in each mask, writes how far the mask is refined, `shares` (N).
extern "C" __global__ void fit(const float *masks, const float *lumas, int width, int height, const float *doubts,
                               float *lines, float *shares) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const long long skip = (long long)blockIdx.z * width * height, layer = (long long)gridDim.z * width * height;
    if (blockIdx.x == 0 && blockIdx.y == 0) {
        const float doubt = mean_of(doubts + blockIdx.z * width, width, height);
        if (x == 0 && y == 0)
            shares[blockIdx.z] = fminf(fmaxf((UNREFINED - doubt) / (UNREFINED - REFINED), 0), 1);
    }
    float sums[5];  // of luma, mask, and their products
    add_up(width, height, sums, [&](int at, float *numbers) {
        const float l = lumas[skip + at], m = masks[skip + at];
        numbers[0] = l, numbers[1] = m, numbers[2] = l * l, numbers[3] = l * m, numbers[4] = m * m;
    });
    if (x >= width || y >= height) return;
    const float places = BOX * BOX, luma = sums[0] / places, mask = sums[1] / places;
    const float shared = sums[3] / places - luma * mask;
    const float a = shared / (sums[2] / places - luma * luma + EPSILON), b = mask - a * luma;
    const float weight = 1 / (fmaxf(sums[4] / places - mask * mask - a * shared, 0) + MISFIT);
    const long long at = skip + y * width + x;
    lines[at] = weight, lines[layer + at] = weight * a, lines[2 * layer + at] = weight * b;
}

// Writes the line that is read at each place, the weighted mean of the lines around it: slopes and offsets, `gathered`
// (2, N, height, width).
extern "C" __global__ void gather(const float *lines, int width, int height, float *gathered) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const long long skip = (long long)blockIdx.z * width * height, layer = (long long)gridDim.z * width * height;
    float sums[3];  // of the weights, and of the weighted slopes and offsets
    add_up(width, height, sums, [&](int at, float *numbers) {
        for (int i = 0; i < 3; i++) numbers[i] = lines[i * layer + skip + at];
    });
    if (x >= width || y >= height) return;
    const long long at = skip + y * width + x;
    gathered[at] = sums[1] / sums[0], gathered[layer + at] = sums[2] / sums[0];
}

// Writes the refined masks, at the guide's size, from the lines.
extern "C" __global__ void draw(const float *masks, const float *gathered, int width, int height, const float *shares,
                                const float *guides, float *target, int guide_width, int guide_height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= guide_width || y >= guide_height) return;
    const long long skip = (long long)blockIdx.z * width * height, layer = (long long)gridDim.z * width * height;
    const long long at = ((long long)blockIdx.z * guide_height + y) * guide_width + x;
    const Between near = between(x, y, guide_width, guide_height, width, height);
    const float share = shares[blockIdx.z];
    float value = near.of(gathered + skip) * guides[at] + near.of(gathered + layer + skip);
    if (share < 1) value = share * value + (1 - share) * near.of(masks + skip);
    target[at] = __saturatef(value);
}

// Notes which masks have a NaN: sets their elements of `calls` (N) to `call`, a number that no earlier launch had.
extern "C" __global__ void find_nan(const float *masks, int width, int height, int *calls, int call) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    if (isnan(masks[((long long)blockIdx.z * height + y) * width + x])) calls[blockIdx.z] = call;
}

// Copies the masks. Those in which `find_nan` found a NaN in the same `call` become `value` everywhere.
extern "C" __global__ void cover(const float *masks, int width, int height, const int *calls, int call, float value,
                                 float *target) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const long long at = ((long long)blockIdx.z * height + y) * width + x;
    target[at] = calls[blockIdx.z] == call ? value : masks[at];
}

// Rounds the masks to `levels`, in steps of 1/255, and writes these as masks again: `values` (256) has their values.
extern "C" __global__ void quantize(const float *masks, int width, int height, const float *values,
                                    unsigned char *levels, float *target) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const long long at = ((long long)blockIdx.z * height + y) * width + x;
    levels[at] = (unsigned char)__fadd_rn(__fmul_rn(masks[at], 255), 0.5f);  // rounded after each, as NumPy does it
    target[at] = values[levels[at]];
}
