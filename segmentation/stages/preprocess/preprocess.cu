// Makes the network's input from the planes of frames.

// The color conversion of `preprocess`, see `to_input` of cuda.py. With rgb = clip(matrix * (Y, U, V, 1), 0, 1),
// channel c is (rgb[c] - mean[c]) / std[c], written as scale[c] * rgb[c] + offset[c].
struct ToRgb {
    float matrix[3][4], scale[3], offset[3];
};

// Returns channel c of the network's input for a pixel.
__device__ float input_value(const ToRgb &color, int c, float luma, float blue, float red) {
    const float *m = color.matrix[c];
    return color.scale[c] * __saturatef(m[0] * luma + m[1] * blue + m[2] * red + m[3]) + color.offset[c];
}

// Writes frames to a place in the network's input `target` (N, 3, input_height, input_width), which begins at (left, top)
// and is (place_height, place_width) as the frames are stored. Each pair of tables is an `Axis`. A thread makes one
// pixel.
extern "C" __global__ void preprocess(const sample *y, const sample *u, const sample *v, int width, int height,
                                      const float *luma_across, int luma_columns, const float *luma_down,
                                      int luma_rows, const float *chroma_across, int chroma_columns,
                                      const float *chroma_down, int chroma_rows, float *target, int input_width,
                                      int input_height, int left, int top, int place_width, int place_height,
                                      const ToRgb *color) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= place_width || row >= place_height) return;
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long first = place(0, 0, width, height);
    const long long first_chroma = place(0, 0, chroma_width, chroma_height);
    const Axis across{chroma_across, chroma_columns}, down{chroma_down, chroma_rows};
    const float luma = shrunk(y + first, width, {luma_across, luma_columns}, {luma_down, luma_rows}, column, row);
    const float blue = shrunk(u + first_chroma, chroma_width, across, down, column, row);
    const float red = shrunk(v + first_chroma, chroma_width, across, down, column, row);
    const long long size = (long long)input_width * input_height;
    const int pixel = upright(column, row, place_width, place_height);  // in the place
    const int across_place = TURNS % 2 == 0 ? place_width : place_height;
    const long long place = (long long)(top + pixel / across_place) * input_width + left + pixel % across_place;
    for (int c = 0; c < 3; c++) {
        target[(3 * blockIdx.z + c) * size + place] = input_value(*color, c, luma, blue, red);
    }
}
