// Kernels for frames: what CV-CUDA and NVDEC leave over. Behind common.cu, compiled for its values and for
//   SHIFT_X, SHIFT_Y   log2 of the chroma's subsampling: 1, 1 for 4:2:0
//   ROWS               chroma samples below each other that a thread composites
// All planes are (N, height, width) without gaps, one frame of the batch to each blockIdx.z.

// Where sample (column, row) of this block's frame lies in such a plane.
__device__ long long place(int column, int row, int width, int height) {
    return ((long long)blockIdx.z * height + row) * width + column;
}

// Four samples of a row, and two, which are read and written at once.
struct alignas(4 * sizeof(sample)) Four {
    sample value[4];
};
struct alignas(2 * sizeof(sample)) Two {
    sample value[2];
};

// NVDEC's surface, Y above interleaved UV (4:2:0) or above U and V (4:4:4), becomes frame number `frame` of three
// planes. NVDEC keeps 10 bits in the high bits: `shift` is 6 for them, 0 for 8 bits. A thread for four luma samples of
// a row, and for the chroma in the same columns of the surface; one by one where rows don't begin at multiples of four.
extern "C" __global__ void unpack(const sample *surface, long long pitch, sample *y, sample *u, sample *v, int width,
                                  int height, int frame, int shift) {
    const int column = 4 * (blockIdx.x * blockDim.x + threadIdx.x), row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const bool whole = width % 4 == 0 && pitch % 4 == 0 && (size_t)surface % sizeof(Four) == 0;
    auto inside = [&](int i) { return column + i < width; };
    auto read = [&](const sample *source) {
        Four found{};
        if (whole) found = *(const Four *)source;
        for (int i = 0; i < 4; i++) {
            if (!whole && inside(i)) found.value[i] = source[i];
            found.value[i] >>= shift;
        }
        return found;
    };
    auto write = [&](sample *target, const Four &samples) {
        if (whole) *(Four *)target = samples;
        for (int i = 0; i < 4; i++)
            if (!whole && inside(i)) target[i] = samples.value[i];
    };
    write(y + ((long long)frame * height + row) * width + column, read(surface + row * pitch + column));
    const int chroma_width = width >> SHIFT_X, chroma_height = height >> SHIFT_Y;
    if (row >= chroma_height) return;
    const sample *below = surface + (height + row) * pitch + column;
    const long long target = ((long long)frame * chroma_height + row) * chroma_width + (column >> SHIFT_X);
#if SHIFT_X
    const Four uv = read(below);
    if (whole) {
        *(Two *)(u + target) = Two{uv.value[0], uv.value[2]};
        *(Two *)(v + target) = Two{uv.value[1], uv.value[3]};
    }
    for (int i = 0; i < 2; i++)
        if (!whole && inside(2 * i + 1)) u[target + i] = uv.value[2 * i], v[target + i] = uv.value[2 * i + 1];
#else
    write(u + target, read(below));
    write(v + target, read(below + height * pitch));
#endif
}

// The network's input (N, 3, upright height, upright width), of which (target_width, target_height) is the size as
// stored: channel c is (clip(matrix[c] * (Y, U, V, 1), 0, 1) - mean[c]) / std[c], as `scale[c] * rgb + offset[c]`.
struct ToRgb {
    float matrix[3][4], scale[3], offset[3];
};

extern "C" __global__ void preprocess(const sample *y, const sample *u, const sample *v, int width, int height,
                                      const float *luma_across, int luma_columns, const float *luma_down,
                                      int luma_rows, const float *chroma_across, int chroma_columns,
                                      const float *chroma_down, int chroma_rows, float *target, int target_width,
                                      int target_height, const ToRgb *colour) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= target_width || row >= target_height) return;
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long first = place(0, 0, width, height);
    const long long first_chroma = place(0, 0, chroma_width, chroma_height);
    const Axis across{chroma_across, chroma_columns}, down{chroma_down, chroma_rows};
    const float luma = shrunk(y + first, width, {luma_across, luma_columns}, {luma_down, luma_rows}, column, row);
    const float blue = shrunk(u + first_chroma, chroma_width, across, down, column, row);
    const float red = shrunk(v + first_chroma, chroma_width, across, down, column, row);
    const long long size = (long long)target_width * target_height;
    const long long place = upright(column, row, target_width, target_height);
    for (int c = 0; c < 3; c++) {
        const float *m = colour->matrix[c];
        const float value = __saturatef(m[0] * luma + m[1] * blue + m[2] * red + m[3]);
        target[(3 * blockIdx.z + c) * size + place] = colour->scale[c] * value + colour->offset[c];
    }
}

