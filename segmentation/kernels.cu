// Kernels for frames: what CV-CUDA and NVDEC leave over. Behind common.cu, compiled for its values and for
//   SHIFT_X, SHIFT_Y   log2 of the chroma's subsampling: 1, 1 for 4:2:0
// All planes are (N, height, width) without gaps, one frame of the batch to each blockIdx.z.

// NVDEC's surface, Y above interleaved UV (4:2:0) or above U and V (4:4:4), becomes frame number `frame` of three planes.
// NVDEC keeps 10 bits in the high bits: `shift` is 6 for them, 0 for 8 bits.
extern "C" __global__ void unpack(const sample *surface, long long pitch, sample *y, sample *u, sample *v, int width,
                                  int height, int frame, int shift) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    y[((long long)frame * height + row) * width + column] = surface[row * pitch + column] >> shift;
    const int chroma_width = width >> SHIFT_X, chroma_height = height >> SHIFT_Y;
    if (column >= chroma_width || row >= chroma_height) return;
    const sample *below = surface + height * pitch;
    const long long target = ((long long)frame * chroma_height + row) * chroma_width + column;
#if SHIFT_X
    u[target] = below[row * pitch + 2 * column] >> shift;
    v[target] = below[row * pitch + 2 * column + 1] >> shift;
#else
    u[target] = below[row * pitch + column] >> shift;
    v[target] = below[(height + row) * pitch + column] >> shift;
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
    const long long first = (long long)blockIdx.z * width * height;
    const long long first_chroma = (long long)blockIdx.z * chroma_width * chroma_height;
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

// A mask (height, width), upright, that frames are composited by: alpha_at() is its value at a frame's pixel.
struct Mask {
    const float *values;  // 0..1
    int width, height;    // as stored: those of the upright mask, swapped where the frame lies on its side
    float gain, bias;     // from the enlarged mask, 0..255, to alpha, see postprocess/edge.py
};

__device__ float tap(const Mask &mask, int column, int row) {
    return floorf(mask.values[upright(column, row, mask.width, mask.height)] * 255 + 0.5f);
}

// 0..255 at pixel (x, y) of a frame (height, width): enlarged first, then put through the ramp, so that the edge is a
// smooth line, not the steps of the small mask.
__device__ int alpha_at(const Mask &mask, int x, int y, int width, int height) {
    const float column = (x + 0.5f) * mask.width / width - 0.5f, row = (y + 0.5f) * mask.height / height - 0.5f;
    const int left = (int)floorf(column), top = (int)floorf(row);
    const float right_part = column - left, bottom_part = row - top;
    const int c0 = clamp(left, 0, mask.width - 1), c1 = clamp(left + 1, 0, mask.width - 1);
    const int r0 = clamp(top, 0, mask.height - 1), r1 = clamp(top + 1, 0, mask.height - 1);
    const float above = tap(mask, c0, r0) + right_part * (tap(mask, c1, r0) - tap(mask, c0, r0));
    const float below = tap(mask, c0, r1) + right_part * (tap(mask, c1, r1) - tap(mask, c0, r1));
    const float large = floorf(above + bottom_part * (below - above) + 0.5f);
    return clamp((int)rintf(mask.gain * large + mask.bias), 0, 255);
}

__device__ Mask mask_of(const float *masks, int width, int height, float gain, float bias) {
    return Mask{masks + (long long)blockIdx.z * width * height, width, height, gain, bias};
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
    const Mask mask = mask_of(masks, mask_width, mask_height, gain, bias);
    const int left = (long long)column * width / small_width, right = (long long)(column + 1) * width / small_width;
    const int top = (long long)row * height / small_height, bottom = (long long)(row + 1) * height / small_height;
    int sum = 0;
    for (int j = top; j < bottom; j++)
        for (int i = left; i < right; i++) sum += alpha_at(mask, i, j, width, height);
    const float weight = 1 - sum / (255.0f * (right - left) * (bottom - top));

    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int l = left >> SHIFT_X, r = max(l + 1, right >> SHIFT_X);
    const int t = top >> SHIFT_Y, b = max(t + 1, bottom >> SHIFT_Y);
    const long long luma = (long long)blockIdx.z * width * height;
    const long long chroma = (long long)blockIdx.z * chroma_width * chroma_height;
    target[((long long)blockIdx.z * small_height + row) * small_width + column] =
        make_float4(weight, weight * mean(y + luma, width, left, right, top, bottom),
                    weight * mean(u + chroma, chroma_width, l, r, t, b),
                    weight * mean(v + chroma, chroma_width, l, r, t, b));
}

