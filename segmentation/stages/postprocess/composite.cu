// Composites frames with what is behind them, in one pass over the frame for each effect. Follows background.cu, and is
// compiled for
//   ROWS   chroma samples below each other that a thread of `composite` makes

// The plane (1 or N, height, width) behind a plane of a frame. It is enlarged bilinearly (one pixel is a plain color),
// or each of its samples fills a rectangle.
struct Behind {
    const sample *plane;
    int width;
    Stretch across, down;

    __device__ float tap(int column, int row) const { return plane[row * width + column]; }
    __device__ float at(int column, int row) const { return enlarged(*this, across.at(column), down.at(row)); }
};

// Returns what is behind luma. `side` is the width of the rectangle that a sample fills, in luma samples, 0 if the
// plane is enlarged. If `shared`, all frames have the same plane behind them.
__device__ Behind luma_behind(const sample *plane, int width, int height, int side, int shared, int luma_width,
                              int luma_height) {
    plane += shared ? 0 : place(0, 0, width, height);
    return {plane, width, {width, luma_width, side}, {height, luma_height, side}};
}

// Returns what is behind a chroma plane, likewise.
__device__ Behind chroma_behind(const sample *plane, int width, int height, int side, int shared, int chroma_width,
                                int chroma_height) {
    if (side == 1) width = chroma_width, height = chroma_height;
    const int across = side ? max(1, side >> SHIFT_X) : 0, down = side ? max(1, side >> SHIFT_Y) : 0;
    plane += shared ? 0 : place(0, 0, width, height);
    return {plane, width, {width, chroma_width, across}, {height, chroma_height, down}};
}

// Returns (fg * a + bg * (255 - a)) / 255, with each product rounded: where a is 255, the foreground bit for bit.
__device__ sample blend(float foreground, float background, int alpha) {
    return (sample)(rintf(foreground * alpha * (1.0f / 255)) + rintf(background * (255 - alpha) * (1.0f / 255)));
}

// Composites (fy, fu, fv) with what is behind them. A thread makes ROWS chroma samples below each other, and the luma
// samples that share them. If `plain`, (fy, fu, fv) are one pixel, a color. If `tint`, the kept part takes half its
// color from behind. Where alpha is 255, nothing behind is read.
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

// Returns the foreground's share of a sample at the edge: clip(I - (1 - a) * old, 0, a * peak), with `old` behind it.
__device__ float share(float value, float old, int alpha) {
    const float rest = fmaxf(0, value - rintf(old * (255 - alpha) * (1.0f / 255)));
    return fminf(rest, rintf(alpha * (PEAK / 255.0f)));
}

// Composites as `composite`, with a background of another picture. The old background (oy, ou, ov), made by `divide`,
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

// Writes the foreground's own colors, (I - (1 - a) * old) / a, black where alpha is 0, and alpha in the samples'
// depth. With the picture itself as the old background, its colors stay as they are.
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
        const float color = (value * 255 - old.at(i, j) * (255 - alpha)) / alpha;
        return (sample)rintf(fminf(fmaxf(color, 0), PEAK));
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
