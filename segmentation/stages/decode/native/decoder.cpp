// Decodes packets, of files many in one call, by the driver's own NVDEC API, and unpacks the pictures into planes, or
// makes frames of clips from them. Python gives up the GIL once for such a call. See session.py and library.py, which
// mirror the structures that cross over.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "driver.h"

namespace {

constexpr int THREADS_X = 32, THREADS_Y = 8;  // of a block, as in kernels.py
constexpr int DISPLAY_DELAY = 4;  // pictures that the parser holds back of files, so that its engine has some queued
constexpr int MORE_SURFACES = 6;  // of files, than the stream needs
constexpr int MOST_SURFACES = 32;  // and pictures that one packet may push out
constexpr int OUTPUTS = 2;  // surfaces that can be mapped at once
constexpr int MOST_UNASKED = 2;  // dropped pictures whose status is to come: the engine goes on, and no index is used again
constexpr int POLL = 100, PATIENCE = 20000;  // microseconds between looks at such a status, and in all

Driver driver;

struct Expected {  // a packet whose picture is to come
    int64_t time, serial;
    int32_t group;
    bool kept;
};

}  // namespace

extern "C" {

constexpr int MOST_SETS = 32;

enum Delay : int32_t {
    QUEUED = 0,     // the engine has some pictures queued
    REORDERED = 1,  // those pictures alone are held back before which others may be shown, as far as the stream tells
    NONE = 2,       // pictures come as they are decoded. For this and the one before, each packet is a whole picture
};

struct Settings {
    int32_t codec;          // cudaVideoCodec
    int32_t width, height;  // of the pictures to show
    int32_t bytes, shift;   // of a sample; by which samples are shifted down
    int32_t subsampled;     // 1: 4:2:0, 0: 4:4:4
    int32_t in_order;       // 1: pictures come as their packets went in, whatever their times
    int32_t delay;          // `Delay`
    void *stream;
};

struct Target {                     // where the pictures of one group go; they are dropped without a capacity
    uint64_t planes[MOST_SETS][3];  // sets of planes (capacity, h, w); pictures beyond the first set go to the next
    int32_t sets, capacity, filled, reserved;
};

struct Packets {
    const uint64_t *data;
    const uint32_t *sizes;
    const int64_t *times, *serials;  // serial -1: its picture is never shown
    const uint8_t *kept;             // 0: its picture is decoded and dropped
};

struct Sampler {  // makes frames of one clip for one output, by the kernel of sample.cu
    CUfunction kernel;
    const void *arguments;             // of the kernel, but for those of `Sampled`, and the last one
    int64_t frame;                     // elements of a frame
    int32_t size, across, down;        // bytes of the arguments; blocks
    int32_t top, left;                 // of the window in Y, in samples
    int32_t chroma_top, chroma_left;
    int32_t reserved;
};

struct Frame {  // `place` in the clip of a sampler, made from the picture of packet `serial`
    int64_t serial;
    int32_t sampler, place;
};

struct Clips {
    const Sampler *samplers;
    const Frame *frames;  // by rising serials
    int64_t count;
};

struct Picture {
    int64_t serial;  // of its packet; -1: no packet has its time
    int32_t group, damaged;
};

struct Result {
    int32_t consumed, produced, flushed, shown;  // packets; pictures in targets; 1 after a flush; pictures in all
    int32_t expected[2];                         // packets whose pictures are to come, by group
    int32_t damaged, reserved;                   // pictures that were dropped
};

enum Outcome : int { FINE = 0, FAILED = 1, CHANGES = 2 };  // CHANGES: the pictures get another size or depth
}