// Where a pixel reads a smaller layer, along one axis: between two of its places.
struct Span {
    int first, second;
    float part;  // of the second
};

// How the pixels of one axis read a layer: enlarged bilinearly, or, unless `each` is 0, that many the same place.
struct Stretch {
    float scale;
    int last, each;

    __device__ Stretch(int places, int pixels, int each = 0)
        : scale((float)places / pixels), last(places - 1), each(each) {}

    __device__ Span at(int pixel) const {
        if (each) return {pixel / each, pixel / each, 0};
        const float place = (pixel + 0.5f) * scale - 0.5f;
        const int before = (int)floorf(place);
        return {clamp(before, 0, last), clamp(before + 1, 0, last), place - before};
    }
};

__device__ float mixed(float first, float second, float part) { return first + part * (second - first); }

// What a layer has between its places, rounded.
template <typename Layer>
__device__ float enlarged(const Layer &layer, const Span &x, const Span &y) {
    const float upper = mixed(layer.tap(x.first, y.first), layer.tap(x.second, y.first), x.part);
    const float lower = mixed(layer.tap(x.first, y.second), layer.tap(x.second, y.second), x.part);
    return floorf(mixed(upper, lower, y.part) + 0.5f);
}

// A mask, upright, that frames (height, width) are composited by: enlarged first, then put through a ramp, so that the
// edge is a smooth line, not the steps of the small mask.
struct Mask {
    const float *values;  // 0..1
    int width, height;    // as stored: those of the upright mask, swapped where the frame lies on its side
    Stretch across, down;
    float gain, bias;  // from the enlarged mask, 0..255, to alpha, see postprocess/edge.py

    __device__ float tap(int column, int row) const {
        return floorf(values[upright(column, row, width, height)] * 255 + 0.5f);
    }

    __device__ int alpha(const Span &x, const Span &y) const {
        return clamp((int)rintf(gain * enlarged(*this, x, y) + bias), 0, 255);
    }
};

__device__ Mask mask_of(const float *masks, int mask_width, int mask_height, int width, int height, float gain,
                        float bias) {
    return Mask{masks + place(0, 0, mask_width, mask_height),
                mask_width, mask_height, {mask_width, width}, {mask_height, height}, gain, bias};
}

// Luma samples that share a chroma sample, across and down.
constexpr int ACROSS = 1 << SHIFT_X, DOWN = 1 << SHIFT_Y;

// Where they read a layer; those outside a frame (height, width), as the last ones in it.
struct Spans {
    Span x[ACROSS], y[DOWN];
};

template <typename Layer>
__device__ Spans spans_of(const Layer &layer, int column, int row, int width, int height) {
    Spans found;
    for (int i = 0; i < ACROSS; i++) found.x[i] = layer.across.at(min(ACROSS * column + i, width - 1));
    for (int j = 0; j < DOWN; j++) found.y[j] = layer.down.at(min(DOWN * row + j, height - 1));
    return found;
}

// Their alphas. Chroma takes the largest, so that a kept pixel keeps both.
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

// Mean of a plane over the box that one small pixel covers.
__device__ float mean(const sample *plane, int width, int left, int right, int top, int bottom) {
    int sum = 0;
    for (int row = top; row < bottom; row++)
        for (int column = left; column < right; column++) sum += plane[(long long)row * width + column];
    return (float)sum / ((right - left) * (bottom - top));
}

// The background at reduced size (N, small_height, small_width, 4): (1 - alpha) * (1, Y, U, V), each a box's mean.
extern "C" __global__ void reduce(const sample *y, const sample *u, const sample *v, int width, int height,
                                  const float *masks, int mask_width, int mask_height, float gain, float bias,
                                  float4 *target, int small_width, int small_height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= small_width || row >= small_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, width, height, gain, bias);
    const int left = (long long)column * width / small_width, right = (long long)(column + 1) * width / small_width;
    const int top = (long long)row * height / small_height, bottom = (long long)(row + 1) * height / small_height;
    int sum = 0;
    for (int j = top; j < bottom; j++) {
        const Span line = mask.down.at(j);
        for (int i = left; i < right; i++) sum += mask.alpha(mask.across.at(i), line);
    }
    const float weight = 1 - sum / (255.0f * (right - left) * (bottom - top));

    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int l = left >> SHIFT_X, r = max(l + 1, right >> SHIFT_X);
    const int t = top >> SHIFT_Y, b = max(t + 1, bottom >> SHIFT_Y);
    const long long luma = place(0, 0, width, height);
    const long long chroma = place(0, 0, chroma_width, chroma_height);
    target[place(column, row, small_width, small_height)] =
        make_float4(weight, weight * mean(y + luma, width, left, right, top, bottom),
                    weight * mean(u + chroma, chroma_width, l, r, t, b),
                    weight * mean(v + chroma, chroma_width, l, r, t, b));
}

