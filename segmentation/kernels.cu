// The project's own kernels: what CV-CUDA and NVDEC leave over. Compiled when first needed (see gpu.py) for
//   SAMPLE   unsigned char (8 bits) or unsigned short (10 bits, in the low bits)
//   SHIFT_X, SHIFT_Y   log2 of the chroma's subsampling: 1, 1 for 4:2:0
//   TURNS    quarter turns, counter-clockwise, that stand a stored frame upright
// All planes are (N, height, width) without gaps, one frame of the batch to each blockIdx.z.

using sample = SAMPLE;

__device__ int clamp(int value, int low, int high) { return min(max(value, low), high); }

// Where pixel (column, row) of a stored picture (height, width) lies when the picture stands upright.
__device__ long long upright(int column, int row, int width, int height) {
#if TURNS == 0
    return (long long)row * width + column;
#elif TURNS == 1
    return (long long)(width - 1 - column) * height + row;
#elif TURNS == 2
    return (long long)(height - 1 - row) * width + (width - 1 - column);
#else
    return (long long)column * height + (height - 1 - row);
#endif
}

// NVDEC's surface, Y above interleaved UV (4:2:0) or above U and V (4:4:4), becomes three planes.
// NVDEC keeps 10 bits in the high bits: `shift` is 6 for them, 0 for 8 bits.
extern "C" __global__ void unpack(const sample *surface, long long pitch, sample *y, sample *u, sample *v, int width,
                                  int height, int shift) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    y[(long long)row * width + column] = surface[row * pitch + column] >> shift;
    const int chroma_width = width >> SHIFT_X, chroma_height = height >> SHIFT_Y;
    if (column >= chroma_width || row >= chroma_height) return;
    const sample *below = surface + height * pitch;
    const long long target = (long long)row * chroma_width + column;
#if SHIFT_X
    u[target] = below[row * pitch + 2 * column] >> shift;
    v[target] = below[row * pitch + 2 * column + 1] >> shift;
#else
    u[target] = below[row * pitch + column] >> shift;
    v[target] = below[(height + row) * pitch + column] >> shift;
#endif
}

// What a plane is shrunk by along one axis (preprocess/tables.py): for each place a row of the number of the first sample
// that it reads, then the weights of `taps` samples from that one on.
struct Axis {
    const float *rows;
    int taps;
};

// The pixel (column, row) of a plane that is shrunk by `across` and `down`.
__device__ float shrunk(const sample *plane, int width, const Axis &across, const Axis &down, int column, int row) {
    const float *weights = across.rows + column * (across.taps + 1), *lines = down.rows + row * (down.taps + 1);
    const sample *line = plane + (long long)lines[0] * width + (int)weights[0];
    float sum = 0;
    for (int j = 1; j <= down.taps; j++, line += width) {
        float part = 0;
        for (int i = 1; i <= across.taps; i++) part += weights[i] * line[i - 1];
        sum += lines[j] * part;
    }
    return sum;
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
};

__device__ float tap(const Mask &mask, int column, int row) {
    return floorf(mask.values[upright(column, row, mask.width, mask.height)] * 255 + 0.5f);
}

// 0..255 at pixel (x, y) of a frame (height, width): enlarged first, then sharpened (1/4 is 0, 3/4 is 255), so that the
// edge is a smooth line, not the steps of the small mask.
__device__ int alpha_at(const Mask &mask, int x, int y, int width, int height) {
    const float column = (x + 0.5f) * mask.width / width - 0.5f, row = (y + 0.5f) * mask.height / height - 0.5f;
    const int left = (int)floorf(column), top = (int)floorf(row);
    const float right_part = column - left, bottom_part = row - top;
    const int c0 = clamp(left, 0, mask.width - 1), c1 = clamp(left + 1, 0, mask.width - 1);
    const int r0 = clamp(top, 0, mask.height - 1), r1 = clamp(top + 1, 0, mask.height - 1);
    const float above = tap(mask, c0, r0) + right_part * (tap(mask, c1, r0) - tap(mask, c0, r0));
    const float below = tap(mask, c0, r1) + right_part * (tap(mask, c1, r1) - tap(mask, c0, r1));
    const int large = (int)floorf(above + bottom_part * (below - above) + 0.5f);
    return clamp(2 * (large - 64), 0, 255);
}