namespace {

constexpr int MOST_ARGUMENTS = 256;  // bytes

struct Sampled {  // the first arguments of sample.cu's kernel
    uint64_t y, u, v;
    int64_t pitch, chroma_pitch;  // samples
    int32_t step, shift;
};

struct Session;

struct Entered {  // the context of the session is the thread's current one
    Session &session;
    bool good;
    explicit Entered(Session &s);
    ~Entered();
};

struct Session {
    Settings settings{};
    CUcontext context = nullptr;
    CUvideoparser parser = nullptr;
    CUvideodecoder decoder = nullptr;
    CUVIDEOFORMAT format{};
    int surfaces = 0;
    std::deque<Expected> expected;
    std::deque<int> dropped;  // indexes of pictures whose status was not asked
    CUfunction kernel = nullptr;  // this and the next ones: during a call
    Target *targets = nullptr;    // two
    const Clips *clips = nullptr;  // in place of targets
    Picture *pictures = nullptr;
    int most = 0, group = 0;
    Result *result = nullptr;
    Outcome outcome = FINE;
    char error[256] = "";

    bool check(CUresult status, const char *call) {
        if (!status) return true;
        if (outcome == FINE) outcome = FAILED, snprintf(error, sizeof error, "%s returned error %d", call, status);
        return false;
    }

    bool fail(Outcome kind, const char *reason) {
        if (outcome == FINE) outcome = kind, snprintf(error, sizeof error, "%s", reason);
        return false;
    }

    // Returns how many surfaces there are for a stream with these headers, 0 to fail.
    int sequence(const CUVIDEOFORMAT &f) {
        const auto &area = f.display_area, &before = format.display_area;
        const bool subsampled = f.chroma_format == cudaVideoChromaFormat_420;
        if (area.right - area.left != settings.width || area.bottom - area.top != settings.height ||
            subsampled != (bool)settings.subsampled || (f.bit_depth_luma_minus8 > 0) != (settings.bytes == 2))
            return fail(CHANGES, "other headers");
        const int more = settings.delay == QUEUED ? MORE_SURFACES : 0;
        const int wanted = std::clamp(f.min_num_decode_surfaces + more, 2, MOST_SURFACES);
        const bool same = decoder && f.coded_width == format.coded_width && f.coded_height == format.coded_height &&
                          f.bit_depth_luma_minus8 == format.bit_depth_luma_minus8 && wanted <= surfaces &&
                          area.left == before.left && area.top == before.top;
        if (same) return surfaces;
        if (decoder && expected.size() > 1) return fail(CHANGES, "other headers before all pictures are out");
        ask(0);
        if (decoder && !check(driver.cuvidDestroyDecoder(decoder), "cuvidDestroyDecoder")) return 0;
        decoder = nullptr;
        format = f;
        surfaces = wanted;
        return create() ? surfaces : 0;
    }

    bool create() {
        const bool deep = settings.bytes == 2;
        CUVIDDECODECREATEINFO made{};
        made.ulWidth = made.ulMaxWidth = format.coded_width;
        made.ulHeight = made.ulMaxHeight = format.coded_height;
        made.ulNumDecodeSurfaces = surfaces;
        made.CodecType = format.codec;
        made.ChromaFormat = format.chroma_format;
        made.ulCreationFlags = cudaVideoCreate_PreferCUVID;
        made.bitDepthMinus8 = format.bit_depth_luma_minus8;
        const auto &area = format.display_area;
        made.display_area = {(short)area.left, (short)area.top, (short)area.right, (short)area.bottom};
        const int subsampled = deep ? cudaVideoSurfaceFormat_P016 : cudaVideoSurfaceFormat_NV12;
        const int whole = deep ? cudaVideoSurfaceFormat_YUV444_16Bit : cudaVideoSurfaceFormat_YUV444;
        made.OutputFormat = settings.subsampled ? subsampled : whole;
        made.ulTargetWidth = settings.width;
        made.ulTargetHeight = settings.height;
        made.ulNumOutputSurfaces = OUTPUTS;
        if (check(driver.cuvidCreateDecoder(&decoder, &made), "cuvidCreateDecoder")) return true;
        decoder = nullptr;
        return false;
    }

    bool decode(CUVIDPICPARAMS *picture) {
        if (!decoder) return fail(FAILED, "a picture comes before its headers");
        if (!check(driver.cuvidDecodePicture(decoder, picture), "cuvidDecodePicture")) return false;
        if (settings.delay != NONE || (picture->field_pic_flag && !picture->second_field)) return true;
        CUVIDPARSERDISPINFO shown{};
        shown.picture_index = picture->CurrPicIdx;
        shown.progressive_frame = !picture->field_pic_flag;
        shown.top_field_first = !picture->bottom_field_flag;
        return display(shown);
    }

