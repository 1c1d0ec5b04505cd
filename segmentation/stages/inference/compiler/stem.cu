// The first convolution of a network, with bias and bounds: x is (N, PLANES, height, width) in FP32, as pictures come,
// `taps` are those of stem.py and `out` is (N, rows, columns, channels), in FP16. Channels are a multiple of EIGHT. With
// `mirrored` the picture's columns count from the right. network_kernels.py has the constants. What it reads is rounded
// to FP16, as the other layers' input is, and is to be finite: some of it is multiplied by zero.
// cuDNN wants the picture in FP16 and channels last first, which takes half as long as its convolution.

// Two pixels beside each other are a word. A place reads two words of a row, of which the last pixel counts for nothing:
// as places are two pixels apart, they read words of the picture as these lie.
static_assert(STRIDE == 2 && SIDE == 3, "a place begins with a word, and reads two of each row");
const int ROWS = PLANES * SIDE;                     // that a place reads
const int STEPS = (ROWS + 3) / 4;                   // products of 16 numbers, four rows each
const int WORDS = MADE_X + 1;                       // of a row of a tile
const int PITCH = (WORDS + 15) / 32 * 32 + 16;      // words from row to row: the rows of a warp then differ in their banks
const int LINES = STRIDE * MADE_Y + SIDE - STRIDE;  // of a plane of a tile

// Returns two pixels of a row of the picture, zeros where there is none.
__device__ unsigned pixels(const float *row, int column, int width, bool there, bool mirrored) {
    const int at = mirrored ? width - 1 - column : column, step = mirrored ? -1 : 1;
    const float one = there && column >= 0 && column < width ? row[at] : 0;
    const float other = there && column + 1 >= 0 && column + 1 < width ? row[at + step] : 0;
    return both_narrowed(one, other);
}

// Reads the words of a line of a tile that begins at (left, top): `word`, and so on by `step`, below `end`.
__device__ void fill(unsigned *tile, const float *x, int left, int top, int width, int height, bool mirrored, int line,
                     int word, int step, int end) {
    const int y = top + line % LINES;
    const float *row = x + (((long long)blockIdx.z * PLANES + line / LINES) * height + y) * width;
#pragma unroll
    for (; word < end; word += step)
        tile[line * PITCH + word] = pixels(row, left + word * 2, width, y >= 0 && y < height, mirrored);
}

// A warp makes 16 places of a row at once, in eight channels.
extern "C" __global__ void stem(const float *x, const half *taps, const half *bias, half *out, int channels, int width,
                                int height, int columns, int rows, int padding, int mirrored, float least,
                                float most) {
    __shared__ unsigned tile[PLANES * LINES * PITCH];
    const int first = blockIdx.x * MADE_X, top = blockIdx.y * MADE_Y;
    const int left = first * STRIDE - padding, above = top * STRIDE - padding;
    for (int line = threadIdx.y; line < PLANES * LINES; line += THREADS_Y)
        fill(tile, x, left, above, width, height, mirrored, line, threadIdx.x, THREADS_X, MADE_X);
    for (int line = threadIdx.y * THREADS_X + threadIdx.x; line < PLANES * LINES; line += THREADS_X * THREADS_Y)
        fill(tile, x, left, above, width, height, mirrored, line, MADE_X, 1, WORDS);
    __syncthreads();
    unsigned from[STEPS][2][LANES];  // the places in a tile of the words that a lane multiplies
#pragma unroll
    for (int i = 0; i < LANES; i++)
#pragma unroll
        for (int k = 0; k < STEPS * 2; k++) {
            int lane = threadIdx.x * LANES + i, row = k * 2 + lane % 4 / 2;
            row = row < ROWS ? row : ROWS - 1;  // the factors are zero
            from[k / 2][k % 2][i] = (row / SIDE * LINES + row % SIDE) * PITCH + lane % 2 + lane / 4;
        }
    for (int channel = 0; channel < channels; channel += EIGHT) {
        unsigned factors[STEPS][LANES][2];
#pragma unroll
        for (int i = 0; i < LANES; i++)
#pragma unroll
            for (int k = 0; k < STEPS * 2; k++) {
                int lane = threadIdx.x * LANES + i;
                const half *pair = taps + (k * 4 + lane % 4) * 2 * channels + channel + lane / 4;
                factors[k / 2][i][k % 2] = pair[0] | (unsigned)pair[channels] << 16;
            }
        for (int line = threadIdx.y; line < MADE_Y; line += THREADS_Y)
#pragma unroll
            for (int begin = 0; begin < MADE_X; begin += 16) {
                float sums[LANES][4];
#pragma unroll
                for (int i = 0; i < LANES; i++)
#pragma unroll
                    for (int k = 0; k < 4; k++)
                        sums[i][k] = widened(bias[channel + (threadIdx.x * LANES + i) % 4 * 2 + k % 2]);
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    unsigned upper[LANES][2], lower[LANES][2];
#pragma unroll
                    for (int i = 0; i < LANES; i++)
#pragma unroll
                        for (int k = 0; k < 2; k++) {
                            const unsigned *word = tile + from[step][k][i] + line * STRIDE * PITCH + begin;
                            upper[i][k] = word[0];
                            lower[i][k] = word[8];
                        }
                    multiply(sums, upper, lower, factors[step]);
                }
#pragma unroll
                for (int i = 0; i < LANES; i++)
#pragma unroll
                    for (int k = 0; k < 2; k++) {
                        int lane = threadIdx.x * LANES + i, column = first + begin + lane / 4 + k * 8, row = top + line;
                        half *to = out + (((long long)blockIdx.z * rows + row) * columns + column) * channels + channel;
                        unsigned both = bounded(both_narrowed(sums[i][k * 2], sums[i][k * 2 + 1]), least, most);
                        if (row < rows && column < columns)
                            reinterpret_cast<unsigned *>(to)[lane % 4] = both;
                    }
            }
    }
}
