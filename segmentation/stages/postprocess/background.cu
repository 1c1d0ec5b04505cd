// The mask, enlarged, and the background, blurred or in blocks, with which composite.cu composites frames.

// The two places of a smaller layer between which a pixel reads, along one axis.
struct Span {
    int first, second;
    float part;  // of the second
};

// How the pixels of one axis read a layer: enlarged bilinearly if `each` is 0, else `each` pixels read the same place.
struct Stretch {
    float scale;
    int last, each;

    __device__ Stretch(int places, int pixels, int each = 0)
        : scale((float)places / pixels), last(places - 1), each(each) {}

    __device__ Span at(int pixel) const {
        if (each) return {pixel / each, pixel / each, 0};
        const float position = (pixel + 0.5f) * scale - 0.5f;
        const int before = (int)floorf(position);
        return {clamp(before, 0, last), clamp(before + 1, 0, last), position - before};
    }
};

__device__ float mixed(float first, float second, float part) { return first + part * (second - first); }

// Returns the value of a layer between its places, rounded.
template <typename Layer>
__device__ float enlarged(const Layer &layer, const Span &x, const Span &y) {
    const float upper = mixed(layer.tap(x.first, y.first), layer.tap(x.second, y.first), x.part);
    const float lower = mixed(layer.tap(x.first, y.second), layer.tap(x.second, y.second), x.part);
    return floorf(mixed(upper, lower, y.part) + 0.5f);
}

// An upright mask, enlarged to the size of frames and then put through a ramp. In this order the edge is a smooth
// line, not the steps of the small mask.
struct Mask {
    const float *values;  // 0..1
    int width, height;    // as stored: swapped where the frame lies on its side
    Stretch across, down;
    float gain, bias;  // from the enlarged mask, 0..255, to alpha, see edge.py

    __device__ float tap(int column, int row) const {
        return floorf(values[upright(column, row, width, height)] * 255 + 0.5f);
    }

    __device__ int ramp(float value) const { return clamp((int)rintf(gain * value + bias), 0, 255); }

    __device__ int alpha(const Span &x, const Span &y) const { return ramp(enlarged(*this, x, y)); }

    // Returns the alpha that all pixels of a rectangle have, which is most of a frame; -1 where they differ. `right` and
    // `bottom` are the last ones.
    __device__ int common(int left, int right, int top, int bottom) const {
        const int last = across.at(right).second, lowest = down.at(bottom).second;
        const int first = across.at(left).first, highest = down.at(top).first;
        const int alpha = ramp(tap(first, highest));
        for (int y = highest; y <= lowest; y++)
            for (int x = first; x <= last; x++)
                if (ramp(tap(x, y)) != alpha) return -1;
        return alpha;
    }
};

// Returns the mask of this block's frame (height, width).
__device__ Mask mask_of(const float *masks, int mask_width, int mask_height, int width, int height, float gain,
                        float bias) {
    return Mask{masks + place(0, 0, mask_width, mask_height),
                mask_width, mask_height, {mask_width, width}, {mask_height, height}, gain, bias};
}

// Where the luma samples that share a chroma sample read a layer.
struct Spans {
    Span x[ACROSS], y[DOWN];
};

// Returns these spans for chroma sample (column, row) of a frame (height, width). Samples outside the frame read like
// the last samples inside.
template <typename Layer>
__device__ Spans spans_of(const Layer &layer, int column, int row, int width, int height) {
    Spans found;
    for (int i = 0; i < ACROSS; i++) found.x[i] = layer.across.at(min(ACROSS * column + i, width - 1));
    for (int j = 0; j < DOWN; j++) found.y[j] = layer.down.at(min(DOWN * row + j, height - 1));
    return found;
}

// Alphas of the luma samples that share a chroma sample. Chroma takes the largest alpha, so that a kept pixel keeps
// its luma and its chroma.
struct Alphas {
    int of[DOWN][ACROSS], least, largest;
};

__device__ Alphas alphas_at(const Mask &mask, int column, int row, int width, int height) {
    const Spans spans = spans_of(mask, column, row, width, height);
    Alphas found{{}, 255, 0};
    for (int j = 0; j < DOWN; j++)
        for (int i = 0; i < ACROSS; i++) {
            const int alpha = found.of[j][i] = mask.alpha(spans.x[i], spans.y[j]);
            found.least = min(found.least, alpha), found.largest = max(found.largest, alpha);
        }
    return found;
}

// Returns the mean of a plane over the box that one small pixel covers.
__device__ float mean(const sample *plane, int width, int left, int right, int top, int bottom) {
    int sum = 0;
    for (int row = top; row < bottom; row++)
        for (int column = left; column < right; column++) sum += plane[(long long)row * width + column];
    return (float)sum / ((right - left) * (bottom - top));
}

