/* What the stand-in's codecs are, and what a client asks of them in its API's structures. */
#ifndef CONFIG_H
#define CONFIG_H

#include <ffnvcodec/nvEncodeAPI.h>

#include "codec.h"

enum { H264, HEVC, AV1, CODECS };
enum { PRESETS = 7 };

extern const struct CodecInfo {
    GUID guid;
    const char *name;
    const Codec *codec;
    int min_width, min_height, max_size;
} codecs[CODECS];
extern const GUID *const presets[PRESETS];

/* Fills in what a preset has beside the fields of all codecs. */
void preset_settings(int which, NV_ENC_CONFIG *config);

/* Translates a client's structure; `set_rate` only what may change while an encoder runs. */
void read_settings(int which, const NV_ENC_INITIALIZE_PARAMS *params, Settings *settings);
void set_rate(Settings *settings, const NV_ENC_RC_PARAMS *rate);

#endif
