/*
 * A stand-in for NVIDIA's libnvidia-encode.so.1: NVENC's API, with x264, x265 and libaom in place of the chip.
 *
 * It serves FFmpeg's h264_nvenc, hevc_nvenc and av1_nvenc, and other clients of API 11.1 to 13.0, from CUDA's memory
 * and its own. A surface is read as late as the encoder behind allows: when a picture's packet is locked that needs it.
 * NVENC may read it until the lock of the surface's own picture. So it is read again then, and must be as it was.
 *
 * What is checked besides: structures' versions, the order of locks, pitches, smallest and largest pictures.
 *
 * The environment chooses what goes wrong:
 *
 *   NVENC_STANDIN_FAULT   one of these, where N counts from 0:
 *       no-encoder        there is no NVENC, as on an H200 (code 2)
 *       sessions@N        the driver grants N sessions at once (code 10)
 *       old-driver        the driver's API is 12.1
 *       no-codec          H.264 is the only codec
 *       old-gpu           no B-frames in HEVC, no B-frames as references, no temporal AQ, as before Turing
 *       preset            presets are refused (code 12)
 *       initialize        memory is full when the encoder is made (code 10)
 *       memory@N          memory is full at picture N (code 10)
 *       lost@N            the GPU is lost when picture N is locked (code 5), and so are all later calls
 *   NVENC_STANDIN_DELAY   milliseconds that each lock waits before it reads surfaces
 *   NVENC_STANDIN_POISON  1: surfaces are overwritten when they are unmapped, since nobody may need them then
 *   NVENC_STANDIN_EMPTY   1: surfaces are not read, and all packets are one gray IDR picture, for measurements
 *   NVENC_STANDIN_LOG     a file to which each session appends a line of JSON at its end
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "session.h"

static NVENCSTATUS encode_picture(void *encoder, NV_ENC_PIC_PARAMS *p)
{
    Session *s = encoder;
    Submitted *picture = &s->pictures[s->submitted % IN_FLIGHT];
    Bitstream *bitstream;
    Surface *surface;
    int64_t full = fault("memory");
    CHECK(s, p);
    if (p->encodePicFlags & NV_ENC_PIC_FLAG_EOS) {
        s->ended = 1;
        return NV_ENC_SUCCESS;
    }
    bitstream = *find_bitstream(s, p->outputBitstream);
    surface = *find_surface(s, p->inputBuffer);
    if (!s->encoder || !bitstream || !surface || s->ended || s->submitted - s->locked >= IN_FLIGHT)
        return fail(s, NV_ENC_ERR_INVALID_CALL, "picture %lld is refused", (long long)s->submitted);
    if (surface->device && !surface->mapped)
        return fail(s, NV_ENC_ERR_RESOURCE_NOT_MAPPED, "not mapped");
    if (surface_depth(surface) != s->settings.depth || surface_full_chroma(surface) != s->settings.full_chroma ||
        (int)surface->width < s->settings.width || (int)surface->height < s->settings.height)
        return fail(s, NV_ENC_ERR_INVALID_PARAM, "the surface does not fit the session");
    if (full >= 0 && s->submitted >= full)
        return fail(s, NV_ENC_ERR_OUT_OF_MEMORY, "the GPU's memory is full");
    *picture = (Submitted){surface, NULL, p->inputTimeStamp, p->inputDuration};
    bitstream->number = s->submitted++;
    return s->submitted > s->latency ? NV_ENC_SUCCESS : NV_ENC_ERR_NEED_MORE_INPUT;
}

static uint8_t *read_surface(Session *s, const Submitted *picture)
{
    uint8_t *copy = malloc(surface_bytes(picture->surface, s->settings.width, s->settings.height));
    if (copy && surface_read(picture->surface, s->context, s->settings.width, s->settings.height, copy)) {
        free(copy);
        copy = NULL;
    }
    return copy;
}

/* Gives the encoder pictures until a packet comes out of it. */
static NVENCSTATUS next_packet(Session *s, Packet *packet)
{
    Picture planes;
    int result = 0;
    while (!result) {
        Submitted *picture = &s->pictures[s->read % IN_FLIGHT];
        if (s->read == s->submitted) {
            result = s->ended ? s->codec->encode(s->encoder, NULL, 0, packet) : -1;
            if (result <= 0)
                return fail(s, NV_ENC_ERR_GENERIC, "no packet from the encoder behind the stand-in");
            break;
        }
        picture->copy = read_surface(s, picture);
        if (!picture->copy)
            return fail(s, NV_ENC_ERR_GENERIC, "can't read surface %lld", (long long)s->read);
        if (!s->planes)
            s->planes = malloc(surface_bytes(picture->surface, s->settings.width, s->settings.height));
        if (!s->planes)
            return fail(s, NV_ENC_ERR_OUT_OF_MEMORY, "no memory");
        planes.plane[0] = s->planes;
        surface_planes(picture->surface, s->settings.width, s->settings.height, picture->copy, &planes);
        result = s->codec->encode(s->encoder, &planes, s->read++, packet);
        if (result < 0)
            return fail(s, NV_ENC_ERR_GENERIC, "the encoder behind the stand-in failed");
    }
    return NV_ENC_SUCCESS;
}

