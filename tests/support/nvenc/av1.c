/* AV1 by libaom, without B-frames and delay. */
#include "codec.h"

#include <aom/aom_encoder.h>
#include <aom/aomcx.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    aom_codec_ctx_t context;
    aom_image_t image;
    int deep;
} Av1;

static void *open_encoder(const Settings *s)
{
    aom_codec_iface_t *codec = aom_codec_av1_cx();
    aom_codec_enc_cfg_t c;
    Av1 *a = calloc(1, sizeof *a);
    if (!a || s->full_chroma || aom_codec_enc_config_default(codec, &c, AOM_USAGE_GOOD_QUALITY)) {
        free(a);
        return NULL;
    }
    a->deep = s->depth > 8;
    c.g_w = s->width;
    c.g_h = s->height;
    c.g_timebase.num = (int)s->fps_den; /* pictures count 0, 1, 2 */
    c.g_timebase.den = (int)s->fps_num;
    c.g_bit_depth = c.g_input_bit_depth = s->depth;
    c.g_lag_in_frames = 0;
    c.rc_end_usage = AOM_Q;
    c.kf_max_dist = s->gop ? s->gop : 1 << 20;
    if (aom_codec_enc_init(&a->context, codec, &c, a->deep ? AOM_CODEC_USE_HIGHBITDEPTH : 0)) {
        free(a);
        return NULL;
    }
    aom_codec_control(&a->context, AOME_SET_CPUUSED, 6);
    aom_codec_control(&a->context, AOME_SET_CQ_LEVEL, (unsigned)s->quality);
    aom_codec_control(&a->context, AV1E_SET_COLOR_PRIMARIES, s->primaries);
    aom_codec_control(&a->context, AV1E_SET_TRANSFER_CHARACTERISTICS, s->transfer);
    aom_codec_control(&a->context, AV1E_SET_MATRIX_COEFFICIENTS, s->matrix);
    aom_codec_control(&a->context, AV1E_SET_COLOR_RANGE, s->full_range);
    a->image.fmt = a->deep ? AOM_IMG_FMT_I42016 : AOM_IMG_FMT_I420;
    a->image.w = a->image.d_w = s->width;
    a->image.h = a->image.d_h = s->height;
    a->image.x_chroma_shift = a->image.y_chroma_shift = 1;
    a->image.bit_depth = s->depth;
    a->image.bps = a->deep ? 24 : 12;
    return a;
}

static int change_rate(void *encoder, const Settings *s)
{
    return aom_codec_control(&((Av1 *)encoder)->context, AOME_SET_CQ_LEVEL, (unsigned)s->quality) ? -1 : 0;
}

static size_t headers(void *encoder, uint8_t *out, size_t room)
{
    aom_fixed_buf_t *sets = aom_codec_get_global_headers(&((Av1 *)encoder)->context);
    size_t size = sets && sets->sz <= room ? sets->sz : 0;
    if (size)
        memcpy(out, sets->buf, size);
    if (sets)
        free(sets->buf);
    free(sets);
    return size;
}

static int encode(void *encoder, const Picture *picture, int64_t number, Packet *packet)
{
    Av1 *a = encoder;
    aom_codec_iter_t at = NULL;
    const aom_codec_cx_pkt_t *made;
    for (int i = 0; i < 3 && picture; i++) {
        a->image.planes[i] = picture->plane[i];
        a->image.stride[i] = (int)picture->stride[i];
    }
    if (aom_codec_encode(&a->context, picture ? &a->image : NULL, number, 1, 0))
        return -1;
    made = aom_codec_get_cx_data(&a->context, &at);
    if (!made)
        return 0;
    packet->data = made->data.frame.buf;
    packet->size = made->data.frame.sz;
    packet->number = made->data.frame.pts;
    packet->type = made->data.frame.flags & AOM_FRAME_IS_KEY ? 'K' : 'P';
    return 1;
}

static void close_encoder(void *encoder)
{
    aom_codec_destroy(&((Av1 *)encoder)->context);
    free(encoder);
}

static int latency(int b_frames)
{
    (void)b_frames;
    return 0;
}

const Codec av1_codec = {open_encoder, headers, encode, change_rate, close_encoder, latency};