// blur(I * (1 - a)) / blur(1 - a): what `reduce` made, blurred, becomes the small planes of the blurred background.
extern "C" __global__ void divide(const float4 *blurred, sample *y, sample *u, sample *v, int width, int height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const long long i = ((long long)blockIdx.z * height + row) * width + column;
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
    const Mask mask = mask_of(masks, mask_width, mask_height, gain, bias);
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long luma = (long long)blockIdx.z * width * height;
    const long long chroma = (long long)blockIdx.z * chroma_width * chroma_height;
    const int across = side >> SHIFT_X, down = side >> SHIFT_Y;  // chroma samples
    unsigned long long found[5] = {0, 0, 0, 0, 0};
    for (int i = thread; i < across * down; i += threads) {
        const int column = blockIdx.x * across + i % across, row = blockIdx.y * down + i / across;
        if (column >= chroma_width || row >= chroma_height) continue;
        int largest = 0;
        for (int j = row << SHIFT_Y; j < min(height, (row + 1) << SHIFT_Y); j++)
            for (int k = column << SHIFT_X; k < min(width, (column + 1) << SHIFT_X); k++) {
                const int alpha = alpha_at(mask, k, j, width, height);
                largest = max(largest, alpha);
                found[0] += 255 - alpha;
                found[1] += (255 - alpha) * y[luma + (long long)j * width + k];
            }
        const long long at = chroma + (long long)row * chroma_width + column;
        found[2] += 255 - largest;
        found[3] += (255 - largest) * u[at];
        found[4] += (255 - largest) * v[at];
    }
    for (int i = 0; i < 5; i++) atomicAdd(&sums[i], found[i]);
    __syncthreads();
    if (thread) return;
    const long long at = ((long long)blockIdx.z * small_height + blockIdx.y) * small_width + blockIdx.x;
    const float weight = max(sums[0], 1ull), chroma_weight = max(sums[2], 1ull);  // where there is none, none shows
    small_y[at] = (sample)(sums[1] / weight + 0.5f);
    small_u[at] = (sample)(sums[3] / chroma_weight + 0.5f);
    small_v[at] = (sample)(sums[4] / chroma_weight + 0.5f);
}

// What is behind: planes (1 or N, height, width), enlarged bilinearly (one pixel is a plain colour), or each sample
// filling a rectangle. For those as large as the frame, that is one sample.
struct Background {
    long long stride;  // samples from one frame's to the next; 0 where all frames share one
    int width, height;
    int across, down;  // samples that one fills; 0: enlarged bilinearly
};

// `side` is what a sample fills of luma, in either direction, or 0.
__device__ Background luma_of(int width, int height, int side, int shared) {
    return Background{shared ? 0 : (long long)width * height, width, height, side, side};
}

__device__ Background chroma_of(const Background &luma, int chroma_width, int chroma_height) {
    if (luma.across > 1) return {luma.stride, luma.width, luma.height, luma.across >> SHIFT_X, luma.down >> SHIFT_Y};
    if (luma.across == 0) return luma;
    return {luma.stride ? (long long)chroma_width * chroma_height : 0, chroma_width, chroma_height, 1, 1};
}

// The background at position (x, y) of a plane (height, width).
__device__ float behind(const sample *plane, const Background &back, int x, int y, int width, int height) {
    plane += blockIdx.z * back.stride;
    if (back.across) return plane[(long long)(y / back.down) * back.width + x / back.across];
    const float column = (x + 0.5f) * back.width / width - 0.5f, row = (y + 0.5f) * back.height / height - 0.5f;
    const int left = (int)floorf(column), top = (int)floorf(row);
    const int c0 = clamp(left, 0, back.width - 1), c1 = clamp(left + 1, 0, back.width - 1);
    const sample *above = plane + clamp(top, 0, back.height - 1) * back.width;
    const sample *below = plane + clamp(top + 1, 0, back.height - 1) * back.width;
    const float part = column - left;
    const float upper = above[c0] + part * (above[c1] - above[c0]), lower = below[c0] + part * (below[c1] - below[c0]);
    return floorf(upper + (row - top) * (lower - upper) + 0.5f);
}

