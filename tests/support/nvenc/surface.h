/* Memory that holds a picture for the encoder: the client's in CUDA, or the stand-in's own on the host. */
#ifndef SURFACE_H
#define SURFACE_H

#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/nvEncodeAPI.h>

#include "codec.h"

typedef struct Surface {
    struct Surface *next;
    CUdeviceptr device; /* 0 for memory on the host */
    uint8_t *host;
    NV_ENC_BUFFER_FORMAT format;
    uint32_t width, height, pitch;
    int mapped;
} Surface;

/* Returns how many bytes a picture of this size takes without padding, 0 for a format that is not known. */
size_t surface_bytes(const Surface *surface, uint32_t width, uint32_t height);

/* Bits of a sample; whether the format has chroma at full size. */
int surface_depth(const Surface *surface);
int surface_full_chroma(const Surface *surface);

/* Copies a picture from the surface, or fills the surface with one byte. They return 0, or what CUDA returned. */
int surface_read(const Surface *surface, CUcontext context, uint32_t width, uint32_t height, uint8_t *out);
int surface_fill(const Surface *surface, CUcontext context, uint8_t value);

/* Sorts what `surface_read` copied into planes Y, U, V, from `plane[0]` on, which has room for `surface_bytes`. */
void surface_planes(const Surface *surface, uint32_t width, uint32_t height, const uint8_t *copy, Picture *picture);

#endif