// blur(I * (1 - a)) / blur(1 - a): what `reduce` made, blurred, becomes the small planes of the blurred background.
extern "C" __global__ void divide(const float4 *blurred, sample *y, sample *u, sample *v, int width, int height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const long long i = place(column, row, width, height);
    const float4 sum = blurred[i];
    const float scale = 1 / (sum.x + 1e-6f);  // far inside the foreground it is 0 / 0; nothing of it shows
    y[i] = (sample)(sum.y * scale + 0.5f);
    u[i] = (sample)(sum.z * scale + 0.5f);
    v[i] = (sample)(sum.w * scale + 0.5f);
}

// The background in blocks of `side` x `side` luma samples, as small planes (N, small_height, small_width): its mean
// colour sum(I * (1 - a)) / sum(1 - a) in each. One block of threads makes one block of the picture.
extern "C" __global__ void pixelate(const sample *y, const sample *u, const sample *v, int width, int height,
                                    const float *masks, int mask_width, int mask_height, float gain, float bias,
                                    int side, sample *small_y, sample *small_u, sample *small_v, int small_width,
                                    int small_height) {
    __shared__ unsigned long long sums[5];  // of weights and weighted samples, of luma (0, 1) and chroma (2, 3, 4)
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    for (int i = thread; i < 5; i += threads) sums[i] = 0;
    __syncthreads();
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
    for (int i = 0; i < 5; i++) atomicAdd(&sums[i], found[i]);
    __syncthreads();
    if (thread) return;
    const long long at = place(blockIdx.x, blockIdx.y, small_width, small_height);
    const float weight = max(sums[0], 1ull), chroma_weight = max(sums[2], 1ull);  // where there is none, none shows
    small_y[at] = (sample)(sums[1] / weight + 0.5f);
    small_u[at] = (sample)(sums[3] / chroma_weight + 0.5f);
    small_v[at] = (sample)(sums[4] / chroma_weight + 0.5f);
}

// What is behind one of a frame's planes: a plane (1 or N, height, width), enlarged bilinearly (one pixel is a plain
// colour), or with each sample filling a rectangle: itself alone if the plane is as large as the frame's.
struct Behind {
    const sample *plane;
    int width;
    Stretch across, down;

    __device__ float tap(int column, int row) const { return plane[row * width + column]; }
    __device__ float at(int column, int row) const { return enlarged(*this, across.at(column), down.at(row)); }
};

// `side` is what a sample fills of luma in either direction, 0 if the plane is enlarged; all frames may share one.
__device__ Behind luma_behind(const sample *plane, int width, int height, int side, int shared, int luma_width,
                              int luma_height) {
    plane += shared ? 0 : place(0, 0, width, height);
    return {plane, width, {width, luma_width, side}, {height, luma_height, side}};
}

__device__ Behind chroma_behind(const sample *plane, int width, int height, int side, int shared, int chroma_width,
                                int chroma_height) {
    if (side == 1) width = chroma_width, height = chroma_height;
    const int across = side ? max(1, side >> SHIFT_X) : 0, down = side ? max(1, side >> SHIFT_Y) : 0;
    plane += shared ? 0 : place(0, 0, width, height);
    return {plane, width, {width, chroma_width, across}, {height, chroma_height, down}};
}

// (fg * a + bg * (255 - a)) / 255, each product rounded: where a is 255, the foreground bit for bit.
__device__ sample blend(float foreground, float background, int alpha) {
    return (sample)(rintf(foreground * alpha * (1.0f / 255)) + rintf(background * (255 - alpha) * (1.0f / 255)));
}

