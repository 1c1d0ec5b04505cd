/* The encoders behind the stand-in for NVENC: pictures in, packets out, both by the number of the picture. */
#ifndef CODEC_H
#define CODEC_H

#include <stddef.h>
#include <stdint.h>

/* Planes Y, U, V in host memory. Samples of more than 8 bits take two bytes, with the bits at the bottom. */
typedef struct {
    uint8_t *plane[3];
    size_t stride[3]; /* bytes */
} Picture;

typedef struct {
    int width, height, depth, full_chroma; /* full_chroma: 4:4:4, else 4:2:0 */
    unsigned fps_num, fps_den, aspect_num, aspect_den;
    int gop, b_frames, b_pyramid; /* gop: pictures from IDR to IDR, 0 for one IDR alone */
    int lossless, constant_qp, bitrate; /* constant_qp: below 0 for none; bitrate: bits a second, 0 for `quality` */
    float quality;                      /* NVENC's target quality, taken as a constant rate factor */
    int in_band, delimiters;            /* parameter sets before each IDR picture; access unit delimiters */
    int full_range, primaries, transfer, matrix;
} Settings;

typedef struct {
    uint8_t *data; /* the encoder's, until its next call */
    size_t size;
    int64_t number;          /* of the picture */
    char type;               /* 'K' for an IDR picture, else 'I', 'P' or 'B' */
} Packet;

typedef struct {
    void *(*open)(const Settings *settings);
    /* Writes the parameter sets and returns their size, 0 if `room` is too small. */
    size_t (*headers)(void *encoder, uint8_t *out, size_t room);
    /* Takes one picture, or after the last one NULL. Returns 1 with a packet, 0 without, below 0 for an error. */
    int (*encode)(void *encoder, const Picture *picture, int64_t number, Packet *packet);
    int (*change_rate)(void *encoder, const Settings *settings);
    void (*close)(void *encoder);
    int (*latency)(int b_frames); /* pictures that it holds back */
} Codec;

extern const Codec h264_codec, hevc_codec, av1_codec;

#endif
