/* The session's surfaces and bitstream buffers, which clients know by their addresses. */
#include "session.h"

#include <stdlib.h>

#define POISON 0x5a

/* Takes what is new into the session's list, or returns what is wrong with it. */
static NVENCSTATUS add_surface(Session *s, Surface given, Surface **out)
{
    Surface *surface;
    if (!surface_bytes(&given, given.width, given.height))
        return fail(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "format %#x is not supported", given.format);
    if (given.pitch % 4 || given.pitch < given.width * (surface_depth(&given) > 8 ? 2 : 1))
        return fail(s, NV_ENC_ERR_INVALID_PARAM, "pitch %u for width %u", given.pitch, given.width);
    surface = malloc(sizeof *surface);
    if (!surface)
        return fail(s, NV_ENC_ERR_OUT_OF_MEMORY, "no memory");
    *surface = given;
    surface->next = s->surfaces;
    s->surfaces = *out = surface;
    return NV_ENC_SUCCESS;
}

Surface **find_surface(Session *s, const void *wanted)
{
    Surface **at = &s->surfaces;
    while (*at && *at != wanted)
        at = &(*at)->next;
    return at;
}

NVENCSTATUS remove_surface(void *encoder, void *surface)
{
    Surface **at = find_surface(encoder, surface), *gone = *at;
    if (!gone || gone->mapped)
        return fail(encoder, NV_ENC_ERR_RESOURCE_NOT_REGISTERED, gone ? "still mapped" : "not registered");
    *at = gone->next;
    free(gone->host);
    free(gone);
    return NV_ENC_SUCCESS;
}

NVENCSTATUS create_input(void *encoder, NV_ENC_CREATE_INPUT_BUFFER *p)
{
    Session *s = encoder;
    Surface new = {.format = p->bufferFmt, .width = p->width, .height = p->height, .mapped = 0};
    Surface *made;
    NVENCSTATUS status;
    CHECK(s, p);
    new.pitch = (p->width * 2 + 255) / 256 * 256;
    new.host = malloc((size_t)new.pitch * (p->height + 1) * 3);
    status = new.host ? add_surface(s, new, &made) : NV_ENC_ERR_OUT_OF_MEMORY;
    if (status == NV_ENC_SUCCESS)
        p->inputBuffer = made;
    else
        free(new.host);
    return status;
}

NVENCSTATUS lock_input(void *encoder, NV_ENC_LOCK_INPUT_BUFFER *p)
{
    Session *s = encoder;
    Surface *surface = *find_surface(s, p->inputBuffer);
    CHECK(s, p);
    if (!surface || !surface->host)
        return fail(s, NV_ENC_ERR_INVALID_PARAM, "no input buffer");
    p->bufferDataPtr = surface->host;
    p->pitch = surface->pitch;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS unlock_input(void *encoder, NV_ENC_INPUT_PTR input)
{
    return *find_surface(encoder, input) ? NV_ENC_SUCCESS : NV_ENC_ERR_INVALID_PARAM;
}

NVENCSTATUS register_resource(void *encoder, NV_ENC_REGISTER_RESOURCE *p)
{
    Session *s = encoder;
    Surface *made = NULL;
    NVENCSTATUS status;
    CHECK(s, p);
    if (p->resourceType != NV_ENC_INPUT_RESOURCE_TYPE_CUDADEVICEPTR || !p->resourceToRegister)
        return fail(s, NV_ENC_ERR_RESOURCE_REGISTER_FAILED, "not a CUDA address");
    status = add_surface(s, (Surface){.device = (CUdeviceptr)p->resourceToRegister, .format = p->bufferFormat,
                                      .width = p->width, .height = p->height, .pitch = p->pitch}, &made);
    p->registeredResource = made;
    return status;
}

NVENCSTATUS map_resource(void *encoder, NV_ENC_MAP_INPUT_RESOURCE *p)
{
    Session *s = encoder;
    Surface *surface = *find_surface(s, p->registeredResource);
    CHECK(s, p);
    if (!surface || surface->mapped)
        return fail(s, NV_ENC_ERR_MAP_FAILED, surface ? "mapped twice" : "not registered");
    surface->mapped = 1;
    p->mappedResource = surface;
    p->mappedBufferFmt = surface->format;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS unmap_resource(void *encoder, NV_ENC_INPUT_PTR input)
{
    Session *s = encoder;
    Surface *surface = *find_surface(s, input);
    if (!surface || !surface->mapped)
        return fail(s, NV_ENC_ERR_RESOURCE_NOT_MAPPED, "not mapped");
    surface->mapped = 0;
    if (chosen("NVENC_STANDIN_POISON")) {
        if (surface_fill(surface, s->context, POISON))
            return fail(s, NV_ENC_ERR_GENERIC, "can't write to the surface");
        s->poisoned++;
    }
    return NV_ENC_SUCCESS;
}

NVENCSTATUS create_bitstream(void *encoder, NV_ENC_CREATE_BITSTREAM_BUFFER *p)
{
    Session *s = encoder;
    Bitstream *made;
    CHECK(s, p);
    made = calloc(1, sizeof *made);
    if (!made)
        return fail(s, NV_ENC_ERR_OUT_OF_MEMORY, "no memory");
    made->number = -1;
    made->next = s->bitstreams;
    p->bitstreamBuffer = s->bitstreams = made;
    return NV_ENC_SUCCESS;
}

Bitstream **find_bitstream(Session *s, const void *wanted)
{
    Bitstream **at = &s->bitstreams;
    while (*at && *at != wanted)
        at = &(*at)->next;
    return at;
}

NVENCSTATUS destroy_bitstream(void *encoder, NV_ENC_OUTPUT_PTR bitstream)
{
    Bitstream **at = find_bitstream(encoder, bitstream), *gone = *at;
    if (!gone)
        return fail(encoder, NV_ENC_ERR_INVALID_PARAM, "no bitstream");
    *at = gone->next;
    free(gone->data);
    free(gone);
    return NV_ENC_SUCCESS;
}