/* A gray picture as a packet, for all pictures. */
static NVENCSTATUS gray_packet(Session *s, int64_t number, Packet *packet)
{
    const Settings *t = &s->settings;
    size_t bytes = (size_t)t->width * t->height * 2;
    Picture gray = {.stride = {(size_t)t->width * 2, (size_t)t->width * 2, (size_t)t->width * 2}};
    Packet made;
    int result = 1;
    if (!s->gray.data) {
        gray.plane[0] = gray.plane[1] = gray.plane[2] = calloc(1, bytes);
        result = gray.plane[0] ? s->codec->encode(s->encoder, &gray, 0, &made) : -1;
        while (!result)
            result = s->codec->encode(s->encoder, NULL, 0, &made);
        free(gray.plane[0]);
        s->gray.data = result > 0 ? malloc(made.size) : NULL;
        if (!s->gray.data)
            return fail(s, NV_ENC_ERR_GENERIC, "no gray packet");
        memcpy(s->gray.data, made.data, s->gray.size = made.size);
    }
    *packet = (Packet){s->gray.data, s->gray.size, number, 'K'};
    return NV_ENC_SUCCESS;
}

/* Compares a surface with what was read from it: until its picture's lock nobody may write to it. */
static NVENCSTATUS compare_surface(Session *s, int64_t number)
{
    Submitted *picture = &s->pictures[number % IN_FLIGHT];
    uint8_t *again = read_surface(s, picture);
    int same = again && !memcmp(again, picture->copy,
                                surface_bytes(picture->surface, s->settings.width, s->settings.height));
    free(again);
    free(picture->copy);
    picture->copy = NULL;
    s->compared++;
    s->changed += !same;
    return same ? NV_ENC_SUCCESS
                : fail(s, NV_ENC_ERR_GENERIC, "surface %lld changed before its lock", (long long)number);
}

