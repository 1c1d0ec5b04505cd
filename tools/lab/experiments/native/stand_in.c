// Answers as libcuda and libnvcuvid do, in host memory: pictures are made up from a packet's bytes, not decoded.
// A picture's samples are its packet's check sum; pictures come in the order of their times, a few held back, and all
// of them before one that refreshes (H.264's IDR, HEVC's IRAP) and at the end of the stream.
#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_nvcuvid.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD = 4, MOST = 64 };

CUresult cuCtxGetCurrent(CUcontext *c) { *c = (CUcontext)16; return 0; }
CUresult cuCtxPushCurrent_v2(CUcontext c) { return c == (CUcontext)16 ? 0 : 201; }
CUresult cuCtxPopCurrent_v2(CUcontext *c) { *c = (CUcontext)16; return 0; }
CUresult cuGetErrorName(CUresult e, const char **n) { *n = e ? "CUDA_ERROR_MADE_UP" : "CUDA_SUCCESS"; return 0; }
CUresult cuStreamSynchronize(CUstream s) { (void)s; return 0; }

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **a, void **extra) {
    (void)f, (void)shared, (void)stream, (void)extra;
    const uint8_t *surface = *(uint8_t **)a[0];
    const long long pitch = *(long long *)a[1];
    uint8_t *y = *(uint8_t **)a[2], *u = *(uint8_t **)a[3], *v = *(uint8_t **)a[4];
    const int width = *(int *)a[5], height = *(int *)a[6], row = *(int *)a[7];
    if (gx * bx * 4 < (unsigned)width || gy * by < (unsigned)height || gz * bz != 1) return 1;
    for (int j = 0; j < height; j++) memcpy(y + ((long long)row * height + j) * width, surface + j * pitch, width);
    for (int j = 0; j < height / 2; j++)
        for (int i = 0; i < width / 2; i++) {
            const uint8_t *uv = surface + (height + j) * pitch + 2 * i;
            u[((long long)row * (height / 2) + j) * (width / 2) + i] = uv[0];
            v[((long long)row * (height / 2) + j) * (width / 2) + i] = uv[1];
        }
    return 0;
}

typedef struct {
    CUVIDPARSERPARAMS p;
    int surfaces, next, held;
    struct { long long time; int index; } order[MOST];
} Parser;

typedef struct { CUVIDDECODECREATEINFO i; uint8_t content[MOST]; int mapped; } Decoder;

CUresult cuvidCreateVideoParser(CUvideoparser *o, CUVIDPARSERPARAMS *p) {
    Parser *made = calloc(1, sizeof *made);
    made->p = *p;
    *o = made;
    return 0;
}
CUresult cuvidDestroyVideoParser(CUvideoparser o) { free(o); return 0; }

static int out(Parser *s, int keep) {
    while (s->held > keep) {
        int first = 0;
        for (int i = 1; i < s->held; i++) if (s->order[i].time < s->order[first].time) first = i;
        CUVIDPARSERDISPINFO d = {.picture_index = s->order[first].index, .progressive_frame = 1, .timestamp = s->order[first].time};
        s->order[first] = s->order[--s->held];
        if (!s->p.pfnDisplayPicture(s->p.pUserData, &d)) return 0;
    }
    return 1;
}

CUresult cuvidParseVideoData(CUvideoparser o, CUVIDSOURCEDATAPACKET *k) {
    Parser *s = o;
    if (k->flags & CUVID_PKT_ENDOFSTREAM) return out(s, 0) ? 0 : 999;
    const uint8_t *d = k->payload;
    int idr = 0;
    unsigned sum = 7;
    for (tcu_ulong i = 0; i < k->payload_size; i++) {
        sum += d[i];
        if (i + 3 < k->payload_size && !d[i] && !d[i + 1] && d[i + 2] == 1) {
            const int hevc = s->p.CodecType == cudaVideoCodec_HEVC, type = hevc ? d[i + 3] >> 1 & 63 : d[i + 3] & 31;
            idr |= hevc ? type >= 16 && type < 24 : type == 5;
        }
    }
    if (s->p.CodecType == cudaVideoCodec_VP9) idr = !s->surfaces;
    if (idr) {
        if (!out(s, 0)) return 999;
        CUVIDEOFORMAT f = {.codec = s->p.CodecType, .progressive_sequence = 1, .min_num_decode_surfaces = 6, .chroma_format = cudaVideoChromaFormat_420};
        f.display_area.right = atoi(getenv("STAND_IN_WIDTH")), f.display_area.bottom = atoi(getenv("STAND_IN_HEIGHT"));
        f.coded_width = (f.display_area.right + 15) & ~15, f.coded_height = (f.display_area.bottom + 15) & ~15;
        s->surfaces = s->p.pfnSequenceCallback(s->p.pUserData, &f);
        if (!s->surfaces) return 999;
    }
    if (!s->surfaces) return 0;
    CUVIDPICPARAMS picture = {.CurrPicIdx = s->next, .nBitstreamDataLen = sum};
    s->next = (s->next + 1) % s->surfaces;
    if (!s->p.pfnDecodePicture(s->p.pUserData, &picture)) return 999;
    s->order[s->held].time = k->timestamp, s->order[s->held++].index = picture.CurrPicIdx;
    return out(s, s->p.CodecType == cudaVideoCodec_VP9 ? 0 : HELD) ? 0 : 999;
}

CUresult cuvidCreateDecoder(CUvideodecoder *o, CUVIDDECODECREATEINFO *i) {
    Decoder *made = calloc(1, sizeof *made);
    made->i = *i;
    *o = made;
    return 0;
}
CUresult cuvidDestroyDecoder(CUvideodecoder o) {
    Decoder *d = o;
    const int mapped = d->mapped;
    free(d);
    return mapped ? 999 : 0;
}
CUresult cuvidDecodePicture(CUvideodecoder o, CUVIDPICPARAMS *p) {
    ((Decoder *)o)->content[p->CurrPicIdx] = (uint8_t)p->nBitstreamDataLen;
    return 0;
}
CUresult cuvidGetDecodeStatus(CUvideodecoder o, int i, CUVIDGETDECODESTATUS *s) {
    (void)o, (void)i;
    s->decodeStatus = cuvidDecodeStatus_Success;
    return 0;
}
CUresult cuvidMapVideoFrame64(CUvideodecoder o, int index, unsigned long long *p, unsigned *pitch, CUVIDPROCPARAMS *v) {
    Decoder *d = o;
    (void)v;
    if (d->mapped++) return 205;
    *pitch = (unsigned)(d->i.ulTargetWidth + 511) & ~511u;
    const size_t luma = *pitch * d->i.ulTargetHeight;
    uint8_t *made = malloc(luma * 3 / 2);
    memset(made, d->content[index], luma);
    for (size_t i = 0; i < luma / 2; i++) made[luma + i] = (uint8_t)(d->content[index] + 1 + i % 2);
    *p = (unsigned long long)made;
    return 0;
}
CUresult cuvidUnmapVideoFrame64(CUvideodecoder o, unsigned long long p) {
    ((Decoder *)o)->mapped--;
    free((void *)p);
    return 0;
}
