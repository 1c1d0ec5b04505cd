/*
 * Reads clients' structures. Fields keep their places from API 11.1, Debian's oldest header, to 13.0. What came later
 * is read by its place, so that any of Debian's headers will do.
 */
#include "config.h"

#include <string.h>

#define HEVC_DEPTH 51 /* uint32_t in NV_ENC_CONFIG_HEVC, from API 12.2 on: the bits of samples */

/* uint32_t in NV_ENC_CONFIG_AV1 */
enum { AV1_FLAGS = 4, AV1_PRIMARIES = 17, AV1_TRANSFER, AV1_MATRIX, AV1_RANGE, AV1_DEPTH = 29 };
enum { AV1_NO_HEADERS = 1 << 4 }; /* in the flags */

const struct CodecInfo codecs[CODECS] = {
    [H264] = {{0x6bc82762, 0x4e63, 0x4ca4, {0xaa, 0x85, 0x1e, 0x50, 0xf3, 0x21, 0xf6, 0xbf}},
            "h264", &h264_codec, 145, 49, 4096},
    [HEVC] = {{0x790cdc88, 0x4522, 0x4d7b, {0x94, 0x25, 0xbd, 0xa9, 0x97, 0x5f, 0x76, 0x03}},
            "hevc", &hevc_codec, 129, 33, 8192},
    [AV1] = {{0x0a352289, 0x0aa7, 0x4759, {0x86, 0x2d, 0x5d, 0x15, 0xcd, 0x16, 0xd2, 0x54}},
            "av1", &av1_codec, 129, 33, 8192},
};
const GUID *const presets[PRESETS] = {&NV_ENC_PRESET_P1_GUID, &NV_ENC_PRESET_P2_GUID, &NV_ENC_PRESET_P3_GUID,
                                      &NV_ENC_PRESET_P4_GUID, &NV_ENC_PRESET_P5_GUID, &NV_ENC_PRESET_P6_GUID,
                                      &NV_ENC_PRESET_P7_GUID};

void preset_settings(int which, NV_ENC_CONFIG *c)
{
    if (which == H264)
        c->encodeCodecConfig.h264Config.h264VUIParameters.videoFormat = 5; /* unspecified */
    else if (which == HEVC)
        c->encodeCodecConfig.hevcConfig.hevcVUIParameters.videoFormat = 5;
}

void set_rate(Settings *t, const NV_ENC_RC_PARAMS *rc)
{
    t->quality = rc->targetQuality + rc->targetQualityLSB / 256.f;
    t->constant_qp = rc->rateControlMode == NV_ENC_PARAMS_RC_CONSTQP ? (int)rc->constQP.qpInterP : -1;
    t->bitrate = t->quality > 0 ? 0 : (int)rc->averageBitRate;
    if (t->quality <= 0 && !t->bitrate)
        t->quality = 25; /* the driver chooses */
}

static void read_color(Settings *t, const NV_ENC_CONFIG_H264_VUI_PARAMETERS *vui)
{
    t->full_range = (int)vui->videoFullRangeFlag;
    t->primaries = (int)vui->colourPrimaries;
    t->transfer = (int)vui->transferCharacteristics;
    t->matrix = (int)vui->colourMatrix;
}

static void read_h264(Settings *t, const NV_ENC_CONFIG_H264 *c)
{
    t->depth = 8;
    t->full_chroma = c->chromaFormatIDC == 3;
    t->b_pyramid = c->useBFramesAsRef != NV_ENC_BFRAME_REF_MODE_DISABLED;
    t->in_band = !c->disableSPSPPS;
    t->delimiters = c->outputAUD;
    read_color(t, &c->h264VUIParameters);
}

static void read_hevc(Settings *t, const NV_ENC_CONFIG_HEVC *c, const uint32_t *words)
{
    t->depth = words[HEVC_DEPTH] == 10 || c->pixelBitDepthMinus8 == 2 ? 10 : 8;
    t->full_chroma = c->chromaFormatIDC == 3;
    t->b_pyramid = c->useBFramesAsRef != NV_ENC_BFRAME_REF_MODE_DISABLED;
    t->in_band = !c->disableSPSPPS;
    t->delimiters = c->outputAUD;
    read_color(t, &c->hevcVUIParameters);
}

static void read_av1(Settings *t, const uint32_t *words)
{
    t->depth = words[AV1_DEPTH] == 10 ? 10 : 8;
    t->in_band = !(words[AV1_FLAGS] & AV1_NO_HEADERS);
    t->primaries = (int)words[AV1_PRIMARIES];
    t->transfer = (int)words[AV1_TRANSFER];
    t->matrix = (int)words[AV1_MATRIX];
    t->full_range = (int)words[AV1_RANGE];
}

static unsigned common_divisor(unsigned a, unsigned b)
{
    return b ? common_divisor(b, a % b) : a;
}

void read_settings(int which, const NV_ENC_INITIALIZE_PARAMS *p, Settings *t)
{
    const NV_ENC_CONFIG *c = p->encodeConfig;
    unsigned across = p->darWidth * p->encodeHeight, down = p->darHeight * p->encodeWidth;
    unsigned divisor = across && down ? common_divisor(across, down) : 1;
    *t = (Settings){
        .width = (int)p->encodeWidth,
        .height = (int)p->encodeHeight,
        .fps_num = p->frameRateNum,
        .fps_den = p->frameRateDen,
        .aspect_num = across / divisor,
        .aspect_den = down / divisor,
        .gop = c->gopLength == NVENC_INFINITE_GOPLENGTH ? 0 : (int)c->gopLength,
        .b_frames = c->frameIntervalP ? c->frameIntervalP - 1 : 0,
        .lossless = p->tuningInfo == NV_ENC_TUNING_INFO_LOSSLESS,
    };
    set_rate(t, &c->rcParams);
    if (which == H264)
        read_h264(t, &c->encodeCodecConfig.h264Config);
    else if (which == HEVC)
        read_hevc(t, &c->encodeCodecConfig.hevcConfig, (const uint32_t *)&c->encodeCodecConfig);
    else
        read_av1(t, (const uint32_t *)&c->encodeCodecConfig);
}
