// Smooths, refines, covers and rounds masks. The formulas are in the docstrings of smoothing.py, refinement.py and color_edge.py.
// mask_kernels.py passes the constants of these modules under their names; DOUBT of refinement.py is REFINED and
// UNREFINED, SMALL is SMALL and LARGE. Masks are upright, (N, height, width) without gaps. blockIdx.z is the number of a frame, or of a pair of
// frames. Sums have a fixed order, so that every run gives the same masks. A thread makes one place of what is written,
// and BOX_ROWS places below each other where it calls `add_up`, if nothing else is said.

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
// input_height, input_width). A block of threads makes as many blocks of a mask, and a thread columns of several, so that
// neighbouring threads read and write neighbouring pixels.
extern "C" __global__ void resize_mask(const float *masks, const float *input, int input_width, int input_height,
                                       const float *weights, float *records, int held, int width, int height,
                                       int first) {
    constexpr int SIDE = BLOCK / 2;  // of a block's luma
    __shared__ float parts[THREADS_Y][BLOCK * THREADS_X];
    const int begin = blockIdx.x * THREADS_X, row = blockIdx.y * THREADS_Y + threadIdx.y;
    const Records kept{records, held, width, height};
    const int frame = first + blockIdx.z;
    const float *mask = masks + (long long)blockIdx.z * width * height;
    float *copy = kept.mask(frame), *luma = kept.luma(frame);
    for (int i = threadIdx.x; i < BLOCK * THREADS_X; i += THREADS_X) {
        const int x = BLOCK * begin + i;
        float sum = 0;
        for (int y = BLOCK * row; y < BLOCK * (row + 1); y++) {
            const float value = mask[min(y, height - 1) * width + min(x, width - 1)];
            sum += fabsf(value - 0.5f);
            if (x < width && y < height) copy[y * width + x] = value;
        }
        parts[threadIdx.y][i] = sum;
    }
    __syncthreads();
    const int column = begin + threadIdx.x;
    if (column < blocks(width) && row < blocks(height)) {
        float sum = 0;
        for (int i = 0; i < BLOCK; i++) sum += parts[threadIdx.y][BLOCK * threadIdx.x + i];
        kept.sure(frame)[row * blocks(width) + column] = sum / (BLOCK * BLOCK);
    }
    const float *picture = input + (long long)blockIdx.z * 3 * input_width * input_height;
    const int columns = halved(width), rows = halved(height);
    for (int y = SIDE * row; y < min(rows, SIDE * (row + 1)); y++)
        for (int x = SIDE * begin + threadIdx.x; x < min(columns, SIDE * (begin + THREADS_X)); x += THREADS_X)
            luma[y * columns + x] = luma_of(picture, input_width, input_height, weights, x, y, columns, rows);
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
// blocks(width)), and sums of each THREADS_Y-th row of its columns, `sums` (2 * REACH * N, THREADS_Y, blocks(width)).
// The topmost threads compute these from luma once more, because another launch takes longer.
extern "C" __global__ void change(const float *records, int held, int width, int height, int begin, int first,
                                  int last, float *changes, float *sums) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= blocks(width)) return;
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
    const long long skip = (long long)blockIdx.z * blocks(height) * blocks(width);
    if (row < blocks(height)) changes[skip + row * blocks(width) + column] = change_at(row);
    if (blockIdx.y) return;
    float sum = 0;
    for (int y = threadIdx.y; y < blocks(height); y += THREADS_Y) sum += change_at(y);
    sums[(blockIdx.z * THREADS_Y + threadIdx.y) * blocks(width) + column] = sum;
}

