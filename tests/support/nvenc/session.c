/* Sessions from their beginning to their end, what they can do, and what a client sets. */
#include "session.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int open_sessions;

int chosen(const char *name)
{
    const char *value = getenv(name);
    return value ? atoi(value) : 0;
}

int64_t fault(const char *name)
{
    const char *value = getenv("NVENC_STANDIN_FAULT");
    size_t length = strlen(name);
    if (!value || strncmp(value, name, length) || (value[length] && value[length] != '@'))
        return -1;
    return value[length] ? atoll(value + length + 1) : 0;
}

NVENCSTATUS fail(Session *s, NVENCSTATUS status, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(s->error, sizeof s->error, format, values);
    va_end(values);
    return status;
}

int valid(const Session *s, uint32_t version)
{
    return (version & 0x0f0000ff) == s->api && (version >> 28 & 7) == 7;
}

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

NVENCSTATUS open_session(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *p, void **encoder)
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

const char *last_error(void *encoder)
{
    return ((Session *)encoder)->error;
}

NVENCSTATUS guid_count(void *encoder, uint32_t *count)
{
    (void)encoder;
    *count = (uint32_t)codec_count();
    return NV_ENC_SUCCESS;
}

NVENCSTATUS guids(void *encoder, GUID *out, uint32_t room, uint32_t *count)
{
    guid_count(encoder, count);
    *count = *count < room ? *count : room;
    for (uint32_t i = 0; i < *count; i++)
        out[i] = codecs[i].guid;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS caps(void *encoder, GUID codec, NV_ENC_CAPS_PARAM *p, int *value)
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

NVENCSTATUS preset_count(void *encoder, GUID codec, uint32_t *count)
{
    (void)encoder, (void)codec;
    *count = PRESETS;
    return NV_ENC_SUCCESS;
}

NVENCSTATUS preset_guids(void *encoder, GUID codec, GUID *out, uint32_t room, uint32_t *count)
{
    preset_count(encoder, codec, count);
    *count = *count < room ? *count : room;
    for (uint32_t i = 0; i < *count; i++)
        out[i] = *presets[i];
    return NV_ENC_SUCCESS;
}

NVENCSTATUS preset_config(void *encoder, GUID codec, GUID preset, NV_ENC_TUNING_INFO tuning,
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

NVENCSTATUS initialize(void *encoder, NV_ENC_INITIALIZE_PARAMS *p)
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

NVENCSTATUS reconfigure(void *encoder, NV_ENC_RECONFIGURE_PARAMS *p)
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

NVENCSTATUS sequence_params(void *encoder, NV_ENC_SEQUENCE_PARAM_PAYLOAD *p)
{
    Session *s = encoder;
    CHECK(s, p);
    if (!s->encoder)
        return fail(s, NV_ENC_ERR_ENCODER_NOT_INITIALIZED, "not initialized");
    *p->outSPSPPSPayloadSize = (uint32_t)s->codec->headers(s->encoder, p->spsppsBuffer, p->inBufferSize);
    return *p->outSPSPPSPayloadSize ? NV_ENC_SUCCESS
                                    : fail(s, NV_ENC_ERR_NOT_ENOUGH_BUFFER, "no room for the parameter sets");
}

NVENCSTATUS set_streams(void *encoder, NV_ENC_CUSTREAM_PTR input, NV_ENC_CUSTREAM_PTR output)
{
    (void)encoder, (void)input, (void)output; /* surfaces are copied in the default stream */
    return NV_ENC_SUCCESS;
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
            "\"b_pyramid\": %d, \"gop\": %d, \"quality\": %g, \"bitrate\": %d, \"lossless\": %d, ",
            codecs[s->which].name, t->width, t->height, t->depth, t->full_chroma, t->b_frames, t->b_pyramid, t->gop,
            t->quality, t->bitrate, t->lossless);
    fprintf(file,
            "\"latency\": %lld, \"submitted\": %lld, \"locked\": %lld, \"compared\": %lld, \"changed\": %lld, "
            "\"poisoned\": %lld, \"registered\": %d, \"mapped\": %d}\n",
            (long long)s->latency, (long long)s->submitted, (long long)s->locked, (long long)s->compared,
            (long long)s->changed, (long long)s->poisoned, surfaces, mapped);
    fclose(file);
}

NVENCSTATUS destroy(void *encoder)
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
