// Chooses the things that a network has found in the pictures of a batch, and draws their masks.
// blockIdx.z is the number of the picture.

// A thing in a picture: its box in pixels of the place that shows the picture, its score and class, and the number of
// the proposal. The things of a picture begin with the highest score, and end where the score is 0.
struct Thing {
    float left, top, right, bottom, score, label, proposal, unused;
};

// Returns the share of two boxes' area that both have. Two boxes without an area are one.
__device__ float iou(const float4 &a, const float4 &b) {
    const float across = fminf(a.z, b.z) - fmaxf(a.x, b.x), down = fminf(a.w, b.w) - fmaxf(a.y, b.y);
    const float common = fmaxf(across, 0) * fmaxf(down, 0);
    const float both = (a.z - a.x) * (a.w - a.y) + (b.z - b.x) * (b.w - b.y);
    return both <= 0 ? 1 : common / (both - common);
}

// Writes to `things` (N, MOST) which of `count` proposals are left after non-maximum suppression within each class, as
// far as the picture's place shows them. Proposals begin with the highest score. One block works on a picture.
extern "C" __global__ void suppress(const float4 *boxes, const float *scores, const int *classes, int count,
                                    float limit, int left, int top, int width, int height, Thing *things) {
    __shared__ bool gone[COMPARED];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
    const float4 *box = boxes + (long long)blockIdx.z * count;
    const float *score = scores + (long long)blockIdx.z * count;
    const int *label = classes + (long long)blockIdx.z * count;
    Thing *thing = things + blockIdx.z * MOST;
    for (int k = thread; k < count; k += threads) gone[k] = score[k] <= 0;
    __syncthreads();
    int chosen = 0, shown = 0;
    for (int k = 0; k < count && chosen < MOST; k++) {
        if (gone[k]) continue;
        const float4 own = box[k];
        for (int other = k + 1 + thread; other < count; other += threads)
            if (label[other] == label[k] && iou(own, box[other]) > limit) gone[other] = true;
        __syncthreads();  // the next round reads what this one has written
        chosen++;
        const float x0 = fminf(fmaxf(own.x - left, 0), width), x1 = fminf(fmaxf(own.z - left, 0), width);
        const float y0 = fminf(fmaxf(own.y - top, 0), height), y1 = fminf(fmaxf(own.w - top, 0), height);
        if (x1 <= x0 || y1 <= y0) continue;
        if (thread == 0) thing[shown] = Thing{x0, y0, x1, y1, score[k], (float)label[k], (float)k, 0};
        shown++;
    }
    for (int k = shown + thread; k < MOST; k += threads) thing[k] = Thing{};
}

// Writes one pixel of each map (N, height, width): the largest value of all masks there, the number of the thing
// that has it, from 1 on, where `label_map` is given, and the class of that thing likewise. Of equals the first counts.
// `value(thing)` is that of a thing's mask at this pixel, or none outside of its box if `cut`.
template <typename Value>
__device__ void draw(const Thing *things, int column, int row, int width, int height, const unsigned char *numbers,
                     float *masks, unsigned char *label_map, unsigned char *class_map, bool cut, Value &value) {
    const Thing *thing = things + blockIdx.z * MOST;
    const float x = column + 0.5f, y = row + 0.5f;
    float most = 0;
    int label = 0;
    for (int k = 0; k < MOST && thing[k].score > 0; k++) {
        const Thing &one = thing[k];
        if (cut && (x < one.left || x >= one.right || y < one.top || y >= one.bottom)) continue;
        const float found = value(one);
        if (found <= most || most != most) continue;  // a NaN stays: the pipeline shows nothing of such a picture
        most = found;
        label = k + 1;
    }
    const long long pixel = place(column, row, width, height);
    masks[pixel] = most;
    label = most > EDGE ? label : 0;
    if (label_map) label_map[pixel] = label;
    if (class_map) class_map[pixel] = label ? numbers[(int)thing[label - 1].label] : 0;
}

__device__ float sigmoid(float logit) { return 1 / (1 + expf(-logit)); }

struct Inside {
    __device__ float operator()(const Thing &) const { return 1; }
};

// Draws boxes. In pictures that are `unknown`, (N,), the mask is NaN everywhere.
extern "C" __global__ void draw_boxes(const Thing *things, int width, int height, const unsigned char *numbers,
                                      float *masks, unsigned char *label_map, unsigned char *class_map,
                                      const unsigned char *unknown) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    Inside value;
    draw(things, column, row, width, height, numbers, masks, label_map, class_map, true, value);
    if (unknown[blockIdx.z]) masks[place(column, row, width, height)] = nanf("");
}

struct OfLayer {
    Between at;
    const float *layers;  // of the picture
    const int *owners;    // likewise
    long long size;       // of a layer

    __device__ float operator()(const Thing &thing) const {
        return sigmoid(at.of(layers + owners[(int)thing.proposal] * size));
    }
};

// Draws masks from `layers` (N, layer_count, rows, columns), logits that cover the network's input, in which the picture
// begins at (left, top). `owners` (N, count) are the numbers of the proposals' layers.
extern "C" __global__ void draw_layers(const Thing *things, int width, int height, const unsigned char *numbers,
                                       float *masks, unsigned char *label_map, unsigned char *class_map, int left,
                                       int top, int input_width, int input_height, const float *layers,
                                       int layer_count, int rows, int columns, const int *owners, int count) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const long long size = (long long)rows * columns;
    OfLayer value{between(column + left, row + top, input_width, input_height, columns, rows),
                  layers + blockIdx.z * layer_count * size, owners + (long long)blockIdx.z * count, size};
    draw(things, column, row, width, height, numbers, masks, label_map, class_map, false, value);
}

// Interpolating between places and adding prototypes up are both linear, so that the prototypes are interpolated once.
struct OfPrototypes {
    Between at;
    const float *prototypes;    // of the picture
    const float *coefficients;  // likewise
    long long size;             // of a prototype
    bool ready;
    float values[PROTOTYPES];

    __device__ float operator()(const Thing &thing) {
        if (!ready)
            for (int k = 0; k < PROTOTYPES; k++) values[k] = at.of(prototypes + k * size);
        ready = true;
        const float *own = coefficients + (long long)thing.proposal * PROTOTYPES;
        float sum = 0;
        for (int k = 0; k < PROTOTYPES; k++) sum += own[k] * values[k];
        return sigmoid(sum);
    }
};

// Draws masks from prototypes (N, PROTOTYPES, rows, columns), which cover the network's input likewise, and from the
// coefficients (N, count, PROTOTYPES) of the proposals.
extern "C" __global__ void draw_prototypes(const Thing *things, int width, int height, const unsigned char *numbers,
                                           float *masks, unsigned char *label_map, unsigned char *class_map, int left,
                                           int top, int input_width, int input_height, const float *prototypes,
                                           int rows, int columns, const float *coefficients, int count) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (column >= width || row >= height) return;
    const long long size = (long long)rows * columns;
    OfPrototypes value{between(column + left, row + top, input_width, input_height, columns, rows),
                       prototypes + blockIdx.z * PROTOTYPES * size,
                       coefficients + (long long)blockIdx.z * count * PROTOTYPES, size, false};
    draw(things, column, row, width, height, numbers, masks, label_map, class_map, true, value);
}
