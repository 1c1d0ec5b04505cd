// What is needed of the driver's own libraries: libcuda and libnvcuvid. Names and layouts are those of NVIDIA's Video
// Codec SDK 11.1 and later, so that its documentation serves. Reserved fields must be zero.
#pragma once

#include <cstddef>
#include <cstdint>

using CUresult = int;  // 0: success
using CUcontext = void *;
using CUstream = void *;
using CUfunction = void *;
using CUvideoparser = void *;
using CUvideodecoder = void *;

struct CUVIDPICPARAMS {  // goes from the parser to the decoder; only its beginning is looked into
    int PicWidthInMbs, FrameHeightInMbs, CurrPicIdx, field_pic_flag, bottom_field_flag, second_field;
};

constexpr size_t CU_LAUNCH_PARAM_BUFFER_POINTER = 1, CU_LAUNCH_PARAM_BUFFER_SIZE = 2;

enum : int {
    cudaVideoChromaFormat_420 = 1,
    cudaVideoChromaFormat_444 = 3,
    cudaVideoSurfaceFormat_NV12 = 0,
    cudaVideoSurfaceFormat_P016 = 1,
    cudaVideoSurfaceFormat_YUV444 = 2,
    cudaVideoSurfaceFormat_YUV444_16Bit = 3,
    cudaVideoCreate_PreferCUVID = 4,
    CUVID_PKT_ENDOFSTREAM = 1,
    CUVID_PKT_TIMESTAMP = 2,
    CUVID_PKT_ENDOFPICTURE = 8,
    cuvidDecodeStatus_InProgress = 1,
    cuvidDecodeStatus_Error = 8,
    cuvidDecodeStatus_Error_Concealed = 9,
};

struct CUVIDEOFORMAT {
    int codec;
    unsigned frame_rate[2];
    uint8_t progressive_sequence, bit_depth_luma_minus8, bit_depth_chroma_minus8, min_num_decode_surfaces;
    unsigned coded_width, coded_height;
    struct {
        int left, top, right, bottom;
    } display_area;
    int chroma_format;
    unsigned bitrate;
    int display_aspect_ratio[2];
    uint8_t video_signal_description[4];
    unsigned seqhdr_data_length;
};

struct CUVIDPARSERDISPINFO {
    int picture_index, progressive_frame, top_field_first, repeat_first_field;
    long long timestamp;
};

struct CUVIDPARSERPARAMS {
    int CodecType;
    unsigned ulMaxNumDecodeSurfaces, ulClockRate, ulErrorThreshold, ulMaxDisplayDelay, flags, reserved[4];
    void *pUserData;
    int (*pfnSequenceCallback)(void *, CUVIDEOFORMAT *);      // these return 0 to fail
    int (*pfnDecodePicture)(void *, CUVIDPICPARAMS *);
    int (*pfnDisplayPicture)(void *, CUVIDPARSERDISPINFO *);
    void *pfnGetOperatingPoint, *reserved2[6], *pExtVideoInfo;
};

struct CUVIDSOURCEDATAPACKET {
    unsigned long flags, payload_size;
    const void *payload;
    long long timestamp;
};

struct Rectangle {
    short left, top, right, bottom;
};

struct CUVIDDECODECREATEINFO {
    unsigned long ulWidth, ulHeight, ulNumDecodeSurfaces;
    int CodecType, ChromaFormat;
    unsigned long ulCreationFlags, bitDepthMinus8, ulIntraDecodeOnly, ulMaxWidth, ulMaxHeight, reserved;
    Rectangle display_area;
    int OutputFormat, DeinterlaceMode;  // 0: both fields, woven
    unsigned long ulTargetWidth, ulTargetHeight, ulNumOutputSurfaces;
    void *vidLock;
    Rectangle target_rect;
    unsigned long enableHistogram, reserved2[4];
};

struct CUVIDPROCPARAMS {
    int progressive_frame, second_field, top_field_first, unpaired_field;
    unsigned reserved[10];  // of raw input and output too
    CUstream output_stream;
    unsigned reserved2[46];
    void *histogram_dptr, *reserved3;
};

struct CUVIDGETDECODESTATUS {
    int decodeStatus;
    unsigned reserved[31];
    void *reserved2[8];
};

static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "64-bit Linux");
static_assert(sizeof(CUVIDEOFORMAT) == 64 && offsetof(CUVIDEOFORMAT, display_area) == 24, "layout");
static_assert(sizeof(CUVIDPARSERDISPINFO) == 24 && sizeof(CUVIDSOURCEDATAPACKET) == 32, "layout");
static_assert(sizeof(CUVIDPARSERPARAMS) == 136 && offsetof(CUVIDPARSERPARAMS, pUserData) == 40, "layout");
static_assert(sizeof(CUVIDDECODECREATEINFO) == 176 && offsetof(CUVIDDECODECREATEINFO, display_area) == 80, "layout");
static_assert(sizeof(CUVIDPROCPARAMS) == 264 && offsetof(CUVIDPROCPARAMS, output_stream) == 56, "layout");
static_assert(sizeof(CUVIDGETDECODESTATUS) == 192, "layout");