    // Returns how a picture's decoding stands; 0 of codecs of which the driver does not tell.
    int status(int index) {
        CUVIDGETDECODESTATUS state{};
        return driver.cuvidGetDecodeStatus(decoder, index, &state) ? 0 : state.decodeStatus;
    }

    static bool damaged(int status) {
        return status == cuvidDecodeStatus_Error || status == cuvidDecodeStatus_Error_Concealed;
    }

    // Returns how a picture's decoding stands once it is over.
    int final_status(int index) {
        int found = status(index);
        for (int waited = 0; found == cuvidDecodeStatus_InProgress && waited < PATIENCE; waited += POLL)
            usleep(POLL), found = status(index);
        return found;
    }

    // Counts damaged ones among the pictures that were dropped first, until `most` are left whose decoding may go on.
    void ask(size_t most) {
        for (; dropped.size() > most; dropped.pop_front()) result->damaged += damaged(final_status(dropped.front()));
    }

    // Returns the packet of the picture that comes out with this time.
    Expected taken(int64_t time) {
        auto at = expected.begin();
        if (!settings.in_order) at = std::find_if(at, expected.end(), [=](auto &one) { return one.time == time; });
        if (at == expected.end()) return {time, -1, group, true};
        const Expected found = *at;
        expected.erase(at);
        return found;
    }

    bool display(const CUVIDPARSERDISPINFO &shown) {
        const Expected packet = taken(shown.timestamp);
        group = packet.group;
        result->shown++;
        if (!packet.kept || !(clips || targets[packet.group].capacity)) {
            dropped.push_back(shown.picture_index);
            ask(MOST_UNASKED);
            return true;
        }
        CUVIDPROCPARAMS how{};
        how.progressive_frame = shown.progressive_frame;
        how.second_field = shown.repeat_first_field + 1;
        how.top_field_first = shown.top_field_first;
        how.unpaired_field = shown.repeat_first_field < 0;
        how.output_stream = settings.stream;  // the surface is there when the stream is: nothing waits here
        unsigned long long surface = 0;
        unsigned pitch = 0;
        const CUresult mapped = driver.cuvidMapVideoFrame64(decoder, shown.picture_index, &surface, &pitch, &how);
        if (!check(mapped, "cuvidMapVideoFrame")) return false;
        // The engine may just have begun with a picture that nothing holds back.
        const int found = settings.delay == QUEUED ? status(shown.picture_index) : final_status(shown.picture_index);
        const bool made = clips ? sample(surface, pitch, packet.serial) : unpack(surface, pitch, packet.group);
        if (made) pictures[result->produced++] = {packet.serial, packet.group, damaged(found)};
        return check(driver.cuvidUnmapVideoFrame64(decoder, surface), "cuvidUnmapVideoFrame") && made;
    }

    // Queues the kernel of unpack.cu. What overwrites the surface later is queued on the same stream.
    bool unpack(unsigned long long surface, unsigned pitch, int group) {
        Target &target = targets[group];
        const int set = target.capacity ? target.filled / target.capacity : target.sets;
        if (set >= target.sets || result->produced >= most) return fail(FAILED, "more pictures than there is room for");
        long long samples = pitch / settings.bytes;
        int width = settings.width, height = settings.height, row = target.filled % target.capacity;
        uint64_t *planes = target.planes[set];
        void *arguments[] = {&surface, &samples, &planes[0], &planes[1],     &planes[2],
                             &width,   &height,  &row,       &settings.shift};
        const unsigned across = ((width + 3) / 4 + THREADS_X - 1) / THREADS_X;  // a thread copies four samples of a row
        const unsigned down = (height + THREADS_Y - 1) / THREADS_Y;
        const CUresult queued = driver.cuLaunchKernel(kernel, across, down, 1, THREADS_X, THREADS_Y, 1, 0,
                                                      settings.stream, arguments, nullptr);
        if (!check(queued, "cuLaunchKernel")) return false;
        target.filled++;
        return true;
    }