// (fg * a + bg * (255 - a)) / 255, each product rounded: where a is 255, the foreground bit for bit.
__device__ sample blend(float foreground, float background, int alpha) {
    return (sample)(rintf(foreground * alpha * (1.0f / 255)) + rintf(background * (255 - alpha) * (1.0f / 255)));
}

// One pass over the frame: each thread one chroma sample and the luma that shares it. Chroma takes the largest alpha of
// its luma, so that a kept pixel keeps both. `plain`: (fy, fu, fv) are one pixel, a colour.
extern "C" __global__ void composite(const sample *fy, const sample *fu, const sample *fv, int plain, int width,
                                     int height, const float *masks, int mask_width, int mask_height, float gain,
                                     float bias, const sample *by, const sample *bu, const sample *bv, int back_width,
                                     int back_height, int side, int shared, int tint, sample *y, sample *u, sample *v) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, gain, bias);
    const Background back = luma_of(back_width, back_height, side, shared);
    const Background back_chroma = chroma_of(back, chroma_width, chroma_height);
    const long long luma = (long long)blockIdx.z * width * height;
    int largest = 0;
    for (int j = row << SHIFT_Y; j < min(height, (row + 1) << SHIFT_Y); j++)
        for (int i = column << SHIFT_X; i < min(width, (column + 1) << SHIFT_X); i++) {
            int alpha = alpha_at(mask, i, j, width, height);
            if (tint) alpha = (int)rintf(255 - 0.5f * alpha);  // overlay: the kept part half in the tint's colour
            largest = max(largest, alpha);
            const long long at = luma + (long long)j * width + i;
            y[at] = blend(plain ? fy[0] : fy[at], alpha == 255 ? 0 : behind(by, back, i, j, width, height), alpha);
        }
    const long long at = ((long long)blockIdx.z * chroma_height + row) * chroma_width + column;
    const bool kept = largest == 255;
    const float back_u = kept ? 0 : behind(bu, back_chroma, column, row, chroma_width, chroma_height);
    const float back_v = kept ? 0 : behind(bv, back_chroma, column, row, chroma_width, chroma_height);
    u[at] = blend(plain ? fu[0] : fu[at], back_u, largest);
    v[at] = blend(plain ? fv[0] : fv[at], back_v, largest);
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
                                   int back_height, int side, int shared, sample *y, sample *u, sample *v) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, gain, bias);
    const Background old = luma_of(old_width, old_height, 0, 0), back = luma_of(back_width, back_height, side, shared);
    const Background back_chroma = chroma_of(back, chroma_width, chroma_height);
    auto replaced = [&](const sample *f, const sample *o, const sample *b, const Background &fresh_planes, int alpha,
                        int i, int j, int w, int h) {
        const float value = f[((long long)blockIdx.z * h + j) * w + i];
        if (alpha == 255) return (sample)value;
        const float before = alpha ? behind(o, old, i, j, w, h) : 0;
        const float fresh = rintf(behind(b, fresh_planes, i, j, w, h) * (255 - alpha) * (1.0f / 255));
        return (sample)fminf(share(value, before, alpha) + fresh, PEAK);
    };
    int largest = 0;
    for (int j = row << SHIFT_Y; j < min(height, (row + 1) << SHIFT_Y); j++)
        for (int i = column << SHIFT_X; i < min(width, (column + 1) << SHIFT_X); i++) {
            const int alpha = alpha_at(mask, i, j, width, height);
            largest = max(largest, alpha);
            y[((long long)blockIdx.z * height + j) * width + i] =
                replaced(fy, oy, by, back, alpha, i, j, width, height);
        }
    const long long at = ((long long)blockIdx.z * chroma_height + row) * chroma_width + column;
    u[at] = replaced(fu, ou, bu, back_chroma, largest, column, row, chroma_width, chroma_height);
    v[at] = replaced(fv, ov, bv, back_chroma, largest, column, row, chroma_width, chroma_height);
}