// Writes the weight of the neighbour in each pair, in blocks (2 * REACH * N, blocks(height), blocks(width)), from the
// results of `change`. A thread makes those of all pairs of a frame, `first` or one after it, at BOX_ROWS places.
extern "C" __global__ void weigh(const float *records, int held, int width, int height, int first, float strength,
                                 const float *changes, const float *sums, float *weights) {
    constexpr int PAIRS = 2 * REACH;
    const int column = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const int columns = blocks(width), rows = blocks(height), plane = columns * rows;
    const long long skip = (long long)blockIdx.z * PAIRS * plane;
    const Records kept{const_cast<float *>(records), held, width, height};
    const float *sure = kept.sure(first + blockIdx.z);
    float sures[BOX_ROWS][1], changed[BOX_ROWS][PAIRS];
    add_up<DOUBT_BOX>(columns, rows, sures,
                      [&](int x, int y, float *numbers) { numbers[0] = sure[y * columns + x]; });
    add_up<CHANGE_BOX>(columns, rows, changed, [&](int x, int y, float *numbers) {
        for (int pair = 0; pair < PAIRS; pair++) numbers[pair] = changes[skip + pair * plane + y * columns + x];
    });
    for (int pair = 0; pair < PAIRS; pair++) {
        const int count = THREADS_Y * columns;
        const bool cut = sum_of_all(sums + (blockIdx.z * PAIRS + pair) * count, count) > CUT * plane;
        for (int i = 0; i < BOX_ROWS; i++) {
            const int row = top + i;
            if (column >= columns || row >= rows) continue;
            const float limit = CHANGE * (1 + DOUBT * (1 - 2 * sures[i][0] / (DOUBT_BOX * DOUBT_BOX)));
            const float change = changed[i][pair] / (CHANGE_BOX * CHANGE_BOX);
            weights[skip + pair * plane + row * columns + column] = cut ? 0 : strength * fmaxf(1 - change / limit, 0);
        }
    }
}

// Writes the masks of the frames from number `first` on, averaged with their neighbours. A thread makes a column of a
// block, whose pixels lie between the weights of three rows of blocks.
extern "C" __global__ void average(const float *records, int held, int width, int height, int begin, int first,
                                   int last, const float *weights, float *masks) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    const int columns = blocks(width), rows = blocks(height), near = (x + BLOCK / 2) / BLOCK;
    if (x >= width || row >= rows) return;
    const int left = max(near - 1, 0), right = min(near, columns - 1);
    const float part = (x + 0.5f) / BLOCK + 0.5f - near;
    const Records kept{const_cast<float *>(records), held, width, height};
    const float *own = kept.mask(first + blockIdx.z), *others[2 * REACH];
    float of_rows[2 * REACH][3];
    for (int j = 0; j < 2 * REACH; j++) {
        const int z = 2 * REACH * blockIdx.z + j;
        others[j] = kept.mask(pair_of(z, begin, first, last).other);
        for (int i = 0; i < 3; i++) {
            const float *line = weights + ((long long)z * rows + clamp(row + i - 1, 0, rows - 1)) * columns;
            of_rows[j][i] = (1 - part) * line[left] + part * line[right];
        }
    }
    masks += (long long)blockIdx.z * width * height;
#pragma unroll
    for (int i = 0; i < BLOCK; i++) {
        const int y = BLOCK * row + i, above = (i + BLOCK / 2) / BLOCK, at = y * width + x;
        if (y >= height) return;
        const float below_part = (i + 0.5f) / BLOCK + 0.5f - above;
        float total = own[at], counted = 1;
        for (int j = 0; j < 2 * REACH; j++) {
            const float weight = (1 - below_part) * of_rows[j][above] + below_part * of_rows[j][above + 1];
            total += weight * others[j][at];
            counted += weight;
        }
        masks[at] = total / counted;
    }
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

// Writes the guide (N, guide_height, guide_width) at the masks' size (N, height, width) to `lumas`. Writes the doubt in
// each mask and its values as sums of each THREADS_Y-th row of its columns, `totals` (2, N, THREADS_Y, width).
extern "C" __global__ void shrink(const float *guides, int guide_width, int guide_height, const float *masks,
                                  float *lumas, float *totals, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width) return;
    const float *source = guides + (long long)blockIdx.z * guide_width * guide_height;
    const long long first = (long long)blockIdx.z * width * height;
    if (y < height) lumas[first + y * width + x] = between(x, y, width, height, guide_width, guide_height).of(source);
    if (blockIdx.y) return;
    float doubt = 0, area = 0;
    for (int row = threadIdx.y; row < height; row += THREADS_Y) {
        const float mask = masks[first + row * width + x];
        doubt += 1 - 2 * fabsf(mask - 0.5f), area += mask;
    }
    const int at = (blockIdx.z * THREADS_Y + threadIdx.y) * width + x;
    totals[at] = doubt, totals[gridDim.z * THREADS_Y * width + at] = area;
}

