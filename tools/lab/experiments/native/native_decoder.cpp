// Decodes many packets in one call, through the driver's own NVDEC API. Python gives the GIL up once a call.
// Built with: g++ -std=c++17 -O2 -fPIC -shared -o libnative_decoder.so native_decoder.cpp -ldl
// The headers are those of the Debian package libffmpeg-nvenc-dev, in ffnvcodec/.

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chrono>
#include <deque>
#include <mutex>

#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_nvcuvid.h>

static_assert(sizeof(tcu_ulong) == 8 && sizeof(CUdeviceptr) == 8, "64-bit Linux");
static_assert(sizeof(CUVIDDECODECREATEINFO) == 176 && offsetof(CUVIDDECODECREATEINFO, display_area) == 80, "layout");
static_assert(sizeof(CUVIDPARSERPARAMS) == 136 && offsetof(CUVIDPARSERPARAMS, pUserData) == 40, "layout");
static_assert(sizeof(CUVIDSOURCEDATAPACKET) == 32 && sizeof(CUVIDPARSERDISPINFO) == 24, "layout");
static_assert(sizeof(CUVIDPROCPARAMS) == 264 && offsetof(CUVIDPROCPARAMS, output_stream) == 56, "layout");

namespace {

constexpr int MOST_SETS = 20, THREADS_X = 32, THREADS_Y = 8, MOST_SURFACES = 32;
enum Keep : uint8_t { DROP = 0, UNPACK = 1, MAP_ONLY = 2 };

struct Driver {
    CUresult (*cuCtxGetCurrent)(CUcontext *);
    CUresult (*cuCtxPushCurrent_v2)(CUcontext);
    CUresult (*cuCtxPopCurrent_v2)(CUcontext *);
    CUresult (*cuGetErrorName)(CUresult, const char **);
    CUresult (*cuStreamSynchronize)(CUstream);
    CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream, void **, void **);
    tcuvidCreateVideoParser *cuvidCreateVideoParser;
    tcuvidParseVideoData *cuvidParseVideoData;
    tcuvidDestroyVideoParser *cuvidDestroyVideoParser;
    tcuvidCreateDecoder *cuvidCreateDecoder;
    tcuvidDestroyDecoder *cuvidDestroyDecoder;
    tcuvidDecodePicture *cuvidDecodePicture;
    tcuvidGetDecodeStatus *cuvidGetDecodeStatus;
    tcuvidMapVideoFrame64 *cuvidMapVideoFrame64;
    tcuvidUnmapVideoFrame64 *cuvidUnmapVideoFrame64;
    char error[256] = "";
};

void *open_library(const char *variable, const char *name, char *error, size_t size) {
    const char *chosen = getenv(variable);
    void *library = dlopen(chosen ? chosen : name, RTLD_NOW | RTLD_LOCAL);
    if (!library) snprintf(error, size, "%s", dlerror());
    return library;
}

Driver load() {
    Driver d{};
    void *cuda = open_library("NATIVE_LIBCUDA", "libcuda.so.1", d.error, sizeof d.error);
    void *nvdec = cuda ? open_library("NATIVE_LIBNVCUVID", "libnvcuvid.so.1", d.error, sizeof d.error) : nullptr;
    if (!nvdec) return d;
    auto find = [&](void *library, auto &function, const char *name) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
        if (!function) snprintf(d.error, sizeof d.error, "the driver has no %s", name);
    };
#define CUDA(name) find(cuda, d.name, #name)
#define NVDEC(name) find(nvdec, d.name, #name)
    CUDA(cuCtxGetCurrent), CUDA(cuCtxPushCurrent_v2), CUDA(cuCtxPopCurrent_v2), CUDA(cuGetErrorName);
    CUDA(cuStreamSynchronize), CUDA(cuLaunchKernel);
    NVDEC(cuvidCreateVideoParser), NVDEC(cuvidParseVideoData), NVDEC(cuvidDestroyVideoParser);
    NVDEC(cuvidCreateDecoder), NVDEC(cuvidDestroyDecoder), NVDEC(cuvidDecodePicture), NVDEC(cuvidGetDecodeStatus);
    NVDEC(cuvidMapVideoFrame64), NVDEC(cuvidUnmapVideoFrame64);
    return d;
}

const Driver &driver() {
    static const Driver loaded = load();
    return loaded;
}

struct Waiting {  // a packet whose picture is to come
    int64_t time, serial;
    int32_t group;
    uint8_t keep;
};

int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

