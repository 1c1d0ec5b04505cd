// Answers as the driver's libcuda and libnvcuvid do, in host memory. Pictures are not decoded: all samples of Y are the
// check sum of the packet, those of U and V the next numbers, or with a slope they rise from there. Pictures come in
// the order of their times, four of them held back, and all before a picture that refreshes (H.264's IDR, HEVC's IRAP)
// and at the end.
// After `stand_in_decoder` that function decodes, and puts pictures of 4:2:0 out by `stand_in_picture`.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "nvcuvid.h"

namespace {

constexpr size_t HELD = 4;
std::atomic<int> width, height, alive, decoded, mapped, fail_at{-1}, fault, damaged_every, wider_at{-1}, held, slope;

enum Event : int { PACKET, END, GONE };
// Takes a packet, the end of a stream, or the end of a parser, of a cudaVideoCodec. Returns 0 if something has failed.
using Decode = int (*)(void *parser, Event event, int codec, int in_order, const void *data, unsigned long size,
                       long long time);
std::atomic<Decode> decode_by;

struct Coded : CUVIDPICPARAMS {
    unsigned sum = 0;
    bool damaged = false;
    std::vector<uint8_t> nv12;  // without rests of rows; empty: all samples by `sum`

    Coded(int index, int code) : CUVIDPICPARAMS{0, 0, index, 0, 0, 0}, sum(code) {}
};

struct Shown {
    long long time;
    int index;
};

struct Parser {
    CUVIDPARSERPARAMS p;
    int surfaces = 0, next = 0, width = 0, height = 0;
    std::vector<Shown> order;

    bool decode(Coded &picture, long long time) {
        next = (next + 1) % surfaces;
        if (!p.pfnDecodePicture(p.pUserData, &picture)) return false;
        if (p.pfnDisplayPicture) order.push_back({time, picture.CurrPicIdx});
        return true;
    }

    bool put_out(size_t keep) {
        while (order.size() > keep) {
            size_t first = 0;
            for (size_t i = 1; i < order.size(); i++)
                if (order[i].time < order[first].time) first = i;
            CUVIDPARSERDISPINFO shown{order[first].index, 1, 0, 0, order[first].time};
            order.erase(order.begin() + first);
            if (!p.pfnDisplayPicture(p.pUserData, &shown)) return false;
        }
        return true;
    }

    bool begin(int w, int h) {
        width = w, height = h;
        CUVIDEOFORMAT f{};
        f.codec = p.CodecType, f.min_num_decode_surfaces = 6, f.chroma_format = cudaVideoChromaFormat_420;
        f.display_area = {0, 0, width, height};
        if (wider_at >= 0 && decoded >= wider_at) f.display_area.right += 16;
        f.coded_width = (f.display_area.right + 15) & ~15, f.coded_height = (height + 15) & ~15;
        surfaces = p.pfnSequenceCallback(p.pUserData, &f);
        return surfaces;
    }
};

struct Decoder {
    CUVIDDECODECREATEINFO made;
    uint8_t content[64]{};
    std::vector<uint8_t> nv12[64];
    bool damaged[64]{}, done[64]{};
    int mapped = 0;
};

// Returns whether a packet of NAL units has a picture that refreshes.
bool refreshes(const uint8_t *d, size_t size, int codec) {
    for (size_t i = 0; i + 3 < size; i++) {
        if (d[i] || d[i + 1] || d[i + 2] != 1) continue;
        const int hevc = d[i + 3] >> 1 & 63, avc = d[i + 3] & 31;
        if (codec == 8 ? hevc >= 16 && hevc < 24 : avc == 5) return true;
    }
    return false;
}

}  // namespace

extern "C" {

void stand_in_size(int w, int h) { width = w, height = h; }
// From now on: picture `at` fails with error `number`, every `every`-th one is damaged, those after `wider` are wider.
void stand_in_faults(int at, int number, int every, int wider) {
    decoded = mapped = 0, fail_at = at, fault = number, damaged_every = every, wider_at = wider;
}
void stand_in_slope(int on) { slope = on; }  // samples rise by 1 from one to the next, and by 3 from row to row
int stand_in_alive() { return alive; }
void stand_in_decoder(Decode by) { decode_by = by; }
void stand_in_held(int pictures) { held = pictures; }  // that its parsers hold back where they may put any out
// Puts out the next picture of a parser in 4:2:0. Returns 0 if something has failed.
int stand_in_picture(void *parser, long long time, int w, int h, const uint8_t *y, const uint8_t *u, const uint8_t *v,
                     int damaged) {
    Parser &s = *(Parser *)parser;
    if ((s.width != w || s.height != h) && (!s.put_out(0) || !s.begin(w, h))) return 0;
    Coded picture(s.next, 0);
    picture.damaged = damaged;
    picture.nv12.assign(y, y + w * h);
    for (int i = 0; i < w * h / 4; i++) picture.nv12.push_back(u[i]), picture.nv12.push_back(v[i]);
    return s.decode(picture, time) && s.put_out(held);
}
int stand_in_mapped() { return mapped; }  // surfaces since `stand_in_faults`

CUresult cuCtxGetCurrent(CUcontext *c) { return *c = (CUcontext)16, 0; }
CUresult cuCtxPushCurrent_v2(CUcontext c) { return c == (CUcontext)16 ? 0 : 201; }
CUresult cuCtxPopCurrent_v2(CUcontext *c) { return *c = (CUcontext)16, 0; }
CUresult cuStreamSynchronize(CUstream) { return 0; }

// A kernel whose arguments come in a buffer is a function of the host, see host_kernels.py. Others are unpack.cu's.
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned,
                        CUstream, void **a, void **extra) {
    if (extra) {
        ((void (*)(int, int, int, const void *))function)(gx * bx, gy * by, gz * bz, extra[1]);
        return 0;
    }
    const uint8_t *surface = *(uint8_t **)a[0];
    const long long pitch = *(long long *)a[1], row = *(int *)a[7];
    uint8_t *y = *(uint8_t **)a[2], *u = *(uint8_t **)a[3], *v = *(uint8_t **)a[4];
    const int w = *(int *)a[5], h = *(int *)a[6];
    if (gx * bx * 4 < (unsigned)w || gy * by < (unsigned)h || gz * bz != 1) return 1;
    for (int j = 0; j < h; j++) memcpy(y + (row * h + j) * w, surface + j * pitch, w);
    for (int j = 0; j < h / 2; j++)
        for (int i = 0; i < w / 2; i++) {
            const uint8_t *uv = surface + (h + j) * pitch + 2 * i;
            u[(row * (h / 2) + j) * (w / 2) + i] = uv[0], v[(row * (h / 2) + j) * (w / 2) + i] = uv[1];
        }
    return 0;
}