__device__ Mask mask_of(const float *masks, int width, int height) {
    return Mask{masks + (long long)blockIdx.z * width * height, width, height};
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
                                  const float *masks, int mask_width, int mask_height, float4 *target, int small_width,
                                  int small_height) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= small_width || row >= small_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height);
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

// A background of small planes (1 or N, height, width): one pixel is a plain colour.
struct Background {
    const sample *y, *u, *v;
    long long stride;  // samples from one frame's to the next; 0 where all frames share one
    int width, height;
};

// The background at position (x, y) of a plane (height, width), enlarged bilinearly.
__device__ float behind(const sample *plane, const Background &small, int x, int y, int width, int height) {
    const float column = (x + 0.5f) * small.width / width - 0.5f, row = (y + 0.5f) * small.height / height - 0.5f;
    const int left = (int)floorf(column), top = (int)floorf(row);
    const int c0 = clamp(left, 0, small.width - 1), c1 = clamp(left + 1, 0, small.width - 1);
    const sample *above = plane + clamp(top, 0, small.height - 1) * small.width;
    const sample *below = plane + clamp(top + 1, 0, small.height - 1) * small.width;
    const float part = column - left;
    const float upper = above[c0] + part * (above[c1] - above[c0]), lower = below[c0] + part * (below[c1] - below[c0]);
    return floorf(upper + (row - top) * (lower - upper) + 0.5f);
}

// (fg * a + bg * (255 - a)) / 255, each product rounded: where a is 255, the foreground bit for bit.
__device__ sample blend(float foreground, float background, int alpha) {
    return (sample)(rintf(foreground * alpha * (1.0f / 255)) + rintf(background * (255 - alpha) * (1.0f / 255)));
}

// One pass over the frame: each thread one chroma sample and the luma that shares it. Chroma takes the largest alpha of
// its luma, so that a kept pixel keeps both. `foreground` of (y, u, v) planes with stride 0 and one pixel is a colour.
extern "C" __global__ void composite(const sample *fy, const sample *fu, const sample *fv, int plain, int width,
                                     int height, const float *masks, int mask_width, int mask_height,
                                     const sample *by, const sample *bu, const sample *bv, long long background_stride,
                                     int background_width, int background_height, int tint, sample *y, sample *u,
                                     sample *v) {
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= chroma_width || row >= chroma_height) return;
    const Mask mask = mask_of(masks, mask_width, mask_height);
    const Background small{by, bu, bv, background_stride, background_width, background_height};
    const long long skip = blockIdx.z * background_stride, luma = (long long)blockIdx.z * width * height;
    int largest = 0;
    for (int j = row << SHIFT_Y; j < min(height, (row + 1) << SHIFT_Y); j++)
        for (int i = column << SHIFT_X; i < min(width, (column + 1) << SHIFT_X); i++) {
            int alpha = alpha_at(mask, i, j, width, height);
            if (tint) alpha = (int)rintf(255 - 0.5f * alpha);  // overlay: the kept part half in the tint's colour
            largest = max(largest, alpha);
            const long long at = luma + (long long)j * width + i;
            const float back = alpha == 255 ? 0 : behind(small.y + skip, small, i, j, width, height);
            y[at] = blend(plain ? fy[0] : fy[at], back, alpha);
        }
    const long long at = ((long long)blockIdx.z * chroma_height + row) * chroma_width + column;
    const bool kept = largest == 255;
    const float back_u = kept ? 0 : behind(small.u + skip, small, column, row, chroma_width, chroma_height);
    const float back_v = kept ? 0 : behind(small.v + skip, small, column, row, chroma_width, chroma_height);
    u[at] = blend(plain ? fu[0] : fu[at], back_u, largest);
    v[at] = blend(plain ? fv[0] : fv[at], back_v, largest);
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
