/*
 * A stand-in for NVIDIA's libcuda.so.1 without a GPU: device memory is host memory, and calls do their work at once.
 *
 * It has what FFmpeg calls for CUDA frames and NVENC, so that these run on any machine. There is one device, whose
 * primary context is the only one. The other functions that FFmpeg looks up return "not supported".
 */
#include <ffnvcodec/dynlink_cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default"))) CUresult
#define NOT_SUPPORTED ((CUresult)801)
#define NO_CONTEXT ((CUresult)201)
#define DEPTH 16      /* of a thread's stack of contexts */
#define ALIGNMENT 512 /* of addresses and pitches, as cuMemAllocPitch has them */
#define COMPUTE_MAJOR 75 /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */

static char primary; /* its address is the context */
static __thread CUcontext stack[DEPTH];
static __thread int top; /* the current context's place, where 0 has none */

/* ---------------------------------------------------------------------------------------------- device and context */

API cuInit(unsigned flags) { return flags ? NOT_SUPPORTED : CUDA_SUCCESS; }
API cuDriverGetVersion(int *version) { return *version = 13000, CUDA_SUCCESS; }
API cuDeviceGetCount(int *count) { return *count = 1, CUDA_SUCCESS; }
API cuDeviceGet(CUdevice *device, int index) { return *device = index, index ? NOT_SUPPORTED : CUDA_SUCCESS; }
API cuDeviceGetName(char *name, int room, CUdevice device)
{
    snprintf(name, room, "host memory %d", device);
    return CUDA_SUCCESS;
}
API cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    *value = attribute == COMPUTE_MAJOR ? 9 : attribute == CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT ? ALIGNMENT : 0;
    return device ? NOT_SUPPORTED : CUDA_SUCCESS;
}
API cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    *major = 9, *minor = 0;
    return device ? NOT_SUPPORTED : CUDA_SUCCESS;
}
API cuCtxSetCurrent(CUcontext context)
{
    top = top ? top : 1;
    stack[top] = context;
    return CUDA_SUCCESS;
}
API cuCtxPushCurrent_v2(CUcontext context)
{
    if (top + 1 == DEPTH)
        return NOT_SUPPORTED;
    stack[++top] = context;
    return CUDA_SUCCESS;
}
API cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!top)
        return NO_CONTEXT;
    *context = stack[top--];
    return CUDA_SUCCESS;
}
API cuCtxGetCurrent(CUcontext *context) { return *context = top ? stack[top] : NULL, CUDA_SUCCESS; }
API cuCtxGetDevice(CUdevice *device) { return *device = 0, top ? CUDA_SUCCESS : NO_CONTEXT; }
API cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    (void)flags, (void)device;
    *context = (CUcontext)&primary;
    return cuCtxPushCurrent_v2(*context);
}
API cuCtxDestroy_v2(CUcontext context) { return context ? CUDA_SUCCESS : NO_CONTEXT; }
API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)&primary;
    return device ? NOT_SUPPORTED : CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRelease(CUdevice device) { return device ? NOT_SUPPORTED : CUDA_SUCCESS; }
API cuGetErrorName(CUresult error, const char **text)
{
    *text = error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR";
    return CUDA_SUCCESS;
}
API cuGetErrorString(CUresult error, const char **text) { return cuGetErrorName(error, text); }
API cuStreamSynchronize(CUstream stream) { return stream ? NOT_SUPPORTED : CUDA_SUCCESS; }

/* ---------------------------------------------------------------------------------------------------------- memory */

API cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    void *memory = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    *address = (CUdeviceptr)memory;
    return !top ? NO_CONTEXT : memory ? CUDA_SUCCESS : (CUresult)2;
}
API cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    (void)element;
    *pitch = (width + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return cuMemAlloc_v2(address, *pitch * height);
}
API cuMemFree_v2(CUdeviceptr address) { return free((void *)address), CUDA_SUCCESS; }
API cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    const char *in = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? copy->srcHost : (const char *)copy->srcDevice;
    char *out = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? copy->dstHost : (char *)copy->dstDevice;
    if (!top)
        return NO_CONTEXT;
    in += copy->srcY * copy->srcPitch + copy->srcXInBytes;
    out += copy->dstY * copy->dstPitch + copy->dstXInBytes;
    for (size_t y = 0; y < copy->Height; y++, in += copy->srcPitch, out += copy->dstPitch)
        memcpy(out, in, copy->WidthInBytes);
    return CUDA_SUCCESS;
}
API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return stream ? NOT_SUPPORTED : cuMemcpy2D_v2(copy);
}

/* --------------------------------------------------------------- what FFmpeg looks up, and does not call for this */

#define UNUSED(name)                                                                                                   \
    API name(void);                                                                                                    \
    API name(void) { return NOT_SUPPORTED; }

UNUSED(cuArray3DCreate_v2) UNUSED(cuArrayCreate_v2) UNUSED(cuArrayDestroy) UNUSED(cuCtxSetLimit)
UNUSED(cuDevicePrimaryCtxGetState) UNUSED(cuDevicePrimaryCtxReset) UNUSED(cuDevicePrimaryCtxSetFlags)
UNUSED(cuEventCreate) UNUSED(cuEventDestroy_v2) UNUSED(cuEventQuery) UNUSED(cuEventRecord) UNUSED(cuEventSynchronize)
UNUSED(cuGLGetDevices_v2) UNUSED(cuGraphicsGLRegisterImage) UNUSED(cuGraphicsMapResources)
UNUSED(cuGraphicsResourceGetMappedPointer_v2) UNUSED(cuGraphicsSubResourceGetMappedArray)
UNUSED(cuGraphicsUnmapResources) UNUSED(cuGraphicsUnregisterResource) UNUSED(cuLaunchKernel) UNUSED(cuLinkAddData)
UNUSED(cuLinkComplete) UNUSED(cuLinkCreate) UNUSED(cuLinkDestroy) UNUSED(cuMemAllocManaged) UNUSED(cuMemcpy)
UNUSED(cuMemcpyAsync) UNUSED(cuMemcpyDtoDAsync_v2) UNUSED(cuMemcpyDtoD_v2) UNUSED(cuMemcpyDtoHAsync_v2)
UNUSED(cuMemcpyDtoH_v2) UNUSED(cuMemcpyHtoDAsync_v2) UNUSED(cuMemcpyHtoD_v2) UNUSED(cuMemsetD8Async)
UNUSED(cuModuleGetFunction) UNUSED(cuModuleGetGlobal) UNUSED(cuModuleLoadData) UNUSED(cuModuleUnload)
UNUSED(cuStreamAddCallback) UNUSED(cuStreamCreate) UNUSED(cuStreamDestroy_v2) UNUSED(cuStreamQuery)
UNUSED(cuStreamWaitEvent) UNUSED(cuTexObjectCreate) UNUSED(cuTexObjectDestroy)