// The foreground's own colours, (I - (1 - a) * old) / a, and its alpha, of the samples' depth; black where alpha is 0.
// With the picture itself as the old background, its colours stay as they are.
extern "C" __global__ void cut_out(const sample *fy, const sample *fu, const sample *fv, int width, int height,
                                   const float *masks, int mask_width, int mask_height, float gain, float bias,
                                   const sample *oy, const sample *ou, const sample *ov, int old_width, int old_height,
                                   int old_side, int black, sample *y, sample *u, sample *v, sample *opacity) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height, gain, bias);
    const Background old_luma = luma_of(old_width, old_height, old_side, 0);
    const Background old_chroma = chroma_of(old_luma, chroma_width, chroma_height);
    auto own = [&](const sample *f, const sample *o, const Background &old, int nothing, int alpha, int i, int j, int w,
                   int h) {
        const float value = f[((long long)blockIdx.z * h + j) * w + i];
        if (alpha == 255) return (sample)value;
        if (alpha == 0) return (sample)nothing;
        const float colour = (value * 255 - behind(o, old, i, j, w, h) * (255 - alpha)) / alpha;
        return (sample)rintf(fminf(fmaxf(colour, 0), PEAK));
    };
    int largest = 0;
    for (int j = row << SHIFT_Y; j < min(height, (row + 1) << SHIFT_Y); j++)
        for (int i = column << SHIFT_X; i < min(width, (column + 1) << SHIFT_X); i++) {
            const int alpha = alpha_at(mask, i, j, width, height);
            largest = max(largest, alpha);
            const long long at = ((long long)blockIdx.z * height + j) * width + i;
            y[at] = own(fy, oy, old_luma, black, alpha, i, j, width, height);
            opacity[at] = (sample)rintf(alpha * (PEAK / 255.0f));
        }
    const long long at = ((long long)blockIdx.z * chroma_height + row) * chroma_width + column;
    const int zero = (PEAK + 1) / 2;
    u[at] = own(fu, ou, old_chroma, zero, largest, column, row, chroma_width, chroma_height);
    v[at] = own(fv, ov, old_chroma, zero, largest, column, row, chroma_width, chroma_height);
}

// Chroma at pixel (x, y) of a frame (height, width), from where H.264 and HEVC place it unless they say otherwise: in the
// columns of even luma samples, and midway between two rows.
__device__ float chroma_at(const sample *plane, int x, int y, int chroma_width, int chroma_height) {
    const int column = x >> SHIFT_X, row = y >> SHIFT_Y;
    const int right = SHIFT_X && (x & 1) ? min(column + 1, chroma_width - 1) : column;
    const sample *near = plane + (long long)row * chroma_width;
    const float here = (near[column] + near[right]) * 0.5f;
    if (!SHIFT_Y) return here;
    const sample *far = plane + (long long)clamp(y & 1 ? row + 1 : row - 1, 0, chroma_height - 1) * chroma_width;
    return 0.75f * here + 0.25f * (far[column] + far[right]) * 0.5f;
}

// Planes become RGB pictures (N, 3, height, width) of 8 bits: `matrix` (3, 4) takes (Y, U, V, 1) to 0..255.
extern "C" __global__ void to_rgb(const sample *y, const sample *u, const sample *v, unsigned char *rgb, int width,
                                  int height, const float *matrix) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long size = (long long)width * height, at = (long long)row * width + column;
    const long long chroma = (long long)blockIdx.z * chroma_width * chroma_height;
    const float luma = y[blockIdx.z * size + at];
    const float blue = chroma_at(u + chroma, column, row, chroma_width, chroma_height);
    const float red = chroma_at(v + chroma, column, row, chroma_width, chroma_height);
    for (int c = 0; c < 3; c++) {
        const float *m = matrix + 4 * c;
        const float value = m[0] * luma + m[1] * blue + m[2] * red + m[3];
        rgb[(3 * blockIdx.z + c) * size + at] = (unsigned char)fminf(fmaxf(value + 0.5f, 0), 255);
    }
}
