/*
 * A stand-in for NVIDIA's libnvidia-encode.so.1: NVENC's API, with x264, x265 and libaom in place of the chip.
 *
 * It serves FFmpeg's h264_nvenc, hevc_nvenc and av1_nvenc, and other clients of API 11.1 to 13.0, from CUDA's and its own memory.
 * A surface is read as late as NVENC may read it: when its picture's packet is locked, or one that refers to it. At the
 * lock of a picture the surface is read again. It must be as it was, since until then it is the encoder's.
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
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "surface.h"

#define VERSION (13 << 4 | 0) /* the newest API whose structures have been compared with the headers' */
#define IN_FLIGHT 256         /* pictures between submission and lock */
#define HEADERS 256           /* bytes of parameter sets, FFmpeg's room for them */
#define POISON 0x5a

typedef struct Bitstream {
    struct Bitstream *next;
    int64_t number; /* of the picture, in the order of submission; -1 without one */
    uint8_t *data;
    size_t room;
} Bitstream;

typedef struct {
    Surface *surface;
    uint8_t *copy; /* what was read from the surface, until the picture's lock */
    uint64_t timestamp, duration;
} Submitted;

typedef struct {
    uint32_t api;
    CUcontext context;
    const Codec *codec;
    int which; /* of `codecs` */
    void *encoder;
    Settings settings;
    Surface *surfaces;
    Bitstream *bitstreams;
    Submitted pictures[IN_FLIGHT];
    int64_t submitted, read, locked; /* pictures so far */
    int64_t latency, compared, poisoned;
    uint8_t *planes; /* of the picture that is being encoded */
    Packet gray;     /* with NVENC_STANDIN_EMPTY */
    int ended, lost;
    char error[200];
} Session;

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int open_sessions;

static int chosen(const char *name)
{
    const char *value = getenv(name);
    return value ? atoi(value) : 0;
}

/* Returns the N of NVENC_STANDIN_FAULT=name@N, 0 without one, and -1 where another fault or none is chosen. */
static int64_t fault(const char *name)
{
    const char *value = getenv("NVENC_STANDIN_FAULT");
    size_t length = strlen(name);
    if (!value || strncmp(value, name, length) || (value[length] && value[length] != '@'))
        return -1;
    return value[length] ? atoll(value + length + 1) : 0;
}

static NVENCSTATUS fail(Session *s, NVENCSTATUS status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(s->error, sizeof s->error, format, values);
    va_end(values);
    return status;
}

/* Every structure carries the API's version and a signature beside its own version. */
static int valid(const Session *s, uint32_t version)
{
    return (version & 0x0f0000ff) == s->api && (version >> 28 & 7) == 7;
}

#define CHECK(session, structure)                                                                                      \
    do {                                                                                                               \
        if ((session)->lost)                                                                                           \
            return fail(session, NV_ENC_ERR_DEVICE_NOT_EXIST, "the GPU is lost");                                      \
        if (!valid(session, (structure)->version))                                                                     \
            return fail(session, NV_ENC_ERR_INVALID_VERSION, "%s: version %#x", __func__, (structure)->version);       \
    } while (0)

static int codec_count(void)
{
    return fault("no-codec") < 0 ? CODECS : 1;
}

static int codec_index(const GUID *guid)
{
    for (int i = 0; i < codec_count(); i++)
        if (!memcmp(&codecs[i].guid, guid, sizeof *guid))
            return i;
    return -1;
}

/* ---------------------------------------------------------------------------------------- sessions and abilities */

static NVENCSTATUS open_session(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *p, void **encoder)
{
    Session asked = {.api = p->apiVersion}, *s;
    int64_t limit = fault("sessions");
    uint32_t api = (p->apiVersion & 0xff) << 4 | p->apiVersion >> 24;
    *encoder = NULL;
    if (api > VERSION || !valid(&asked, p->version))
        return NV_ENC_ERR_INVALID_VERSION;
    if (p->deviceType != NV_ENC_DEVICE_TYPE_CUDA || !p->device)
        return NV_ENC_ERR_INVALID_ENCODERDEVICE;
    if (fault("no-encoder") >= 0)
        return NV_ENC_ERR_UNSUPPORTED_DEVICE;
    s = calloc(1, sizeof *s);
    pthread_mutex_lock(&counting);
    if (!s || (limit >= 0 && open_sessions >= limit)) {
        pthread_mutex_unlock(&counting);
        free(s);
        return NV_ENC_ERR_OUT_OF_MEMORY;
    }
    open_sessions++;
    pthread_mutex_unlock(&counting);
    s->api = p->apiVersion;
    s->context = p->device;
    *encoder = s;
    return NV_ENC_SUCCESS;
}

