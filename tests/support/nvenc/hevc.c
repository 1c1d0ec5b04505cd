/* HEVC by x265, with as little delay as its B-frames allow. */
#include "codec.h" /* x265.h needs its stdint.h */

#include <stdlib.h>
#include <string.h>
#include <x265.h>

typedef struct {
    const x265_api *api;
    x265_param *param;
    x265_encoder *encoder;
    x265_picture *in, *out;
    uint8_t *packet;
    size_t room;
} Hevc;

static void set_rate(x265_param *p, const Settings *s)
{
    p->bLossless = s->lossless;
    if (s->lossless || s->constant_qp >= 0) {
        p->rc.rateControlMode = X265_RC_CQP;
        p->rc.qp = s->lossless ? 0 : s->constant_qp;
    } else if (s->bitrate) {
        p->rc.rateControlMode = X265_RC_ABR;
        p->rc.bitrate = p->rc.vbvMaxBitrate = p->rc.vbvBufferSize = s->bitrate / 1000; /* else it is fixed */
    } else {
        p->rc.rateControlMode = X265_RC_CRF;
        p->rc.rfConstant = s->quality;
    }
}

static void set_parameters(x265_param *p, const Settings *s)
{
    p->logLevel = X265_LOG_NONE;
    p->frameNumThreads = 1; /* several would hold pictures back */
    p->sourceBitDepth = s->depth;
    p->internalCsp = s->full_chroma ? X265_CSP_I444 : X265_CSP_I420;
    p->sourceWidth = s->width;
    p->sourceHeight = s->height;
    p->fpsNum = s->fps_num;
    p->fpsDenom = s->fps_den;
    p->vui.aspectRatioIdc = X265_EXTENDED_SAR;
    p->vui.sarWidth = s->aspect_num;
    p->vui.sarHeight = s->aspect_den;
    p->vui.bEnableVideoSignalTypePresentFlag = p->vui.bEnableColorDescriptionPresentFlag = 1;
    p->vui.videoFormat = 5; /* unspecified */
    p->vui.bEnableVideoFullRangeFlag = s->full_range;
    p->vui.colorPrimaries = s->primaries;
    p->vui.transferCharacteristics = s->transfer;
    p->vui.matrixCoeffs = s->matrix;
    p->bAnnexB = 1;
    p->bRepeatHeaders = s->in_band;
    p->bEnableAccessUnitDelimiters = s->delimiters;
    p->bEmitInfoSEI = 0;
    p->keyframeMax = s->gop ? s->gop : 1 << 20;
    p->bOpenGOP = 0;
    p->scenecutThreshold = 0;
    p->bframes = s->b_frames;
    p->bFrameAdaptive = 0;
    p->bBPyramid = s->b_pyramid;
    p->lookaheadDepth = s->b_frames ? s->b_frames + 1 : 0;
    p->rc.cuTree = 0;
    set_rate(p, s);
}

static void close_encoder(void *encoder)
{
    Hevc *h = encoder;
    if (h->encoder)
        h->api->encoder_close(h->encoder);
    h->api->picture_free(h->in);
    h->api->picture_free(h->out);
    h->api->param_free(h->param);
    free(h->packet);
    free(h);
}

static void *open_encoder(const Settings *s)
{
    const x265_api *api = x265_api_get(s->depth);
    Hevc *h = api ? calloc(1, sizeof *h) : NULL;
    if (!h)
        return NULL;
    h->api = api;
    h->param = api->param_alloc();
    h->in = api->picture_alloc();
    h->out = api->picture_alloc();
    api->param_default_preset(h->param, "ultrafast", NULL);
    set_parameters(h->param, s);
    h->encoder = api->encoder_open(h->param);
    if (h->encoder)
        return h;
    close_encoder(h);
    return NULL;
}

static int change_rate(void *encoder, const Settings *s)
{
    Hevc *h = encoder;
    set_rate(h->param, s);
    return h->api->encoder_reconfig(h->encoder, h->param);
}

static size_t headers(void *encoder, uint8_t *out, size_t room)
{
    Hevc *h = encoder;
    x265_nal *nals;
    uint32_t count;
    size_t size = 0;
    if (h->api->encoder_headers(h->encoder, &nals, &count) < 0)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (size + nals[i].sizeBytes > room)
            return 0;
        memcpy(out + size, nals[i].payload, nals[i].sizeBytes);
        size += nals[i].sizeBytes;
    }
    return size;
}

static int encode(void *encoder, const Picture *picture, int64_t number, Packet *packet)
{
    Hevc *h = encoder;
    x265_nal *nals;
    uint32_t count;
    int result;
    if (picture) {
        h->api->picture_init(h->param, h->in);
        h->in->pts = number;
        h->in->bitDepth = h->param->sourceBitDepth;
        for (int i = 0; i < 3; i++) {
            h->in->planes[i] = picture->plane[i];
            h->in->stride[i] = (int)picture->stride[i];
        }
    }
    result = h->api->encoder_encode(h->encoder, &nals, &count, picture ? h->in : NULL, h->out);
    if (result <= 0)
        return result;
    packet->size = 0;
    for (uint32_t i = 0; i < count; i++)
        packet->size += nals[i].sizeBytes;
    if (packet->size > h->room) {
        free(h->packet);
        h->room = packet->size * 2;
        h->packet = malloc(h->room);
        if (!h->packet)
            return -1;
    }
    packet->data = h->packet;
    for (uint32_t i = 0, at = 0; i < count; at += nals[i++].sizeBytes)
        memcpy(h->packet + at, nals[i].payload, nals[i].sizeBytes);
    packet->number = h->out->pts;
    packet->type = h->out->sliceType == X265_TYPE_IDR ? 'K'
                   : h->out->sliceType == X265_TYPE_I ? 'I'
                   : h->out->sliceType == X265_TYPE_P ? 'P'
                                                      : 'B';
    return 1;
}

static int latency(int b_frames)
{
    return b_frames ? 2 * b_frames + 4 : 0; /* found by trial */
}

const Codec hevc_codec = {open_encoder, headers, encode, change_rate, close_encoder, latency};
