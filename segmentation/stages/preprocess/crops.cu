// Makes a network's input from parts of frames at full size.

// How a plane of a part is shrunk, see `halvings` of resampling.py.
struct Shrinking {
    int halvings, means;  // how often it is halved, and whether means of areas follow, else interpolation
};

// A part of a frame in samples of luma, and its place in the network's input in pixels of the upright picture.
struct Crop {
    int frame, x, y, width, height;
    int left, top, place_width, place_height;
    Shrinking luma, chroma;
};

// The samples of one axis of a part that make one place, and their weights. Samples are those after the halvings.
struct Reach {
    int first, last;
    float begin, span;  // the mean from `begin` on over `span` samples; without a span, interpolated at `begin`

    __device__ float weight(int number) const {
        if (span == 0) return fmaxf(1 - fabsf(begin - number), 0);
        return fmaxf(fminf(number + 1, begin + span) - fmaxf(number, begin), 0) / span;
    }
};

// Returns what place number `place` of `places` reads of an axis of `length` samples.
__device__ Reach reach(int place, int places, int length, bool means) {
    const float span = (float)length / places;
    if (means && length > places) {
        const float begin = place * span;
        return {(int)begin, min((int)ceilf(begin + span), length) - 1, begin, span};
    }
    const float at = fminf(fmaxf((place + 0.5f) * span - 0.5f, 0), length - 1);
    return {(int)at, min((int)at + 1, length - 1), at, 0};
}

// What one pixel reads of a plane of a part.
struct Window {
    Reach across, down;
    int halvings;
};

// Returns what pixel (column, row) of a part (width, height) reads that is shrunk to `columns` by `rows`.
__device__ Window window(const Shrinking &how, int width, int height, int column, int columns, int row, int rows) {
    return {reach(column, columns, width >> how.halvings, how.means), reach(row, rows, height >> how.halvings, how.means),
            how.halvings};
}

// Returns a pixel of a part of a plane, whose lines are `stride` samples apart.
__device__ float part_shrunk(const sample *part, int stride, const Window &from) {
    const int times = from.halvings;
    float sum = 0;
    for (int y = from.down.first << times; y < (from.down.last + 1) << times; y++) {
        const sample *line = part + (long long)y * stride;
        float mean = 0;
        for (int x = from.across.first << times; x < (from.across.last + 1) << times; x++)
            mean += from.across.weight(x >> times) * line[x];
        sum += from.down.weight(y >> times) * mean;
    }
    return sum / (1 << 2 * times);
}

// Writes the network's input `target` (N, 3, target_height, target_width) for the `Crop`s at `crops`, one for each
// blockIdx.z, with gray around them. Frames are (height, width) as stored. A thread makes one pixel.
extern "C" __global__ void crop(const sample *y, const sample *u, const sample *v, int width, int height,
                                const int *crops, float *target, int target_width, int target_height,
                                const ToRgb *color) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= target_width || row >= target_height) return;
    const Crop &part = ((const Crop *)crops)[blockIdx.z];
    const long long size = (long long)target_width * target_height;
    float *pixel = target + 3 * blockIdx.z * size + (long long)row * target_width + column;
    const int shown = column - part.left, below = row - part.top;  // in the place
    if (shown < 0 || below < 0 || shown >= part.place_width || below >= part.place_height) {
        for (int c = 0; c < 3; c++) pixel[c * size] = color->scale[c] * GRAY + color->offset[c];
        return;
    }
    const int right = MIRRORED ? part.place_width - 1 - shown : shown;
#if TURNS % 2 == 0
    const int columns = part.place_width, rows = part.place_height;  // of the place as stored
#else
    const int columns = part.place_height, rows = part.place_width;
#endif
#if TURNS == 0
    const int across = right, down = below;
#elif TURNS == 1
    const int across = columns - 1 - below, down = right;
#elif TURNS == 2
    const int across = columns - 1 - right, down = rows - 1 - below;
#else
    const int across = below, down = rows - 1 - right;
#endif
    const int chroma_width = -(-width >> SHIFT_X), chroma_height = -(-height >> SHIFT_Y);
    const int part_width = -(-part.width >> SHIFT_X), part_height = -(-part.height >> SHIFT_Y);
    const long long line = (long long)part.frame * height + part.y;
    const long long chroma_line = (long long)part.frame * chroma_height + (part.y >> SHIFT_Y);
    const long long first = line * width + part.x, first_chroma = chroma_line * chroma_width + (part.x >> SHIFT_X);
    const Window fine = window(part.luma, part.width, part.height, across, columns, down, rows);
    const Window coarse = window(part.chroma, part_width, part_height, across, columns, down, rows);
    const float luma = part_shrunk(y + first, width, fine);
    const float blue = part_shrunk(u + first_chroma, chroma_width, coarse);
    const float red = part_shrunk(v + first_chroma, chroma_width, coarse);
    for (int c = 0; c < 3; c++) pixel[c * size] = input_value(*color, c, luma, blue, red);
}