static const char *last_error(void *encoder)
{
    return ((Session *)encoder)->error;
}

static NVENCSTATUS guid_count(void *encoder, uint32_t *count)
{
    (void)encoder;
    *count = (uint32_t)codec_count();
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS guids(void *encoder, GUID *out, uint32_t room, uint32_t *count)
{
    guid_count(encoder, count);
    *count = *count < room ? *count : room;
    for (uint32_t i = 0; i < *count; i++)
        out[i] = codecs[i].guid;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS caps(void *encoder, GUID codec, NV_ENC_CAPS_PARAM *p, int *value)
{
    Session *s = encoder;
    int which = codec_index(&codec), hevc = which == HEVC, old = fault("old-gpu") >= 0;
    CHECK(s, p);
    if (which < 0)
        return fail(s, NV_ENC_ERR_INVALID_PARAM, "the codec is not supported");
    switch (p->capsToQuery) {
    case NV_ENC_CAPS_NUM_MAX_BFRAMES:
        *value = old && hevc ? 0 : 4;
        break;
    case NV_ENC_CAPS_SUPPORT_BFRAME_REF_MODE:
        *value = old ? 0 : 3;
        break;
    case NV_ENC_CAPS_SUPPORT_TEMPORAL_AQ:
        *value = !old;
        break;
    case NV_ENC_CAPS_SUPPORT_10BIT_ENCODE:
        *value = which != H264;
        break;
    case NV_ENC_CAPS_WIDTH_MIN:
        *value = codecs[which].min_width;
        break;
    case NV_ENC_CAPS_HEIGHT_MIN:
        *value = codecs[which].min_height;
        break;
    case NV_ENC_CAPS_WIDTH_MAX:
    case NV_ENC_CAPS_HEIGHT_MAX:
        *value = codecs[which].max_size;
        break;
    case NV_ENC_CAPS_SUPPORT_CABAC:
    case NV_ENC_CAPS_SUPPORT_DYN_BITRATE_CHANGE:
    case NV_ENC_CAPS_SUPPORT_YUV444_ENCODE:
    case NV_ENC_CAPS_SUPPORT_LOSSLESS_ENCODE:
    case NV_ENC_CAPS_SUPPORT_LOOKAHEAD:
    case NV_ENC_CAPS_SUPPORT_MULTIPLE_REF_FRAMES:
    case NV_ENC_CAPS_NUM_ENCODER_ENGINES:
        *value = 1;
        break;
    case NV_ENC_CAPS_SUPPORTED_RATECONTROL_MODES:
        *value = NV_ENC_PARAMS_RC_VBR | NV_ENC_PARAMS_RC_CBR;
        break;
    default:
        *value = 0;
    }
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS preset_count(void *encoder, GUID codec, uint32_t *count)
{
    (void)encoder, (void)codec;
    *count = PRESETS;
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS preset_guids(void *encoder, GUID codec, GUID *out, uint32_t room, uint32_t *count)
{
    preset_count(encoder, codec, count);
    *count = *count < room ? *count : room;
    for (uint32_t i = 0; i < *count; i++)
        out[i] = *presets[i];
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS preset_config(void *encoder, GUID codec, GUID preset, NV_ENC_TUNING_INFO tuning,
                                 NV_ENC_PRESET_CONFIG *p)
{
    Session *s = encoder;
    NV_ENC_CONFIG *c = &p->presetCfg;
    int which = codec_index(&codec), number = 0;
    int patient = tuning == NV_ENC_TUNING_INFO_HIGH_QUALITY || tuning == NV_ENC_TUNING_INFO_LOSSLESS;
    CHECK(s, p);
    CHECK(s, c);
    while (number < PRESETS && memcmp(presets[number], &preset, sizeof preset))
        number++;
    if (number == PRESETS || which < 0 || fault("preset") >= 0)
        return fail(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "the preset is not supported");
    c->gopLength = NVENC_INFINITE_GOPLENGTH;
    c->frameIntervalP = patient && number >= 2 ? 4 : 1; /* from P3 on there are B-frames */
    c->frameFieldMode = NV_ENC_PARAMS_FRAME_FIELD_MODE_FRAME;
    c->rcParams.version = p->version & 0xff00ffff; /* unused, and of this client's API */
    c->rcParams.rateControlMode = tuning == NV_ENC_TUNING_INFO_LOSSLESS ? NV_ENC_PARAMS_RC_CONSTQP
                                                                        : NV_ENC_PARAMS_RC_VBR;
    preset_settings(which, c);
    return NV_ENC_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ initialization */

static NVENCSTATUS initialize(void *encoder, NV_ENC_INITIALIZE_PARAMS *p)
{
    Session *s = encoder;
    Settings *t = &s->settings;
    const NV_ENC_CONFIG *c = p->encodeConfig;
    int which = codec_index(&p->encodeGUID);
    CHECK(s, p);
    if (!c || s->encoder)
        return fail(s, NV_ENC_ERR_INVALID_CALL, "initialized twice, or without a configuration");
    CHECK(s, c);
    if (which < 0 || !p->enablePTD || p->enableEncodeAsync || c->frameIntervalP < 0 || !p->frameRateDen)
        return fail(s, NV_ENC_ERR_INVALID_PARAM, "parameters that the stand-in does not take");
    if ((int)p->encodeWidth < codecs[which].min_width || (int)p->encodeHeight < codecs[which].min_height)
        return fail(s, NV_ENC_ERR_INVALID_PARAM, "Frame Dimension less than the minimum supported value.");
    if (fault("initialize") >= 0)
        return fail(s, NV_ENC_ERR_OUT_OF_MEMORY, "the GPU's memory is full");
    read_settings(which, p, t);
    s->which = which;
    s->codec = codecs[which].codec;
    s->latency = c->rcParams.enableLookahead ? t->b_frames + c->rcParams.lookaheadDepth : 0;
    if (s->latency < s->codec->latency(t->b_frames))
        s->latency = s->codec->latency(t->b_frames);
    s->encoder = s->codec->open(t);
    return s->encoder ? NV_ENC_SUCCESS : fail(s, NV_ENC_ERR_GENERIC, "the encoder behind the stand-in refuses");
}

static NVENCSTATUS reconfigure(void *encoder, NV_ENC_RECONFIGURE_PARAMS *p)
{
    Session *s = encoder;
    const NV_ENC_INITIALIZE_PARAMS *i = &p->reInitEncodeParams;
    CHECK(s, p);
    CHECK(s, i);
    if ((int)i->encodeWidth != s->settings.width || (int)i->encodeHeight != s->settings.height)
        return fail(s, NV_ENC_ERR_UNSUPPORTED_PARAM, "the stand-in does not change the size");
    if (i->encodeConfig)
        set_rate(&s->settings, &i->encodeConfig->rcParams);
    return s->codec->change_rate(s->encoder, &s->settings) < 0
               ? fail(s, NV_ENC_ERR_GENERIC, "the encoder behind the stand-in refuses")
               : NV_ENC_SUCCESS;
}

static NVENCSTATUS sequence_params(void *encoder, NV_ENC_SEQUENCE_PARAM_PAYLOAD *p)
{
    Session *s = encoder;
    CHECK(s, p);
    if (!s->encoder)
        return fail(s, NV_ENC_ERR_ENCODER_NOT_INITIALIZED, "not initialized");
    *p->outSPSPPSPayloadSize = (uint32_t)s->codec->headers(s->encoder, p->spsppsBuffer, p->inBufferSize);
    return *p->outSPSPPSPayloadSize ? NV_ENC_SUCCESS
                                    : fail(s, NV_ENC_ERR_NOT_ENOUGH_BUFFER, "no room for the parameter sets");
}

static NVENCSTATUS set_streams(void *encoder, NV_ENC_CUSTREAM_PTR input, NV_ENC_CUSTREAM_PTR output)
{
    (void)encoder, (void)input, (void)output; /* surfaces are copied in the default stream */
    return NV_ENC_SUCCESS;
}

/* ------------------------------------------------------------------------------------------ surfaces and bitstreams */

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

/* Returns the pointer to a surface in the session's list, or to the NULL at its end. */
static Surface **find_surface(Session *s, const void *wanted)
{
    Surface **at = &s->surfaces;
    while (*at && *at != wanted)
        at = &(*at)->next;
    return at;
}

static NVENCSTATUS remove_surface(void *encoder, void *surface)
{
    Surface **at = find_surface(encoder, surface), *gone = *at;
    if (!gone || gone->mapped)
        return fail(encoder, NV_ENC_ERR_RESOURCE_NOT_REGISTERED, gone ? "still mapped" : "not registered");
    *at = gone->next;
    free(gone->host);
    free(gone);
    return NV_ENC_SUCCESS;
}

static NVENCSTATUS create_input(void *encoder, NV_ENC_CREATE_INPUT_BUFFER *p)
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

static NVENCSTATUS lock_input(void *encoder, NV_ENC_LOCK_INPUT_BUFFER *p)
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

static NVENCSTATUS unlock_input(void *encoder, NV_ENC_INPUT_PTR input)
{
    return *find_surface(encoder, input) ? NV_ENC_SUCCESS : NV_ENC_ERR_INVALID_PARAM;
}

static NVENCSTATUS register_resource(void *encoder, NV_ENC_REGISTER_RESOURCE *p)
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

static NVENCSTATUS map_resource(void *encoder, NV_ENC_MAP_INPUT_RESOURCE *p)
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

static NVENCSTATUS unmap_resource(void *encoder, NV_ENC_INPUT_PTR input)
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

static NVENCSTATUS create_bitstream(void *encoder, NV_ENC_CREATE_BITSTREAM_BUFFER *p)
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

static Bitstream **find_bitstream(Session *s, const void *wanted)
{
    Bitstream **at = &s->bitstreams;
    while (*at && *at != wanted)
        at = &(*at)->next;
    return at;
}

static NVENCSTATUS destroy_bitstream(void *encoder, NV_ENC_OUTPUT_PTR bitstream)
{
    Bitstream **at = find_bitstream(encoder, bitstream), *gone = *at;
    if (!gone)
        return fail(encoder, NV_ENC_ERR_INVALID_PARAM, "no bitstream");
    *at = gone->next;
    free(gone->data);
    free(gone);
    return NV_ENC_SUCCESS;
}

/* --------------------------------------------------------------------------------------------------------- encoding */

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

static void write_log(const Session *s, int surfaces, int mapped)
{
    const char *path = getenv("NVENC_STANDIN_LOG");
    const Settings *t = &s->settings;
    FILE *file = path && s->encoder ? fopen(path, "a") : NULL;
    if (!file)
        return;
    fprintf(file,
            "{\"codec\": \"%s\", \"width\": %d, \"height\": %d, \"depth\": %d, \"full_chroma\": %d, \"b_frames\": %d, "
            "\"b_pyramid\": %d, \"gop\": %d, \"quality\": %g, \"bitrate\": %d, \"lossless\": %d, \"latency\": %lld, "
            "\"submitted\": %lld, \"locked\": %lld, \"compared\": %lld, \"poisoned\": %lld, \"registered\": %d, "
            "\"mapped\": %d}\n",
            codecs[s->which].name, t->width, t->height, t->depth, t->full_chroma, t->b_frames,
            t->b_pyramid, t->gop, t->quality, t->bitrate, t->lossless, (long long)s->latency, (long long)s->submitted,
            (long long)s->locked, (long long)s->compared, (long long)s->poisoned, surfaces, mapped);
    fclose(file);
}

static NVENCSTATUS destroy(void *encoder)
{
    Session *s = encoder;
    int surfaces = 0, mapped = 0;
    for (Surface *surface = s->surfaces; surface; surface = surface->next) {
        surfaces++;
        mapped += surface->mapped;
        surface->mapped = 0;
    }
    write_log(s, surfaces, mapped);
    while (s->surfaces)
        remove_surface(s, s->surfaces);
    while (s->bitstreams)
        destroy_bitstream(s, s->bitstreams);
    for (int i = 0; i < IN_FLIGHT; i++)
        free(s->pictures[i].copy);
    if (s->encoder)
        s->codec->close(s->encoder);
    free(s->planes);
    free(s->gray.data);
    free(s);
    pthread_mutex_lock(&counting);
    open_sessions--;
    pthread_mutex_unlock(&counting);
    return NV_ENC_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------ what is exported */

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
