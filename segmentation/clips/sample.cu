// Makes one frame of a batch of clips from a surface of NVDEC: cropped, scaled, upright, mirrored, as numbers.

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

// The surface has Y above interleaved UV, `height` rows below, with `pitch` samples a row. `shift` is 6 for 10 bits,
// which NVDEC keeps in the high bits, 0 for 8 bits. (width, rows) is the target's size as stored. `bytes` of an element:
// 1 (uint8), 2 (float16) or 4 (float32). The frame begins at element `first` of the batch; so many elements lie between
// channels, rows and columns, so that any layout is possible. A thread makes one pixel.
extern "C" __global__ void clip_sample(const sample *surface, long long pitch, int height, int shift,
                                       const float *luma_across, int luma_columns, const float *luma_down,
                                       int luma_rows, const float *chroma_across, int chroma_columns,
                                       const float *chroma_down, int chroma_rows, int width, int rows, int mirrored,
                                       const ToLevels *levels, const unsigned char *elements, int bytes,
                                       unsigned char *batch, long long first, long long over_channel,
                                       long long over_row, long long over_column) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= rows) return;
    const sample *chroma = surface + height * pitch;
    const Axis across{chroma_across, chroma_columns}, down{chroma_down, chroma_rows};
    const float y = mean(surface, pitch, 1, shift, {luma_across, luma_columns}, {luma_down, luma_rows}, column, row);
    const float u = mean(chroma, pitch, 2, shift, across, down, column, row);
    const float v = mean(chroma + 1, pitch, 2, shift, across, down, column, row);
    const int upright_width = TURNS % 2 ? rows : width;
    const int at = upright(column, row, width, rows);
    const int to_row = at / upright_width, plain = at % upright_width;
    const int to_column = mirrored ? upright_width - 1 - plain : plain;
    for (int c = 0; c < 3; c++) {
        const float *m = levels->matrix[c];
        const int level = (int)(255 * __saturatef(m[0] * y + m[1] * u + m[2] * v + m[3]) + 0.5f);
        const long long to = first + c * over_channel + to_row * over_row + to_column * over_column;
        for (int i = 0; i < bytes; i++) batch[to * bytes + i] = elements[(c * 256 + level) * bytes + i];
    }
}