static NVENCSTATUS lock_bitstream(void *encoder, NV_ENC_LOCK_BITSTREAM *p)
{
    Session *s = encoder;
    Bitstream *bitstream = *find_bitstream(s, p->outputBitstream);
    int64_t lost = fault("lost"), delay = chosen("NVENC_STANDIN_DELAY");
    int empty = chosen("NVENC_STANDIN_EMPTY");
    Packet packet;
    NVENCSTATUS status;
    CHECK(s, p);
    if (!bitstream || bitstream->number != s->locked)
        return fail(s, NV_ENC_ERR_INVALID_CALL, "locked out of order");
    if (!s->ended && s->submitted <= s->locked + s->latency)
        return fail(s, NV_ENC_ERR_INVALID_CALL, "locked before its packet can be made");
    if (lost >= 0 && s->locked >= lost) {
        s->lost = 1;
        return fail(s, NV_ENC_ERR_DEVICE_NOT_EXIST, "the GPU is lost");
    }
    nanosleep(&(struct timespec){delay / 1000, delay % 1000 * 1000000}, NULL);
    status = empty ? gray_packet(s, s->locked, &packet) : next_packet(s, &packet);
    if (status == NV_ENC_SUCCESS && !empty)
        status = compare_surface(s, s->locked);
    if (status != NV_ENC_SUCCESS)
        return status;
    if (packet.size > bitstream->room) {
        free(bitstream->data);
        bitstream->room = packet.size * 2;
        bitstream->data = malloc(bitstream->room);
        if (!bitstream->data)
            return fail(s, NV_ENC_ERR_OUT_OF_MEMORY, "no memory");
    }
    memcpy(bitstream->data, packet.data, packet.size);
    p->bitstreamBufferPtr = bitstream->data;
    p->bitstreamSizeInBytes = (uint32_t)packet.size;
    p->outputTimeStamp = s->pictures[packet.number % IN_FLIGHT].timestamp;
    p->outputDuration = s->pictures[packet.number % IN_FLIGHT].duration;
    p->frameIdx = (uint32_t)packet.number;
    p->pictureStruct = NV_ENC_PIC_STRUCT_FRAME;
    p->pictureType = packet.type == 'K' ? NV_ENC_PIC_TYPE_IDR : packet.type == 'I' ? NV_ENC_PIC_TYPE_I
                     : packet.type == 'P' ? NV_ENC_PIC_TYPE_P : NV_ENC_PIC_TYPE_B;
    p->frameAvgQP = (uint32_t)s->settings.quality;
    s->locked++;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS unlock_bitstream(void *encoder, NV_ENC_OUTPUT_PTR bitstream)
{
    return *find_bitstream(encoder, bitstream) ? NV_ENC_SUCCESS : NV_ENC_ERR_INVALID_PARAM;
}

static NVENCSTATUS unimplemented(void)
{
    return NV_ENC_ERR_UNIMPLEMENTED;
}

__attribute__((visibility("default"))) NVENCSTATUS NvEncodeAPIGetMaxSupportedVersion(uint32_t *version)
{
    *version = fault("old-driver") < 0 ? VERSION : 12 << 4 | 1;
    return NV_ENC_SUCCESS;
}

__attribute__((visibility("default"))) NVENCSTATUS NvEncodeAPICreateInstance(NV_ENCODE_API_FUNCTION_LIST *list)
{
    void *nothing = (void *)unimplemented;
    for (size_t at = 8; at < offsetof(NV_ENCODE_API_FUNCTION_LIST, reserved2); at += sizeof nothing)
        memcpy((char *)list + at, &nothing, sizeof nothing);
    list->nvEncOpenEncodeSessionEx = open_session;
    list->nvEncGetLastErrorString = last_error;
    list->nvEncGetEncodeGUIDCount = guid_count;
    list->nvEncGetEncodeGUIDs = guids;
    list->nvEncGetEncodeCaps = caps;
    list->nvEncGetEncodePresetCount = preset_count;
    list->nvEncGetEncodePresetGUIDs = preset_guids;
    list->nvEncGetEncodePresetConfigEx = preset_config;
    list->nvEncInitializeEncoder = initialize;
    list->nvEncReconfigureEncoder = reconfigure;
    list->nvEncGetSequenceParams = sequence_params;
    list->nvEncSetIOCudaStreams = set_streams;
    list->nvEncCreateInputBuffer = create_input;
    list->nvEncDestroyInputBuffer = remove_surface;
    list->nvEncLockInputBuffer = lock_input;
    list->nvEncUnlockInputBuffer = unlock_input;
    list->nvEncRegisterResource = register_resource;
    list->nvEncUnregisterResource = remove_surface;
    list->nvEncMapInputResource = map_resource;
    list->nvEncUnmapInputResource = unmap_resource;
    list->nvEncCreateBitstreamBuffer = create_bitstream;
    list->nvEncDestroyBitstreamBuffer = destroy_bitstream;
    list->nvEncEncodePicture = encode_picture;
    list->nvEncLockBitstream = lock_bitstream;
    list->nvEncUnlockBitstream = unlock_bitstream;
    list->nvEncDestroyEncoder = destroy;
    return NV_ENC_SUCCESS;
}