extern "C" {

struct Settings {
    int32_t codec;            // cudaVideoCodec
    int32_t width, height;    // of the pictures to show
    int32_t bytes, shift;     // of a sample; by which the samples are shifted down
    int32_t subsampled;       // 1: 4:2:0, 0: 4:4:4
    int32_t delay;            // pictures that the parser holds back beyond the need
    int32_t more_surfaces;    // than the stream needs
    int32_t outputs;          // surfaces that can be mapped at once
    int32_t whole_packets;    // 1: each packet is one picture
    int32_t in_order;         // 1: pictures come as their packets went in, whatever their times
    int32_t synchronize;      // 1: wait for each copy before its surface is given back
    void *stream, *kernel;
};

struct Target {                      // where the pictures of one group go
    uint64_t planes[MOST_SETS][3];   // sets of planes (capacity, h, w); pictures beyond the first set go to the next
    int32_t sets, capacity, filled, reserved;
};

struct Picture {
    int64_t serial;  // of its packet; -1: no packet has its time
    int32_t group, status;
};

struct Result {
    int32_t consumed, produced, flushed, shown;  // packets; pictures in targets; 1 after a flush; pictures in all
    int32_t waiting[2];                          // packets whose pictures are to come, by group
    int64_t total, decoding, mapping;            // ns in the call, in cuvidDecodePicture, in cuvidMapVideoFrame
};

}  // extern "C"

namespace {

struct Session {
    Settings settings{};
    CUcontext context = nullptr;
    CUvideoparser parser = nullptr;
    CUvideodecoder decoder = nullptr;
    CUVIDEOFORMAT format{};
    unsigned surfaces = 0;
    std::deque<Waiting> waiting;
    Target *targets = nullptr;  // two, during a call
    Picture *pictures = nullptr;
    int32_t most = 0, group = 0;
    Result *result = nullptr;
    char error[256] = "";

    bool check(CUresult status, const char *what) {
        if (status == CUDA_SUCCESS) return true;
        const char *name = nullptr;
        driver().cuGetErrorName(status, &name);
        if (!*error) snprintf(error, sizeof error, "%s: %s (%d)", what, name ? name : "?", (int)status);
        return false;
    }

    int fail(const char *what, int a = 0, int b = 0) {
        if (!*error) snprintf(error, sizeof error, "%s (%d, %d)", what, a, b);
        return 0;
    }

    int sequence(CUVIDEOFORMAT *f) {
        const int width = f->display_area.right - f->display_area.left;
        const int height = f->display_area.bottom - f->display_area.top;
        if (width != settings.width || height != settings.height) return fail("size changes", width, height);
        const int chroma = settings.subsampled ? cudaVideoChromaFormat_420 : cudaVideoChromaFormat_444;
        if (f->chroma_format != chroma || (f->bit_depth_luma_minus8 > 0) != (settings.bytes == 2))
            return fail("chroma or depth changes", f->chroma_format, f->bit_depth_luma_minus8);
        unsigned wanted = f->min_num_decode_surfaces + settings.more_surfaces;
        if (wanted > MOST_SURFACES) wanted = MOST_SURFACES;
        if (wanted < 2) wanted = 2;
        const bool same = decoder && f->coded_width == format.coded_width && f->coded_height == format.coded_height &&
                          f->bit_depth_luma_minus8 == format.bit_depth_luma_minus8 && wanted <= surfaces &&
                          !memcmp(&f->display_area, &format.display_area, sizeof f->display_area);
        if (same) return surfaces;
        if (decoder && !check(driver().cuvidDestroyDecoder(decoder), "cuvidDestroyDecoder")) return 0;
        decoder = nullptr;
        format = *f;
        surfaces = wanted;
        CUVIDDECODECREATEINFO made{};
        made.ulWidth = made.ulMaxWidth = f->coded_width;
        made.ulHeight = made.ulMaxHeight = f->coded_height;
        made.ulNumDecodeSurfaces = surfaces;
        made.CodecType = f->codec;
        made.ChromaFormat = f->chroma_format;
        made.ulCreationFlags = cudaVideoCreate_PreferCUVID;
        made.bitDepthMinus8 = f->bit_depth_luma_minus8;
        made.display_area.left = (short)f->display_area.left, made.display_area.top = (short)f->display_area.top;
        made.display_area.right = (short)f->display_area.right;
        made.display_area.bottom = (short)f->display_area.bottom;
        made.OutputFormat = settings.subsampled ? (settings.bytes == 2 ? cudaVideoSurfaceFormat_P016 : cudaVideoSurfaceFormat_NV12)
                            : settings.bytes == 2 ? cudaVideoSurfaceFormat_YUV444_16Bit : cudaVideoSurfaceFormat_YUV444;
        made.DeinterlaceMode = cudaVideoDeinterlaceMode_Weave;
        made.ulTargetWidth = width;
        made.ulTargetHeight = height;
        made.ulNumOutputSurfaces = settings.outputs;
        if (!check(driver().cuvidCreateDecoder(&decoder, &made), "cuvidCreateDecoder")) return decoder = nullptr, 0;
        return surfaces;
    }

