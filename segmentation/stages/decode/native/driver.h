// The functions of the driver's libraries, found when they are first needed: machines without a GPU lack both.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <type_traits>

#include "nvcuvid.h"

struct Driver {
    CUresult (*cuCtxGetCurrent)(CUcontext *);
    CUresult (*cuCtxPushCurrent_v2)(CUcontext);
    CUresult (*cuCtxPopCurrent_v2)(CUcontext *);
    CUresult (*cuStreamSynchronize)(CUstream);
    CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                               CUstream, void **, void **);
    CUresult (*cuvidCreateVideoParser)(CUvideoparser *, CUVIDPARSERPARAMS *);
    CUresult (*cuvidParseVideoData)(CUvideoparser, CUVIDSOURCEDATAPACKET *);
    CUresult (*cuvidDestroyVideoParser)(CUvideoparser);
    CUresult (*cuvidCreateDecoder)(CUvideodecoder *, CUVIDDECODECREATEINFO *);
    CUresult (*cuvidDestroyDecoder)(CUvideodecoder);
    CUresult (*cuvidDecodePicture)(CUvideodecoder, CUVIDPICPARAMS *);
    CUresult (*cuvidGetDecodeStatus)(CUvideodecoder, int, CUVIDGETDECODESTATUS *);
    CUresult (*cuvidMapVideoFrame64)(CUvideodecoder, int, unsigned long long *, unsigned *, CUVIDPROCPARAMS *);
    CUresult (*cuvidUnmapVideoFrame64)(CUvideodecoder, unsigned long long);

    // Returns whether both libraries have all of these functions; if not, the reason is in `error`.
    bool load(const char *libcuda, const char *libnvcuvid, char *error, int size) {
        void *cuda = dlopen(libcuda, RTLD_NOW | RTLD_LOCAL);
        void *nvdec = cuda ? dlopen(libnvcuvid, RTLD_NOW | RTLD_LOCAL) : nullptr;
        if (!nvdec) return snprintf(error, size, "%s", dlerror()), false;
        bool all = true;
        auto find = [&](void *library, auto &function, const char *name) {
            function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
            if (!function) all = false, snprintf(error, size, "the driver has no %s", name);
        };
#define CUDA(name) find(cuda, name, #name)
#define NVDEC(name) find(nvdec, name, #name)
        CUDA(cuCtxGetCurrent), CUDA(cuCtxPushCurrent_v2), CUDA(cuCtxPopCurrent_v2);
        CUDA(cuStreamSynchronize), CUDA(cuLaunchKernel);
        NVDEC(cuvidCreateVideoParser), NVDEC(cuvidParseVideoData), NVDEC(cuvidDestroyVideoParser);
        NVDEC(cuvidCreateDecoder), NVDEC(cuvidDestroyDecoder), NVDEC(cuvidDecodePicture), NVDEC(cuvidGetDecodeStatus);
        NVDEC(cuvidMapVideoFrame64), NVDEC(cuvidUnmapVideoFrame64);
#undef CUDA
#undef NVDEC
        return all;
    }
};
