// Brings small pictures of frames to the size of their masks: what tells people apart by their colors.

// Writes `levels` (3, N, height, width of the upright mask): Y, U and V in 8 bits, the samples in the middle of each
// place. Frames are (height, width) as stored, and so is the mask (rows, columns). A thread makes one place.
extern "C" __global__ void colors(const sample *y, const sample *u, const sample *v, int width, int height,
                                  unsigned char *levels, int columns, int rows) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= columns || row >= rows) return;
    const sample *planes[] = {y, u, v};
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const long long size = (long long)columns * rows, there = upright(column, row, columns, rows);
    for (int p = 0; p < 3; p++) {
        const int across = p ? chroma_width : width, down = p ? chroma_height : height;
        const int x = (2 * column + 1) * across / (2 * columns), line = (2 * row + 1) * down / (2 * rows);
        const int level = planes[p][place(x, line, across, down)];
        levels[(p * (long long)gridDim.z + blockIdx.z) * size + there] = sizeof(sample) == 1 ? level : level >> 2;
    }
}