CUresult cuvidCreateVideoParser(CUvideoparser *made, CUVIDPARSERPARAMS *p) {
    alive++;
    *made = new Parser{*p};
    return 0;
}
CUresult cuvidDestroyVideoParser(CUvideoparser given) {
    alive--;
    if (decode_by) decode_by.load()(given, GONE, 0, 0, nullptr, 0, 0);
    delete (Parser *)given;
    return 0;
}
CUresult cuvidParseVideoData(CUvideoparser given, CUVIDSOURCEDATAPACKET *packet) {
    Parser &s = *(Parser *)given;
    const bool end = packet->flags & CUVID_PKT_ENDOFSTREAM;
    if (decode_by && !decode_by.load()(given, end ? END : PACKET, s.p.CodecType, !s.p.pfnDisplayPicture,
                                       packet->payload, packet->payload_size, packet->timestamp))
        return 999;
    if (end) return s.put_out(0) ? 0 : 999;
    if (decode_by) return 0;
    const auto *data = (const uint8_t *)packet->payload;
    unsigned sum = 7;
    for (size_t i = 0; i < packet->payload_size; i++) sum += data[i];
    const bool vp9 = s.p.CodecType == 10;
    if (vp9 ? !s.surfaces : refreshes(data, packet->payload_size, s.p.CodecType))
        if (!s.put_out(0) || !s.begin(width, height)) return 999;
    if (!s.surfaces) return 0;
    Coded picture(s.next, sum);
    if (!s.decode(picture, packet->timestamp)) return 999;
    return s.put_out(vp9 ? 0 : HELD) ? 0 : 999;
}

CUresult cuvidCreateDecoder(CUvideodecoder *made, CUVIDDECODECREATEINFO *info) {
    alive++;
    *made = new Decoder{*info};
    return 0;
}
CUresult cuvidDestroyDecoder(CUvideodecoder given) {
    alive--;
    const int mapped = ((Decoder *)given)->mapped;
    delete (Decoder *)given;
    return mapped ? 999 : 0;
}
CUresult cuvidDecodePicture(CUvideodecoder given, CUVIDPICPARAMS *picture) {
    auto &d = *(Decoder *)given;
    const int number = decoded++;
    if (number == fail_at) return fault;
    const auto &coded = *(Coded *)picture;
    const int index = picture->CurrPicIdx;
    d.content[index] = (uint8_t)coded.sum;
    d.nv12[index] = coded.nv12;
    d.done[index] = false;
    d.damaged[index] = coded.damaged || (damaged_every && number % damaged_every == 0);
    return 0;
}
CUresult cuvidGetDecodeStatus(CUvideodecoder given, int index, CUVIDGETDECODESTATUS *status) {
    auto &d = *(Decoder *)given;
    status->decodeStatus = !d.done[index] ? 1 : d.damaged[index] ? 8 + index % 2 : 2;
    d.done[index] = true;  // at the next look
    return 0;
}
CUresult cuvidMapVideoFrame64(CUvideodecoder given, int index, unsigned long long *surface, unsigned *pitch,
                              CUVIDPROCPARAMS *) {
    auto &d = *(Decoder *)given;
    if (d.mapped++) return 205;
    mapped++;
    d.done[index] = true;
    *pitch = (unsigned)(d.made.ulTargetWidth + 511) & ~511u;
    const size_t luma = *pitch * d.made.ulTargetHeight;
    auto *made = (uint8_t *)malloc(luma * 3 / 2);
    memset(made, d.content[index], luma);
    for (size_t i = 0; i < luma / 2; i++) made[luma + i] = (uint8_t)(d.content[index] + 1 + i % 2);
    const size_t across = d.made.ulTargetWidth;
    for (size_t row = 0; row < d.nv12[index].size() / across; row++)
        memcpy(made + row * *pitch, &d.nv12[index][row * across], across);
    for (size_t i = 0; slope && i < luma * 3 / 2; i++) made[i] += (uint8_t)(i % *pitch + 3 * (i / *pitch));
    *surface = (unsigned long long)made;
    return 0;
}
CUresult cuvidUnmapVideoFrame64(CUvideodecoder given, unsigned long long surface) {
    ((Decoder *)given)->mapped--;
    free((void *)surface);
    return 0;
}
}