// Writes the line that is fitted around each place as three layers (u, u a, u b), `lines` (3, N, height, width). From
// the totals of each mask, writes how far the mask is refined, `shares` (N).
extern "C" __global__ void fit_guide(const float *masks, const float *lumas, int width, int height,
                                     const float *totals, float *lines, float *shares) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const long long skip = (long long)blockIdx.z * width * height, layer = (long long)gridDim.z * width * height;
    if (blockIdx.x == 0 && blockIdx.y == 0) {
        const int count = THREADS_Y * width;
        const float size = (float)width * height;
        const float doubt = sum_of_all(totals + blockIdx.z * count, count) / size;
        const float area = sum_of_all(totals + (gridDim.z + blockIdx.z) * count, count) / size;
        const float sure = __saturatef((UNREFINED - doubt) / (UNREFINED - REFINED));
        if (x == 0 && top == 0) shares[blockIdx.z] = sure * __saturatef((area - SMALL) / (LARGE - SMALL));
    }
    float sums[BOX_ROWS][5];  // of luma, mask, and their products
    add_up<BOX>(width, height, sums, [&](int column, int row, float *numbers) {
        const long long at = skip + row * width + column;
        const float l = lumas[at], m = masks[at];
        numbers[0] = l, numbers[1] = m, numbers[2] = l * l, numbers[3] = l * m, numbers[4] = m * m;
    });
    for (int i = 0; i < BOX_ROWS; i++) {
        if (x >= width || top + i >= height) return;
        constexpr float SHARE = 1.0f / (BOX * BOX);
        for (float &sum : sums[i]) sum *= SHARE;
        const auto [luma, mask, luma_luma, luma_mask, mask_mask] = sums[i];
        const float shared = luma_mask - luma * mask;
        const float a = shared / (luma_luma - luma * luma + EPSILON), b = mask - a * luma;
        const float weight = 1 / (fmaxf(mask_mask - mask * mask - a * shared, 0) + MISFIT);
        const long long at = skip + (top + i) * width + x;
        lines[at] = weight, lines[layer + at] = weight * a, lines[2 * layer + at] = weight * b;
    }
}

// Writes the line that is read at each place, the weighted mean of the lines around it: slopes and offsets, `gathered`
// (2, N, height, width).
extern "C" __global__ void gather_lines(const float *lines, int width, int height, float *gathered) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const long long skip = (long long)blockIdx.z * width * height, layer = (long long)gridDim.z * width * height;
    float sums[BOX_ROWS][3];  // of the weights, and of the weighted slopes and offsets
    add_up<BOX>(width, height, sums, [&](int column, int row, float *numbers) {
        for (int i = 0; i < 3; i++) numbers[i] = lines[i * layer + skip + row * width + column];
    });
    for (int i = 0; i < BOX_ROWS; i++) {
        if (x >= width || top + i >= height) return;
        const long long at = skip + (top + i) * width + x;
        const float scale = 1 / sums[i][0];
        gathered[at] = sums[i][1] * scale, gathered[layer + at] = sums[i][2] * scale;
    }
}

// Writes the refined masks, at the guide's size, from the lines. A thread makes ROWS pixels below each other.
extern "C" __global__ void draw_edge(const float *masks, const float *gathered, int width, int height,
                                     const float *shares, const float *guides, float *target, int guide_width,
                                     int guide_height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= guide_width) return;
    const long long skip = (long long)blockIdx.z * width * height, layer = (long long)gridDim.z * width * height;
    const float share = shares[blockIdx.z];
    for (int y = top; y < min(guide_height, top + ROWS); y++) {
        const Between near = between(x, y, guide_width, guide_height, width, height);
        const long long at = place(x, y, guide_width, guide_height);
        float value = near.of(gathered + skip) * guides[at] + near.of(gathered + layer + skip);
        if (share < 1) value = share * value + (1 - share) * near.of(masks + skip);
        target[at] = __saturatef(value);
    }
}

// Writes which side of the edge of a refined mask (N, height, width) each place is surely on: 1 in front, -1 behind.
extern "C" __global__ void find_sides(const float *masks, int width, int height, float *sides) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    masks += (long long)blockIdx.z * width * height, sides += (long long)blockIdx.z * width * height;
    float sums[BOX_ROWS][1];
    add_up<NEAR>(width, height, sums,
                 [&](int column, int row, float *numbers) { numbers[0] = masks[row * width + column]; });
    for (int i = 0; i < BOX_ROWS; i++) {
        if (x >= width || top + i >= height) return;
        const float mean = sums[i][0] / (NEAR * NEAR);
        sides[(top + i) * width + x] = __saturatef(2 - (1 - mean) / SURE) - __saturatef(2 - mean / SURE);
    }
}

// The mean color of one side of the edge around a place, its variance, and how far there is enough of that side.
struct SideColor {
    float mean[3], variance, enough;
};

