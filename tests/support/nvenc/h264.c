/* H.264 by x264, with as little delay as its B-frames allow. */
#include "codec.h" /* x264.h needs its stdint.h */

#include <string.h>
#include <x264.h>

static void set_rate(x264_param_t *p, const Settings *s)
{
    if (s->lossless || s->constant_qp >= 0) {
        p->rc.i_rc_method = X264_RC_CQP;
        p->rc.i_qp_constant = s->lossless ? 0 : s->constant_qp;
    } else if (s->bitrate) {
        p->rc.i_rc_method = X264_RC_ABR;
        p->rc.i_bitrate = p->rc.i_vbv_max_bitrate = p->rc.i_vbv_buffer_size = s->bitrate / 1000; /* else it is fixed */
    } else {
        p->rc.i_rc_method = X264_RC_CRF;
        p->rc.f_rf_constant = s->quality;
    }
}

static void *open_encoder(const Settings *s)
{
    x264_param_t p;
    if (x264_param_default_preset(&p, "veryfast", NULL) < 0)
        return NULL;
    p.i_log_level = X264_LOG_ERROR;
    p.i_threads = 4; /* slices: threads for whole pictures would hold pictures back */
    p.b_sliced_threads = 1;
    p.i_csp = s->full_chroma ? X264_CSP_I444 : X264_CSP_I420;
    p.i_width = s->width;
    p.i_height = s->height;
    p.i_fps_num = s->fps_num;
    p.i_fps_den = s->fps_den;
    p.i_timebase_num = s->fps_den; /* pictures count 0, 1, 2 */
    p.i_timebase_den = s->fps_num;
    p.b_vfr_input = 0;
    p.vui.i_sar_width = s->aspect_num;
    p.vui.i_sar_height = s->aspect_den;
    p.vui.b_fullrange = s->full_range;
    p.vui.i_colorprim = s->primaries;
    p.vui.i_transfer = s->transfer;
    p.vui.i_colmatrix = s->matrix;
    p.b_repeat_headers = s->in_band;
    p.b_annexb = 1;
    p.b_aud = s->delimiters;
    p.i_keyint_max = s->gop ? s->gop : X264_KEYINT_MAX_INFINITE;
    p.i_scenecut_threshold = 0;
    p.i_bframe = s->b_frames;
    p.i_bframe_adaptive = X264_B_ADAPT_NONE;
    p.i_bframe_pyramid = s->b_pyramid ? X264_B_PYRAMID_NORMAL : X264_B_PYRAMID_NONE;
    p.rc.i_lookahead = 0;
    p.rc.b_mb_tree = 0;
    p.i_sync_lookahead = 0;
    set_rate(&p, s);
    return x264_encoder_open(&p);
}

static int change_rate(void *encoder, const Settings *s)
{
    x264_param_t p;
    x264_encoder_parameters(encoder, &p);
    set_rate(&p, s);
    return x264_encoder_reconfig(encoder, &p);
}

static size_t headers(void *encoder, uint8_t *out, size_t room)
{
    x264_nal_t *nals;
    int count;
    size_t size = 0;
    if (x264_encoder_headers(encoder, &nals, &count) < 0)
        return 0;
    for (int i = 0; i < count; i++) {
        if (nals[i].i_type == NAL_SEI)
            continue;
        if (size + nals[i].i_payload > room)
            return 0;
        memcpy(out + size, nals[i].p_payload, nals[i].i_payload);
        size += nals[i].i_payload;
    }
    return size;
}

static int encode(void *encoder, const Picture *picture, int64_t number, Packet *packet)
{
    x264_picture_t in, out;
    x264_nal_t *nals;
    x264_param_t p;
    int count, size;
    if (!picture && !x264_encoder_delayed_frames(encoder))
        return 0;
    if (picture) {
        x264_encoder_parameters(encoder, &p);
        x264_picture_init(&in);
        in.img.i_csp = p.i_csp;
        in.img.i_plane = 3;
        in.i_pts = number;
        for (int i = 0; i < 3; i++) {
            in.img.plane[i] = picture->plane[i];
            in.img.i_stride[i] = (int)picture->stride[i];
        }
    }
    size = x264_encoder_encode(encoder, &nals, &count, picture ? &in : NULL, &out);
    if (size <= 0)
        return size;
    packet->data = nals[0].p_payload;
    packet->size = size;
    packet->number = out.i_pts;
    packet->type = out.b_keyframe ? 'K' : IS_X264_TYPE_I(out.i_type) ? 'I' : IS_X264_TYPE_B(out.i_type) ? 'B' : 'P';
    return 1;
}

static void close_encoder(void *encoder)
{
    x264_encoder_close(encoder);
}

static int latency(int b_frames)
{
    return b_frames;
}

const Codec h264_codec = {open_encoder, headers, encode, change_rate, close_encoder, latency};