// Writes the background at reduced size, `target` (N, small_height, small_width, 4): (1 - alpha) * (1, Y, U, V), each
// the mean of a box.
extern "C" __global__ void reduce(const sample *y, const sample *u, const sample *v, int width, int height,
                                  const float *masks, int mask_width, int mask_height, float gain, float bias,
                                  float4 *target, int small_width, int small_height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= small_width || row >= small_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, width, height, gain, bias);
    const int left = (long long)column * width / small_width, right = (long long)(column + 1) * width / small_width;
    const int top = (long long)row * height / small_height, bottom = (long long)(row + 1) * height / small_height;
    const int common = mask.common(left, right - 1, top, bottom - 1);
    float4 &made = target[place(column, row, small_width, small_height)];
    if (common == 255) {
        made = make_float4(0, 0, 0, 0);
        return;
    }
    int sum = common < 0 ? 0 : common * (right - left) * (bottom - top);
    for (int j = top; common < 0 && j < bottom; j++) {
        const Span line = mask.down.at(j);
        for (int i = left; i < right; i++) sum += mask.alpha(mask.across.at(i), line);
    }
    const float weight = 1 - sum / (255.0f * (right - left) * (bottom - top));

    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int l = left >> SHIFT_X, r = max(l + 1, right >> SHIFT_X);
    const int t = top >> SHIFT_Y, b = max(t + 1, bottom >> SHIFT_Y);
    const long long luma = place(0, 0, width, height);
    const long long chroma = place(0, 0, chroma_width, chroma_height);
    made = make_float4(weight, weight * mean(y + luma, width, left, right, top, bottom),
                       weight * mean(u + chroma, chroma_width, l, r, t, b),
                       weight * mean(v + chroma, chroma_width, l, r, t, b));
}

// Writes the small planes of the blurred background, blur(I * (1 - a)) / blur(1 - a), from the blurred result of
// `reduce`.
extern "C" __global__ void divide(const float4 *blurred, sample *y, sample *u, sample *v, int width, int height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const long long i = place(column, row, width, height);
    const float4 sum = blurred[i];
    const float scale = 1 / (sum.x + 1e-6f);  // 0 / 0 without it, far inside the foreground
    y[i] = (sample)(sum.y * scale + 0.5f);
    u[i] = (sample)(sum.z * scale + 0.5f);
    v[i] = (sample)(sum.w * scale + 0.5f);
}

// Writes the mean color of the background, sum(I * (1 - a)) / sum(1 - a), in blocks of `side` x `side` luma samples,
// as small planes (N, small_height, small_width). A block of threads makes one block of the picture.
extern "C" __global__ void pixelate(const sample *y, const sample *u, const sample *v, int width, int height,
                                    const float *masks, int mask_width, int mask_height, float gain, float bias,
                                    int side, sample *small_y, sample *small_u, sample *small_v, int small_width,
                                    int small_height) {
    // Sums of weights and of weighted samples, of luma (0, 1) and chroma (2, 3, 4): each thread's, added up in place.
    __shared__ unsigned long long sums[5][256];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const Mask mask = mask_of(masks, mask_width, mask_height, width, height, gain, bias);
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long luma = place(0, 0, width, height);
    const long long chroma = place(0, 0, chroma_width, chroma_height);
    const int across = side >> SHIFT_X, down = side >> SHIFT_Y;  // chroma samples
    unsigned long long found[5] = {0, 0, 0, 0, 0};
    for (int i = thread; i < across * down; i += threads) {
        const int column = blockIdx.x * across + i % across, row = blockIdx.y * down + i / across;
        if (column >= chroma_width || row >= chroma_height) continue;
        const Alphas alphas = alphas_at(mask, column, row, width, height);
        for (int j = 0; j < DOWN; j++)
            for (int k = 0; k < ACROSS; k++) {
                const int x = ACROSS * column + k, below = DOWN * row + j, weight = 255 - alphas.of[j][k];
                if (x >= width || below >= height) continue;
                found[0] += weight;
                found[1] += weight * y[luma + (long long)below * width + x];
            }
        const long long at = chroma + (long long)row * chroma_width + column;
        const int weight = 255 - alphas.largest;
        found[2] += weight;
        found[3] += weight * u[at];
        found[4] += weight * v[at];
    }
    for (int i = 0; i < 5; i++) sums[i][thread] = found[i];
    for (int half = threads / 2; half; half /= 2) {
        __syncthreads();
        if (thread < half)
            for (auto &parts : sums) parts[thread] += parts[thread + half];
    }
    if (thread) return;
    const long long at = place(blockIdx.x, blockIdx.y, small_width, small_height);
    const float weight = max(sums[0][0], 1ull), chroma_weight = max(sums[2][0], 1ull);  // foreground alone shows none
    small_y[at] = (sample)(sums[1][0] / weight + 0.5f);
    small_u[at] = (sample)(sums[3][0] / chroma_weight + 0.5f);
    small_v[at] = (sample)(sums[4][0] / chroma_weight + 0.5f);
}