// One pass over the frame: each thread ROWS chroma samples below each other, and the luma that shares them. `plain`:
// (fy, fu, fv) are one pixel, a colour. `tint`: the kept part is half in the colour of what is behind. Reads are apart
// from writes, and what is kept whole reads nothing behind it.
extern "C" __global__ void composite(const sample *fy, const sample *fu, const sample *fv, int plain, int width,
                                     int height, const float *masks, int mask_width, int mask_height, float gain,
                                     float bias, const sample *by, const sample *bu, const sample *bv, int back_width,
                                     int back_height, int side, int shared, int tint, sample *__restrict__ y,
                                     sample *__restrict__ u, sample *__restrict__ v) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, top = ROWS * (blockIdx.y * blockDim.y + threadIdx.y);
    if (column >= chroma_width) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, width, height, gain, bias);
    const Behind luma = luma_behind(by, back_width, back_height, side, shared, width, height);
    const Behind blue = chroma_behind(bu, back_width, back_height, side, shared, chroma_width, chroma_height);
    const Behind red = chroma_behind(bv, back_width, back_height, side, shared, chroma_width, chroma_height);
    for (int row = top; row < min(chroma_height, top + ROWS); row++) {
        Alphas alphas = alphas_at(mask, column, row, width, height);
        if (tint) {
            auto tinted = [](int alpha) { return (int)rintf(255 - 0.5f * alpha); };
            for (auto &line : alphas.of)
                for (int &alpha : line) alpha = tinted(alpha);
            const int least = tinted(alphas.largest);
            alphas.largest = tinted(alphas.least), alphas.least = least;
        }
        float behind[DOWN][ACROSS] = {}, behind_blue = 0, behind_red = 0;
        if (alphas.least < 255) {
            const Spans spans = spans_of(luma, column, row, width, height);
            for (int j = 0; j < DOWN; j++)
                for (int i = 0; i < ACROSS; i++) behind[j][i] = enlarged(luma, spans.x[i], spans.y[j]);
        }
        if (alphas.largest < 255) {
            const Span across = blue.across.at(column), down = blue.down.at(row);
            behind_blue = enlarged(blue, across, down), behind_red = enlarged(red, across, down);
        }
        for (int j = 0; j < DOWN; j++)
            for (int i = 0; i < ACROSS; i++) {
                const int x = ACROSS * column + i, line = DOWN * row + j;
                if (x >= width || line >= height) continue;
                const long long at = place(x, line, width, height);
                y[at] = blend(plain ? fy[0] : fy[at], behind[j][i], alphas.of[j][i]);
            }
        const long long at = place(column, row, chroma_width, chroma_height);
        u[at] = blend(plain ? fu[0] : fu[at], behind_blue, alphas.largest);
        v[at] = blend(plain ? fv[0] : fv[at], behind_red, alphas.largest);
    }
}

constexpr int PEAK = sizeof(sample) == 1 ? 255 : 1023;

// The share of the foreground in a sample at the edge, `old` being behind it: clip(I - (1 - a) * old, 0, a * peak).
__device__ float share(float value, float old, int alpha) {
    const float rest = fmaxf(0, value - rintf(old * (255 - alpha) * (1.0f / 255)));
    return fminf(rest, rintf(alpha * (PEAK / 255.0f)));
}

// As `composite`, before a background that has nothing to do with the old one, (oy, ou, ov), as `divide` makes it: that
// is taken out of the samples that are mixtures.
extern "C" __global__ void replace(const sample *fy, const sample *fu, const sample *fv, int width, int height,
                                   const float *masks, int mask_width, int mask_height, float gain, float bias,
                                   const sample *oy, const sample *ou, const sample *ov, int old_width, int old_height,
                                   const sample *by, const sample *bu, const sample *bv, int back_width,
                                   int back_height, int side, int shared, sample *__restrict__ y,
                                   sample *__restrict__ u, sample *__restrict__ v) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, width, height, gain, bias);
    const Alphas alphas = alphas_at(mask, column, row, width, height);
    auto replaced = [&](const sample *plane, const Behind &old, const Behind &back, int alpha, int i, int j, int w,
                        int h) {
        const sample value = plane[place(i, j, w, h)];
        if (alpha == 255) return value;
        const float before = alpha ? old.at(i, j) : 0;
        const float fresh = rintf(back.at(i, j) * (255 - alpha) * (1.0f / 255));
        return (sample)fminf(share(value, before, alpha) + fresh, PEAK);
    };
    const Behind old = luma_behind(oy, old_width, old_height, 0, 0, width, height);
    const Behind back = luma_behind(by, back_width, back_height, side, shared, width, height);
    for (int j = 0; j < DOWN; j++)
        for (int i = 0; i < ACROSS; i++) {
            const int x = ACROSS * column + i, line = DOWN * row + j;
            if (x >= width || line >= height) continue;
            y[place(x, line, width, height)] = replaced(fy, old, back, alphas.of[j][i], x, line, width, height);
        }
    const long long at = place(column, row, chroma_width, chroma_height);
    auto replaced_chroma = [&](const sample *plane, const sample *o, const sample *b) {
        return replaced(plane, chroma_behind(o, old_width, old_height, 0, 0, chroma_width, chroma_height),
                        chroma_behind(b, back_width, back_height, side, shared, chroma_width, chroma_height),
                        alphas.largest, column, row, chroma_width, chroma_height);
    };
    u[at] = replaced_chroma(fu, ou, bu);
    v[at] = replaced_chroma(fv, ov, bv);
}