__device__ SideColor side_color(const float (&sums)[5]) {  // of the side, its three colors, and their squares
    constexpr float TINY = 1e-6f, SHARE = 1.0f / (COLORS * COLORS);
    const float share = sums[0] * SHARE, scale = SHARE / (share + TINY);
    SideColor color;
    color.variance = sums[4] * scale;
    for (int i = 0; i < 3; i++) {
        color.mean[i] = sums[1 + i] * scale;
        color.variance -= color.mean[i] * color.mean[i];
    }
    color.variance = fmaxf(color.variance, 0), color.enough = fminf(share / ENOUGH, 1);
    return color;
}

// Writes refined masks (N, height, width) with their edges drawn by color, from the results of `find_sides`. (luma, blue,
// red) are the guides of the three planes, `shares` (N) are those of `fit_guide`.
extern "C" __global__ void draw_by_color(const float *sides, const float *luma, const float *blue, const float *red,
                                         const float *shares, int width, int height, const float *masks,
                                         float *drawn_masks) {
    const float *colors[] = {luma, blue, red};
    const int x = blockIdx.x * blockDim.x + threadIdx.x, top = BOX_ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    const long long skip = (long long)blockIdx.z * width * height;
    float front[BOX_ROWS][5], behind[BOX_ROWS][5];
    auto values = [&](float sign) {
        return [=](int column, int row, float *numbers) {
            const long long at = skip + row * width + column;
            const float side = fmaxf(sign * sides[at], 0);
            numbers[0] = side, numbers[4] = 0;
            for (int i = 0; i < 3; i++) {
                const float color = colors[i][at];
                numbers[1 + i] = side * color, numbers[4] += side * color * color;
            }
        };
    };
    add_up<COLORS>(width, height, front, values(1));
    add_up<COLORS>(width, height, behind, values(-1));
    for (int i = 0; i < BOX_ROWS; i++) {
        if (x >= width || top + i >= height) return;
        const SideColor fore = side_color(front[i]), back = side_color(behind[i]);
        const long long at = skip + (top + i) * width + x;
        float distance = 0, along = 0;
        for (int j = 0; j < 3; j++) {
            const float apart = fore.mean[j] - back.mean[j];
            distance += apart * apart, along += (colors[j][at] - back.mean[j]) * apart;
        }
        const float drawn = __saturatef(along / (distance + 1e-6f));
        const float clear = 2 * distance / (distance + fore.variance + back.variance + FLOOR) - 1;
        const float trust = __saturatef(clear) * (1 - fabsf(sides[at])) * fore.enough * back.enough;
        drawn_masks[at] = masks[at] + shares[blockIdx.z] * trust * (drawn - masks[at]);
    }
}

// Notes which masks have a NaN, and which a value above `threshold`: sets their elements of `unknown` and `above` (N)
// to `call`, a number that no earlier launch had.
extern "C" __global__ void find_nan(const float *masks, int width, int height, int *unknown, int *above, int call,
                                    float threshold) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const float value = masks[((long long)blockIdx.z * height + y) * width + x];
    if (isnan(value)) unknown[blockIdx.z] = call;
    if (value > threshold && above[blockIdx.z] != call) above[blockIdx.z] = call;
}

// Copies the masks. Those in which `find_nan` found a NaN in the same `call` become `value` everywhere. Writes which of
// the others have a value above the threshold to `found` (N), and which had a NaN to `covered` (N). Both may be memory
// of the host.
extern "C" __global__ void cover(const float *masks, int width, int height, const int *unknown, const int *above,
                                 int call, float value, float *target, unsigned char *found,
                                 unsigned char *covered) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const long long at = ((long long)blockIdx.z * height + y) * width + x;
    const bool is_unknown = unknown[blockIdx.z] == call;
    target[at] = is_unknown ? value : masks[at];
    if (x == 0 && y == 0) {
        found[blockIdx.z] = !is_unknown && above[blockIdx.z] == call;
        covered[blockIdx.z] = is_unknown;
    }
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

// Makes masks of 1 in ellipses, 0 elsewhere. A mask has `most` of these (N, most, 4): the center, then by what the
// distance from it is multiplied, across and down, which is 1 on the ellipse. Numbers that are none make no ellipse.
extern "C" __global__ void draw_ellipses(const float *ellipses, int most, int width, int height, float *masks) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float value = 0;
    for (int k = 0; k < most; k++) {
        const float *one = ellipses + ((long long)blockIdx.z * most + k) * 4;
        const float across = __fmul_rn(x - one[0], one[2]), down = __fmul_rn(y - one[1], one[3]);
        if (__fadd_rn(__fmul_rn(across, across), __fmul_rn(down, down)) <= 1) value = 1;  // rounded as NumPy does it
    }
    masks[((long long)blockIdx.z * height + y) * width + x] = value;
}
