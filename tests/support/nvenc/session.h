/* A session of NVENC's API, and the functions of its table but for those that encode. */
#ifndef SESSION_H
#define SESSION_H

#include "config.h"
#include "surface.h"

#define VERSION (13 << 4 | 0) /* the newest API whose structures have been compared with the headers' */
#define IN_FLIGHT 256         /* pictures between submission and lock */

typedef struct Bitstream {
    struct Bitstream *next;
    int64_t number; /* of the picture, in the order of submission; -1 without one */
    uint8_t *data;
    size_t room;
} Bitstream;

typedef struct {
    Surface *surface;
    uint8_t *copy; /* what was read from the surface, until the picture's lock */
    uint64_t timestamp, duration;
} Submitted;

typedef struct {
    uint32_t api;
    CUcontext context;
    const Codec *codec;
    int which; /* of `codecs` */
    void *encoder;
    Settings settings;
    Surface *surfaces;
    Bitstream *bitstreams;
    Submitted pictures[IN_FLIGHT];
    int64_t submitted, read, locked; /* pictures so far */
    int64_t latency, compared, changed, poisoned;
    uint8_t *planes; /* of the picture that is being encoded */
    Packet gray;     /* with NVENC_STANDIN_EMPTY */
    int ended, lost;
    char error[200];
} Session;

/* What the environment chooses: a number, and the N of a fault, 0 without an N and -1 where it is not chosen. */
int chosen(const char *name);
int64_t fault(const char *name);

/* Keeps the text for the client, and returns `status`. */
NVENCSTATUS fail(Session *s, NVENCSTATUS status, const char *format, ...);

/* Every structure carries the API's version and a signature beside its own version. */
int valid(const Session *s, uint32_t version);

#define CHECK(session, structure)                                                                                      \
    do {                                                                                                               \
        if ((session)->lost)                                                                                           \
            return fail(session, NV_ENC_ERR_DEVICE_NOT_EXIST, "the GPU is lost");                                      \
        if (!valid(session, (structure)->version))                                                                     \
            return fail(session, NV_ENC_ERR_INVALID_VERSION, "%s: version %#x", __func__, (structure)->version);       \
    } while (0)

/* session.c */
NVENCSTATUS open_session(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS *p, void **encoder);
const char *last_error(void *encoder);
NVENCSTATUS guid_count(void *encoder, uint32_t *count);
NVENCSTATUS guids(void *encoder, GUID *out, uint32_t room, uint32_t *count);
NVENCSTATUS caps(void *encoder, GUID codec, NV_ENC_CAPS_PARAM *p, int *value);
NVENCSTATUS preset_count(void *encoder, GUID codec, uint32_t *count);
NVENCSTATUS preset_guids(void *encoder, GUID codec, GUID *out, uint32_t room, uint32_t *count);
NVENCSTATUS preset_config(void *encoder, GUID codec, GUID preset, NV_ENC_TUNING_INFO tuning, NV_ENC_PRESET_CONFIG *p);
NVENCSTATUS initialize(void *encoder, NV_ENC_INITIALIZE_PARAMS *p);
NVENCSTATUS reconfigure(void *encoder, NV_ENC_RECONFIGURE_PARAMS *p);
NVENCSTATUS sequence_params(void *encoder, NV_ENC_SEQUENCE_PARAM_PAYLOAD *p);
NVENCSTATUS set_streams(void *encoder, NV_ENC_CUSTREAM_PTR input, NV_ENC_CUSTREAM_PTR output);
NVENCSTATUS destroy(void *encoder);

/* memory.c. The first two return the pointer to what is wanted in the session's list, or to the NULL at its end. */
Surface **find_surface(Session *s, const void *wanted);
Bitstream **find_bitstream(Session *s, const void *wanted);
NVENCSTATUS remove_surface(void *encoder, void *surface);
NVENCSTATUS create_input(void *encoder, NV_ENC_CREATE_INPUT_BUFFER *p);
NVENCSTATUS lock_input(void *encoder, NV_ENC_LOCK_INPUT_BUFFER *p);
NVENCSTATUS unlock_input(void *encoder, NV_ENC_INPUT_PTR input);
NVENCSTATUS register_resource(void *encoder, NV_ENC_REGISTER_RESOURCE *p);
NVENCSTATUS map_resource(void *encoder, NV_ENC_MAP_INPUT_RESOURCE *p);
NVENCSTATUS unmap_resource(void *encoder, NV_ENC_INPUT_PTR input);
NVENCSTATUS create_bitstream(void *encoder, NV_ENC_CREATE_BITSTREAM_BUFFER *p);
NVENCSTATUS destroy_bitstream(void *encoder, NV_ENC_OUTPUT_PTR bitstream);

#endif
