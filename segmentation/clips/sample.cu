// Makes one frame of a clip from a decoded picture: cropped, scaled, upright, mirrored, as numbers.

// Channel c is the element (3, 256) at the level round(255 * clip(matrix * (Y, U, V, 1), 0, 1)). The matrix makes RGB,
// or only brings the stream's own numbers to 0..1.
struct ToLevels {
    float matrix[3][4];
};

// Returns the mean of a plane's samples at (column, row) of the target. `step` is 2 for interleaved chroma.
__device__ float mean(const sample *plane, long long pitch, int step, int shift, const Axis &across, const Axis &down,
                      int column, int row) {
    const float *weights = across.rows + column * (across.taps + 1), *lines = down.rows + row * (down.taps + 1);
    const sample *line = plane + (long long)lines[0] * pitch + step * (int)weights[0];
    float sum = 0;
    for (int j = 1; j <= down.taps; j++, line += pitch) {
        float part = 0;
        for (int i = 1; i <= across.taps; i++) part += weights[i] * (line[step * (i - 1)] >> shift);
        sum += lines[j] * part;
    }
    return sum;
}

// y, u and v point to the first samples of the window, in rows of `pitch` and `chroma_pitch` samples; `step` is 2 where
// u and v are interleaved. `shift` is 6 for 10 bits in the high bits, as NVDEC's surfaces have them, else 0.
// (width, rows) is the target's size as stored. Each pair of tables is an `Axis`. `bytes` of an element: 1 (uint8), 2 (float16) or 4 (float32). The
// frame (3, upright height, upright width) begins at element `first` of the clip. A thread makes one pixel.
extern "C" __global__ void clip_sample(const sample *y, const sample *u, const sample *v, long long pitch,
                                       long long chroma_pitch, int step, int shift,
                                       const float *luma_across, int luma_columns, const float *luma_down,
                                       int luma_rows, const float *chroma_across, int chroma_columns,
                                       const float *chroma_down, int chroma_rows, int width, int rows, int mirrored,
                                       ToLevels levels, const unsigned char *elements, int bytes, unsigned char *clip,
                                       long long first) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= rows) return;
    const Axis across{chroma_across, chroma_columns}, down{chroma_down, chroma_rows};
    const float luma = mean(y, pitch, 1, shift, {luma_across, luma_columns}, {luma_down, luma_rows}, column, row);
    const float blue = mean(u, chroma_pitch, step, shift, across, down, column, row);
    const float red = mean(v, chroma_pitch, step, shift, across, down, column, row);
    const int upright_width = TURNS % 2 ? rows : width;
    const int at = upright(column, row, width, rows);
    const int from_left = at % upright_width;
    const int place = mirrored ? at - from_left + upright_width - 1 - from_left : at;
    for (int c = 0; c < 3; c++) {
        const float *m = levels.matrix[c];
        const int level = (int)(255 * __saturatef(m[0] * luma + m[1] * blue + m[2] * red + m[3]) + 0.5f);
        const int from = 256 * c + level;
        const long long to = first + (long long)c * width * rows + place;
        if (bytes == 1) clip[to] = elements[from];
        else if (bytes == 2) ((unsigned short *)clip)[to] = ((const unsigned short *)elements)[from];
        else ((unsigned *)clip)[to] = ((const unsigned *)elements)[from];
    }
}