// The foreground's own colours, (I - (1 - a) * old) / a, and its alpha, of the samples' depth; black where alpha is 0.
// With the picture itself as the old background, its colours stay as they are.
extern "C" __global__ void cut_out(const sample *fy, const sample *fu, const sample *fv, int width, int height,
                                   const float *masks, int mask_width, int mask_height, float gain, float bias,
                                   const sample *oy, const sample *ou, const sample *ov, int old_width, int old_height,
                                   int old_side, int black, sample *__restrict__ y, sample *__restrict__ u,
                                   sample *__restrict__ v, sample *__restrict__ opacity) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, width, height, gain, bias);
    const Alphas alphas = alphas_at(mask, column, row, width, height);
    auto own = [&](const sample *plane, const Behind &old, int nothing, int alpha, int i, int j, int w, int h) {
        const sample value = plane[place(i, j, w, h)];
        if (alpha == 255) return value;
        if (alpha == 0) return (sample)nothing;
        const float colour = (value * 255 - old.at(i, j) * (255 - alpha)) / alpha;
        return (sample)rintf(fminf(fmaxf(colour, 0), PEAK));
    };
    const Behind old = luma_behind(oy, old_width, old_height, old_side, 0, width, height);
    for (int j = 0; j < DOWN; j++)
        for (int i = 0; i < ACROSS; i++) {
            const int x = ACROSS * column + i, line = DOWN * row + j, alpha = alphas.of[j][i];
            if (x >= width || line >= height) continue;
            const long long at = place(x, line, width, height);
            y[at] = own(fy, old, black, alpha, x, line, width, height);
            opacity[at] = (sample)rintf(alpha * (PEAK / 255.0f));
        }
    const long long at = place(column, row, chroma_width, chroma_height);
    auto own_chroma = [&](const sample *plane, const sample *o) {
        return own(plane, chroma_behind(o, old_width, old_height, old_side, 0, chroma_width, chroma_height),
                   (PEAK + 1) / 2, alphas.largest, column, row, chroma_width, chroma_height);
    };
    u[at] = own_chroma(fu, ou);
    v[at] = own_chroma(fv, ov);
}

// Chroma at the luma samples that share one, from where H.264 and HEVC place it unless they say otherwise: in the
// columns of even luma samples, and midway between two rows.
struct Tones {
    float of[DOWN][ACROSS];
};

__device__ Tones tones_at(const sample *plane, int column, int row, int width, int height) {
    const int right = min(column + 1, width - 1);
    auto read = [&](int line, int i) {
        const sample *samples = plane + (long long)clamp(line, 0, height - 1) * width;
        return i ? (samples[column] + samples[right]) * 0.5f : samples[column];
    };
    Tones found;
    for (int i = 0; i < ACROSS; i++) {
        const float here = read(row, i);
        for (int j = 0; j < DOWN; j++)
            found.of[j][i] = DOWN == 1 ? here : 0.75f * here + 0.25f * read(j ? row + 1 : row - 1, i);
    }
    return found;
}

struct Matrix {
    float of[3][4];
};

// Planes become RGB pictures (N, 3, height, width) of 8 bits: `matrix` takes (Y, U, V, 1) to 0..255. A thread for each
// chroma sample.
extern "C" __global__ void to_rgb(const sample *y, const sample *u, const sample *v, unsigned char *__restrict__ rgb,
                                  int width, int height, const Matrix matrix) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const long long size = (long long)width * height, chroma = place(0, 0, chroma_width, chroma_height);
    const Tones blue = tones_at(u + chroma, column, row, chroma_width, chroma_height);
    const Tones red = tones_at(v + chroma, column, row, chroma_width, chroma_height);
    for (int j = 0; j < DOWN; j++)
        for (int i = 0; i < ACROSS; i++) {
            if (ACROSS * column + i >= width || DOWN * row + j >= height) continue;
            const long long at = (long long)(DOWN * row + j) * width + ACROSS * column + i;
            const float luma = y[blockIdx.z * size + at];
            for (int c = 0; c < 3; c++) {
                const float *m = matrix.of[c];
                const float value = m[0] * luma + m[1] * blue.of[j][i] + m[2] * red.of[j][i] + m[3];
                rgb[(3 * blockIdx.z + c) * size + at] = (unsigned char)fminf(fmaxf(value + 0.5f, 0), 255);
            }
        }
}