    // Queues a kernel for each frame that is made from the picture, as `unpack` does.
    bool sample(unsigned long long surface, unsigned pitch, int64_t serial) {
        if (result->produced >= most) return fail(FAILED, "more pictures than there is room for");
        const Frame *end = clips->frames + clips->count;
        const auto before = [](const Frame &one, int64_t number) { return one.serial < number; };
        const Frame *frame = std::lower_bound(clips->frames, end, serial, before);
        bool queued = true;
        for (; queued && frame < end && frame->serial == serial; frame++) queued = make(*frame, surface, pitch);
        return queued;
    }

    bool make(const Frame &frame, unsigned long long surface, unsigned pitch) {
        const Sampler &s = clips->samplers[frame.sampler];
        const int64_t plane = (int64_t)pitch * settings.height, samples = pitch / settings.bytes;
        const int step = settings.subsampled ? 2 : 1;
        const int64_t luma = settings.bytes * (s.top * samples + s.left);
        const int64_t chroma = settings.bytes * (s.chroma_top * samples + step * s.chroma_left);
        const uint64_t u = surface + plane + chroma, v = u + (settings.subsampled ? settings.bytes : plane);
        const Sampled first{surface + luma, u, v, samples, samples, step, settings.shift};
        const int64_t last = frame.place * s.frame;
        alignas(8) char arguments[MOST_ARGUMENTS];
        size_t size = s.size;
        if (size > sizeof arguments) return fail(FAILED, "more arguments than there is room for");
        memcpy(arguments, s.arguments, size);
        memcpy(arguments, &first, sizeof first);
        memcpy(arguments + size - sizeof last, &last, sizeof last);
        void *extra[] = {(void *)CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, (void *)CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                         nullptr};
        return check(driver.cuLaunchKernel(s.kernel, s.across, s.down, 1, THREADS_X, THREADS_Y, 1, 0, settings.stream,
                                           nullptr, extra), "cuLaunchKernel");
    }

    bool full() const {
        if (result->produced + MOST_SURFACES > most) return true;
        return !clips && std::any_of(targets, targets + 2, [](auto &t) { return t.capacity && t.filled >= t.capacity; });
    }

    // Decodes packets until there is no room for more pictures. Then, with `flush`, brings all pictures out.
    Outcome decode(const Packets &packets, int count, int group_of_packets, bool flush) {
        Entered entered(*this);
        while (outcome == FINE && result->consumed < count && !full()) {
            const int i = result->consumed++;
            if (settings.delay == NONE) expected.clear();  // the picture of a packet comes with it, or never
            if (packets.serials[i] >= 0)
                expected.push_back({packets.times[i], packets.serials[i], group_of_packets, packets.kept[i] != 0});
            parse((const void *)packets.data[i], packets.sizes[i], packets.times[i]);
        }
        if (outcome == FINE && flush && result->consumed == count && !full()) result->flushed = parse(nullptr, 0, 0);
        if (outcome == FINE && result->flushed) ask(0);
        for (const Expected &packet : expected) result->expected[packet.group]++;
        targets = nullptr, clips = nullptr, pictures = nullptr, result = nullptr;
        return outcome;
    }

    bool parse(const void *data, uint32_t size, int64_t time) {
        CUVIDSOURCEDATAPACKET packet{};
        packet.payload = data;
        packet.payload_size = size;
        packet.timestamp = time;
        packet.flags = data ? CUVID_PKT_TIMESTAMP : CUVID_PKT_ENDOFSTREAM;
        if (data && settings.delay != QUEUED) packet.flags |= CUVID_PKT_ENDOFPICTURE;
        return check(driver.cuvidParseVideoData(parser, &packet), "cuvidParseVideoData") && outcome == FINE;
    }
};

Entered::Entered(Session &s) : session(s) {
    good = session.check(driver.cuCtxPushCurrent_v2(session.context), "cuCtxPushCurrent");
}

Entered::~Entered() {
    CUcontext before;
    if (good) session.check(driver.cuCtxPopCurrent_v2(&before), "cuCtxPopCurrent");
}

int on_sequence(void *session, CUVIDEOFORMAT *format) { return ((Session *)session)->sequence(*format); }
int on_decode(void *session, CUVIDPICPARAMS *picture) { return ((Session *)session)->decode(picture); }
int on_display(void *session, CUVIDPARSERDISPINFO *shown) {
    auto *s = (Session *)session;
    return !shown || !s->result || s->display(*shown);  // without a picture: the end of the stream
}

}  // namespace