    int decode(CUVIDPICPARAMS *picture) {
        if (!decoder) return fail("a picture comes before its headers");
        const int64_t begin = now();
        const CUresult status = driver().cuvidDecodePicture(decoder, picture);
        if (result) result->decoding += now() - begin;
        return check(status, "cuvidDecodePicture");
    }

    Waiting taken(int64_t time) {
        auto at = waiting.begin();
        if (!settings.in_order)
            while (at != waiting.end() && at->time != time) ++at;
        if (at == waiting.end()) return {time, -1, group, UNPACK};
        const Waiting found = *at;
        waiting.erase(at);
        return found;
    }

    int display(CUVIDPARSERDISPINFO *shown) {
        if (!shown || !result) return 1;  // the end of the stream
        const Waiting packet = taken(shown->timestamp);
        group = packet.group;
        result->shown++;
        if (packet.keep == DROP) return 1;
        CUVIDPROCPARAMS how{};
        how.progressive_frame = shown->progressive_frame;
        how.second_field = shown->repeat_first_field + 1;
        how.top_field_first = shown->top_field_first;
        how.unpaired_field = shown->repeat_first_field < 0;
        how.output_stream = (CUstream)settings.stream;
        unsigned long long surface = 0;
        unsigned pitch = 0;
        const int64_t begin = now();
        const CUresult mapped =
            driver().cuvidMapVideoFrame64(decoder, shown->picture_index, &surface, &pitch, &how);
        result->mapping += now() - begin;
        if (!check(mapped, "cuvidMapVideoFrame")) return 0;
        CUVIDGETDECODESTATUS state{};
        if (driver().cuvidGetDecodeStatus(decoder, shown->picture_index, &state) != CUDA_SUCCESS)
            state.decodeStatus = cuvidDecodeStatus_Invalid;  // not every codec has it
        const int whole = packet.keep == MAP_ONLY || unpack(surface, pitch, packet, state.decodeStatus);
        return check(driver().cuvidUnmapVideoFrame64(decoder, surface), "cuvidUnmapVideoFrame") && whole;
    }

    int unpack(unsigned long long surface, unsigned pitch, const Waiting &packet, int status) {
        Target &target = targets[packet.group];
        const int set = target.filled / (target.capacity ? target.capacity : 1);
        if (set >= target.sets || result->produced >= most) return fail("no room", target.filled, target.sets);
        long long samples = pitch / settings.bytes;
        int width = settings.width, height = settings.height, row = target.filled % target.capacity;
        uint64_t *planes = target.planes[set];
        void *arguments[] = {&surface, &samples, &planes[0], &planes[1], &planes[2],
                             &width,   &height,  &row,       &settings.shift};
        const unsigned across = (width + 3) / 4;
        const CUresult queued = driver().cuLaunchKernel(
            (CUfunction)settings.kernel, (across + THREADS_X - 1) / THREADS_X, (height + THREADS_Y - 1) / THREADS_Y, 1,
            THREADS_X, THREADS_Y, 1, 0, (CUstream)settings.stream, arguments, nullptr);
        if (!check(queued, "cuLaunchKernel")) return 0;
        if (settings.synchronize &&
            !check(driver().cuStreamSynchronize((CUstream)settings.stream), "cuStreamSynchronize"))
            return 0;
        target.filled++;
        pictures[result->produced++] = {packet.serial, packet.group, status};
        return 1;
    }

    bool full() const {
        for (int i = 0; i < 2; i++)
            if (targets[i].capacity && targets[i].filled >= targets[i].capacity) return true;
        return false;
    }

