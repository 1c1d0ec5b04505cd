// How the programs that work on masks read layers (height, width) without gaps.

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
