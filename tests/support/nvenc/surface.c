/* Reads pictures from NVENC's layouts. CUDA is the process's own libcuda.so.1, the driver's or a stand-in for it. */
#include "surface.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t offset, pitch, width; /* bytes */
    uint32_t rows;
} Plane;

static struct {
    tcuCtxPushCurrent_v2 *push;
    tcuCtxPopCurrent_v2 *pop;
    tcuMemcpy2D_v2 *copy;
} cuda;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (library) {
        cuda.push = (tcuCtxPushCurrent_v2 *)dlsym(library, "cuCtxPushCurrent_v2");
        cuda.pop = (tcuCtxPopCurrent_v2 *)dlsym(library, "cuCtxPopCurrent_v2");
        cuda.copy = (tcuMemcpy2D_v2 *)dlsym(library, "cuMemcpy2D_v2");
    }
}

/* Writes the planes in the order in which they lie in memory, and returns their number. */
static int layout(const Surface *s, uint32_t width, uint32_t height, Plane planes[3])
{
    size_t luma = (size_t)s->pitch * s->height, row = width, half = (width + 1) / 2;
    uint32_t rows = (height + 1) / 2;
    planes[0] = (Plane){0, s->pitch, row, height};
    switch (s->format) {
    case NV_ENC_BUFFER_FORMAT_YUV420_10BIT:
        planes[0].width *= 2;
        planes[1] = (Plane){luma, s->pitch, half * 4, rows};
        return 2;
    case NV_ENC_BUFFER_FORMAT_NV12:
        planes[1] = (Plane){luma, s->pitch, half * 2, rows};
        return 2;
    case NV_ENC_BUFFER_FORMAT_YV12:
    case NV_ENC_BUFFER_FORMAT_IYUV:
        planes[1] = (Plane){luma, s->pitch / 2, half, rows};
        planes[2] = (Plane){luma + (size_t)s->pitch / 2 * ((s->height + 1) / 2), s->pitch / 2, half, rows};
        return 3;
    case NV_ENC_BUFFER_FORMAT_YUV444:
    case NV_ENC_BUFFER_FORMAT_YUV444_10BIT:
        planes[0].width *= surface_depth(s) > 8 ? 2 : 1;
        planes[1] = planes[2] = planes[0];
        planes[1].offset = luma;
        planes[2].offset = 2 * luma;
        return 3;
    default:
        return 0;
    }
}

int surface_depth(const Surface *s)
{
    return s->format == NV_ENC_BUFFER_FORMAT_YUV420_10BIT || s->format == NV_ENC_BUFFER_FORMAT_YUV444_10BIT ? 10 : 8;
}

int surface_full_chroma(const Surface *s)
{
    return s->format == NV_ENC_BUFFER_FORMAT_YUV444 || s->format == NV_ENC_BUFFER_FORMAT_YUV444_10BIT;
}

size_t surface_bytes(const Surface *s, uint32_t width, uint32_t height)
{
    Plane planes[3];
    size_t bytes = 0;
    for (int i = layout(s, width, height, planes) - 1; i >= 0; i--)
        bytes += planes[i].width * planes[i].rows;
    return bytes;
}

/* Copies one plane between the surface and packed memory on the host. */
static int copy_plane(const Surface *s, const Plane *plane, uint8_t *packed, int to_surface)
{
    CUDA_MEMCPY2D copy = {.WidthInBytes = plane->width, .Height = plane->rows};
    if (!s->device) {
        uint8_t *row = s->host + plane->offset;
        for (uint32_t y = 0; y < plane->rows; y++, row += plane->pitch, packed += plane->width)
            to_surface ? memcpy(row, packed, plane->width) : memcpy(packed, row, plane->width);
        return 0;
    }
    copy.srcMemoryType = to_surface ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = to_surface ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    copy.srcHost = copy.dstHost = packed;
    copy.srcDevice = copy.dstDevice = s->device + plane->offset;
    copy.srcPitch = to_surface ? plane->width : plane->pitch;
    copy.dstPitch = to_surface ? plane->pitch : plane->width;
    return cuda.copy(&copy);
}

/* With `fill`, every plane gets what `packed` begins with. */
static int copy_all(const Surface *s, CUcontext context, uint32_t width, uint32_t height, uint8_t *packed, int fill)
{
    Plane planes[3];
    CUcontext ours;
    int count = layout(s, width, height, planes), result = 0;
    pthread_once(&loaded, load_cuda);
    if (s->device && (!cuda.push || !cuda.pop || !cuda.copy || cuda.push(context)))
        return -1;
    for (int i = 0; i < count && !result; i++) {
        result = copy_plane(s, &planes[i], packed, fill);
        packed += fill ? 0 : planes[i].width * planes[i].rows;
    }
    if (s->device)
        cuda.pop(&ours);
    return result;
}

int surface_read(const Surface *s, CUcontext context, uint32_t width, uint32_t height, uint8_t *out)
{
    return copy_all(s, context, width, height, out, 0);
}

int surface_fill(const Surface *s, CUcontext context, uint8_t value)
{
    size_t bytes = surface_bytes(s, s->width, s->height);
    uint8_t *packed = malloc(bytes);
    int result = -1;
    if (packed) {
        memset(packed, value, bytes);
        result = copy_all(s, context, s->width, s->height, packed, 1);
    }
    free(packed);
    return result;
}

/* Takes every `step`-th sample. In two bytes NVENC has the 10 bits at the top, and encoders at the bottom. */
static void unpack(uint8_t *out, const uint8_t *in, size_t samples, size_t step, int deep)
{
    for (size_t i = 0; i < samples; i++)
        if (deep)
            ((uint16_t *)out)[i] = ((const uint16_t *)in)[i * step] >> 6;
        else
            out[i] = in[i * step];
}

void surface_planes(const Surface *s, uint32_t width, uint32_t height, const uint8_t *copy, Picture *picture)
{
    int full = surface_full_chroma(s), deep = surface_depth(s) > 8;
    int paired = s->format == NV_ENC_BUFFER_FORMAT_NV12 || s->format == NV_ENC_BUFFER_FORMAT_YUV420_10BIT;
    size_t sample = deep ? 2 : 1, row = full ? width : (width + 1) / 2;
    size_t luma = (size_t)width * height, chroma = row * (full ? height : (height + 1) / 2);
    picture->stride[0] = width * sample;
    picture->stride[1] = picture->stride[2] = row * sample;
    picture->plane[1] = picture->plane[0] + luma * sample;
    picture->plane[2] = picture->plane[1] + chroma * sample;
    unpack(picture->plane[0], copy, luma, 1, deep);
    for (int i = 0; i < 2; i++) {
        uint8_t *out = picture->plane[s->format == NV_ENC_BUFFER_FORMAT_YV12 ? 2 - i : 1 + i];
        unpack(out, copy + (luma + i * (paired ? 1 : chroma)) * sample, chroma, paired ? 2 : 1, deep);
    }
}