extern "C" {

// Loads the driver's libraries by their names. Returns 0; else 1, with the reason in `error`.
int nd_load(const char *libcuda, const char *libnvcuvid, char *error, int size) {
    return !driver.load(libcuda, libnvcuvid, error, size);
}

// Returns a session for the calling thread's current context; NULL, with the reason in `error`, if there is none.
void *nd_create(const Settings *settings, char *error, int size) {
    auto *made = new Session;
    made->settings = *settings;
    CUVIDPARSERPARAMS p{};
    p.CodecType = settings->codec;
    p.ulMaxNumDecodeSurfaces = 1;  // the sequence callback returns how many there are
    p.ulClockRate = 1000;
    p.ulMaxDisplayDelay = settings->delay == QUEUED ? DISPLAY_DELAY : 0;
    p.pUserData = made;
    p.pfnSequenceCallback = on_sequence;
    p.pfnDecodePicture = on_decode;
    p.pfnDisplayPicture = settings->delay == NONE ? nullptr : on_display;
    bool good = made->check(driver.cuCtxGetCurrent(&made->context), "cuCtxGetCurrent");
    if (good && !made->context) good = made->fail(FAILED, "the thread has no CUDA context");
    if (good && made->check(driver.cuvidCreateVideoParser(&made->parser, &p), "cuvidCreateVideoParser")) return made;
    snprintf(error, size, "%s", made->error);
    delete made;
    return nullptr;
}

// Decodes packets of a `group` until a target's first set of planes is full, or all are decoded; with `flush`, until
// all pictures are out. Returns an `Outcome`; after another than FINE the session can only be destroyed.
int nd_decode(void *given, const Packets *packets, int count, int group, int flush, CUfunction kernel, Target *targets,
              Picture *pictures, int most, Result *result) {
    Session &s = *(Session *)given;
    *result = Result{};
    if (!targets[s.group].capacity) s.group = group;  // of pictures that no packet tells of
    s.kernel = kernel, s.targets = targets, s.pictures = pictures, s.most = most, s.result = result;
    return s.decode(*packets, count, group, flush);
}

// Decodes packets as `nd_decode` does, and then all pictures are out, unless there is no room for more `pictures`. Each
// picture is made into its frames of `clips`, which rest in the order of the session's stream.
int nd_sample(void *given, const Packets *packets, int count, const Clips *clips, Picture *pictures, int most,
              Result *result) {
    Session &s = *(Session *)given;
    *result = Result{};
    s.clips = clips, s.pictures = pictures, s.most = most, s.result = result, s.group = 0;
    return s.decode(*packets, count, 0, true);
}

// Forgets packets of a group whose pictures have not come.
void nd_forget(void *given, int group) {
    auto &expected = ((Session *)given)->expected;
    const auto of_group = [=](auto &packet) { return packet.group == group; };
    expected.erase(std::remove_if(expected.begin(), expected.end(), of_group), expected.end());
}

const char *nd_error(void *given) { return ((Session *)given)->error; }

// Destroys a session. Its copies are over then.
void nd_destroy(void *given) {
    auto *session = (Session *)given;
    {
        Entered entered(*session);
        driver.cuStreamSynchronize(session->settings.stream);
        driver.cuvidDestroyVideoParser(session->parser);
        if (session->decoder) driver.cuvidDestroyDecoder(session->decoder);
    }
    delete session;
}
}