    bool parse(const void *data, uint32_t size, int64_t time, bool end) {
        CUVIDSOURCEDATAPACKET packet{};
        packet.payload = (const unsigned char *)data;
        packet.payload_size = size;
        packet.timestamp = time;
        packet.flags = end ? CUVID_PKT_ENDOFSTREAM : CUVID_PKT_TIMESTAMP;
        if (!end && settings.whole_packets) packet.flags |= CUVID_PKT_ENDOFPICTURE;
        const CUresult status = driver().cuvidParseVideoData(parser, &packet);
        return !*error && check(status, "cuvidParseVideoData");
    }
};

int on_sequence(void *session, CUVIDEOFORMAT *format) { return ((Session *)session)->sequence(format); }
int on_decode(void *session, CUVIDPICPARAMS *picture) { return ((Session *)session)->decode(picture); }
int on_display(void *session, CUVIDPARSERDISPINFO *shown) { return ((Session *)session)->display(shown); }

struct Entered {  // the context of the session is the thread's current one
    Session &session;
    bool good;
    explicit Entered(Session &s) : session(s), good(s.check(driver().cuCtxPushCurrent_v2(s.context), "cuCtxPushCurrent")) {}
    ~Entered() {
        CUcontext before;
        if (good) session.check(driver().cuCtxPopCurrent_v2(&before), "cuCtxPopCurrent");
    }
};

}  // namespace

extern "C" {

// Returns a session for the calling thread's current context; NULL, with the reason in `error`, if there is none.
void *nd_create(const Settings *settings, char *error, int size) {
    if (*driver().error) return snprintf(error, size, "%s", driver().error), nullptr;
    auto *made = new Session;
    made->settings = *settings;
    CUVIDPARSERPARAMS p{};
    p.CodecType = (cudaVideoCodec)settings->codec;
    p.ulMaxNumDecodeSurfaces = 1;  // the sequence callback returns how many there are
    p.ulClockRate = 1000;
    p.ulMaxDisplayDelay = settings->delay;
    p.pUserData = made;
    p.pfnSequenceCallback = on_sequence;
    p.pfnDecodePicture = on_decode;
    p.pfnDisplayPicture = on_display;
    bool good = made->check(driver().cuCtxGetCurrent(&made->context), "cuCtxGetCurrent");
    if (good && !made->context) good = made->fail("the thread has no CUDA context");
    good = good && made->check(driver().cuvidCreateVideoParser(&made->parser, &p), "cuvidCreateVideoParser");
    if (good) return made;
    snprintf(error, size, "%s", made->error);
    delete made;
    return nullptr;
}

// Decodes packets until a target's first set of planes is full, or all are decoded; with `flush`, until all pictures
// are out. Returns 0, or -1 after an error, of which `nd_error` gives the text.
int nd_decode(void *given, const uint64_t *data, const uint32_t *sizes, const int64_t *times, const int64_t *serials,
              const uint8_t *keep, int count, int group, int flush, Target *targets, Picture *pictures, int most,
              Result *result) {
    Session &s = *(Session *)given;
    *result = Result{};
    const int64_t begin = now();
    Entered entered(s);
    if (!entered.good || *s.error) return -1;
    s.targets = targets, s.pictures = pictures, s.most = most, s.result = result;
    bool good = true;
    while (good && result->consumed < count && !s.full()) {
        const int i = result->consumed++;
        if (serials[i] >= 0) s.waiting.push_back({times[i], serials[i], group, keep[i]});
        good = s.parse((const void *)data[i], sizes[i], times[i], false);
    }
    if (good && flush && result->consumed == count && !s.full()) {
        good = s.parse(nullptr, 0, 0, true);
        result->flushed = 1;
    }
    for (const Waiting &packet : s.waiting) result->waiting[packet.group]++;
    result->total = now() - begin;
    s.targets = nullptr, s.pictures = nullptr, s.result = nullptr;
    return good ? 0 : -1;
}

// Forgets packets of a group whose pictures have not come. Returns how many those are.
int nd_forget(void *given, int group) {
    auto &waiting = ((Session *)given)->waiting;
    const size_t before = waiting.size();
    std::deque<Waiting> others;
    for (const Waiting &packet : waiting)
        if (packet.group != group) others.push_back(packet);
    waiting.swap(others);
    return (int)(before - waiting.size());
}

const char *nd_error(void *given) { return ((Session *)given)->error; }

// Returns how many surfaces the decoder has; 0 before its first headers.
int nd_surfaces(void *given) { return ((Session *)given)->decoder ? (int)((Session *)given)->surfaces : 0; }

void nd_destroy(void *given) {
    auto *session = (Session *)given;
    {
        Entered entered(*session);
        if (session->parser) driver().cuvidDestroyVideoParser(session->parser);
        if (session->decoder) driver().cuvidDestroyDecoder(session->decoder);
    }
    delete session;
}
}
