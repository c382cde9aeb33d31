/* The functions of CUDA's runtime that programs call on the host (CUDA Runtime API), over the emulated GPU. */
#ifndef ISOKERN_CUDA_RUNTIME_API_H
#define ISOKERN_CUDA_RUNTIME_API_H
#include <cstddef>
#include <cstdlib>
#include <functional>

#include "cuda_launch.h"
#include "library_types.h"
/* Other headers look for these macros to see whether CUDA's headers were included. */
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_CB

extern "C" {
void *cuda_emulator_allocate(size_t bytes, int kind, const char *name);
int cuda_emulator_free(void *p);
int cuda_emulator_copy(void *to, const void *from, size_t bytes, int kind);
int cuda_emulator_copy_rows(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind);
int cuda_emulator_fill(void *p, int value, size_t bytes);
int cuda_emulator_kind(const void *p, void **begin, size_t *bytes);
double cuda_emulator_now(); /* in milliseconds */
void cuda_emulator_ask_shared(size_t bytes);
}

#define CUDA_EMULATOR_ERRORS(entry) \
    entry(cudaSuccess, 0, "no error") entry(cudaErrorInvalidValue, 1, "invalid argument") entry( \
        cudaErrorMemoryAllocation, 2, "out of memory") entry(cudaErrorInitializationError, 3, "initialization error") \
        entry(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") entry( \
            cudaErrorInvalidPitchValue, 12, "invalid pitch argument") entry(cudaErrorInvalidSymbol, 13, \
            "invalid device symbol") entry(cudaErrorInvalidDevicePointer, 17, "invalid device pointer") \
            entry(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy") entry( \
                cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version") \
                entry(cudaErrorInvalidDeviceFunction, 98, "invalid device function") entry(cudaErrorNoDevice, 100, \
                    "no CUDA-capable device is detected") entry(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
                    entry(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
                        entry(cudaErrorNotReady, 600, "not ready") \
                            entry(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
                                entry(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
                                    entry(cudaErrorAssert, 710, "device-side assert triggered") \
                                        entry(cudaErrorHostMemoryAlreadyRegistered, 712, \
                                            "part or all of the requested memory range is already mapped") \
                                            entry(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
                                                entry(cudaErrorNotSupported, 801, "operation not supported") \
                                                    entry(cudaErrorUnknown, 999, "unknown error")
#define CUDA_EMULATOR_ENTRY(name, number, text) name = number,
enum cudaError { CUDA_EMULATOR_ERRORS(CUDA_EMULATOR_ENTRY) };
#undef CUDA_EMULATOR_ENTRY
typedef cudaError cudaError_t;
#define CUDA_EMULATOR_API static inline __attribute__((always_inline, unused))

namespace cuda_emulator
{

inline cudaError_t last_error = cudaSuccess;
inline void record_error(int error)
{
    if (error != 0)
        last_error = static_cast<cudaError_t>(error);
}
inline cudaError_t recorded(int error)
{
    record_error(error);
    return static_cast<cudaError_t>(error);
}

/* The name of an array, of the text of an argument such as (void **)&d_x. */
inline const char *name_of(const char *text)
{
    const char *name = text;
    for (const char *p = text; *p != 0; p++)
        if (*p == '&' || *p == '*' || *p == ')' || *p == ' ')
            name = p + 1;
    return name[0] == 0 ? text : name;
}
template <class P>
CUDA_EMULATOR_API cudaError_t allocate(const char *text, P **p, size_t bytes, int kind)
{
    *p = static_cast<P *>(cuda_emulator_allocate(bytes, kind, name_of(text)));
    return cudaSuccess;
}

} // namespace cuda_emulator

/* Errors */
static inline const char *cudaGetErrorString(cudaError_t error)
{
#define CUDA_EMULATOR_ENTRY(name, number, text) \
    case name: return text;
    switch (error) {
        CUDA_EMULATOR_ERRORS(CUDA_EMULATOR_ENTRY)
    }
#undef CUDA_EMULATOR_ENTRY
    return "unrecognized error code";
}
static inline const char *cudaGetErrorName(cudaError_t error)
{
#define CUDA_EMULATOR_ENTRY(name, number, text) \
    case name: return #name;
    switch (error) {
        CUDA_EMULATOR_ERRORS(CUDA_EMULATOR_ENTRY)
    }
#undef CUDA_EMULATOR_ENTRY
    return "unrecognized error code";
}
static inline cudaError_t cudaGetLastError()
{
    const cudaError_t error = cuda_emulator::last_error;
    cuda_emulator::last_error = cudaSuccess;
    return error;
}
static inline cudaError_t cudaPeekAtLastError() { return cuda_emulator::last_error; }

/* Devices */
struct CUuuid_st {
    char bytes[16];
};
typedef CUuuid_st cudaUUID_t;
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
    size_t totalConstMem;
    int major, minor;
    size_t textureAlignment;
    int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory, computeMode;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount;
    int unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
    int singleToDoublePrecisionPerfRatio, pageableMemoryAccess, concurrentManagedAccess;
    int computePreemptionSupported, canUseHostPointerForRegisteredMem, cooperativeLaunch, cooperativeMultiDeviceLaunch;
    size_t sharedMemPerBlockOptin;
    int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int memoryPoolsSupported;
};
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeExclusive, cudaComputeModeProhibited };
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrClockRate = 13,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrConcurrentKernels = 31,
    cudaDevAttrMemoryClockRate = 36,
    cudaDevAttrGlobalMemoryBusWidth = 37,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrManagedMemory = 83,
    cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrCooperativeLaunch = 95,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMemoryPoolsSupported = 115
};
enum { cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2 };
enum { cudaDeviceScheduleBlockingSync = 4, cudaDeviceMapHost = 8 };
enum cudaLimit { cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize, cudaLimitDevRuntimeSyncDepth };
enum cudaFuncCache {
    cudaFuncCachePreferNone,
    cudaFuncCachePreferShared,
    cudaFuncCachePreferL1,
    cudaFuncCachePreferEqual
};
enum cudaSharedMemConfig {
    cudaSharedMemBankSizeDefault,
    cudaSharedMemBankSizeFourByte,
    cudaSharedMemBankSizeEightByte
};
/* An invented device of compute capability 8.0 with few multiprocessors, so that grids that fill it are small. */
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device != 0)
        return cuda_emulator::recorded(cudaErrorInvalidDevice);
    *p = {};
    std::strcpy(p->name, "Isokern emulated GPU");
    p->totalGlobalMem = size_t{ 8 } << 30;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = 227 << 10;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->clockRate = 1000000;
    p->totalConstMem = 64 << 10;
    p->major = 8;
    p->textureAlignment = 512;
    p->multiProcessorCount = 4;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->concurrentKernels = p->deviceOverlap = p->asyncEngineCount = p->canMapHostMemory = p->unifiedAddressing = 1;
    p->managedMemory = p->concurrentManagedAccess = p->streamPrioritiesSupported = p->memoryPoolsSupported = 1;
    p->memoryClockRate = 1000000;
    p->memoryBusWidth = 256;
    p->l2CacheSize = 4 << 20;
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    cudaDeviceProp p;
    if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrClockRate: *value = p.clockRate; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMemoryClockRate: *value = p.memoryClockRate; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = static_cast<int>(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    case cudaDevAttrComputeMode:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrCooperativeLaunch: *value = 0; break;
    default: return cuda_emulator::recorded(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
static inline cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int device)
{ return cuda_emulator::recorded(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
static inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
static inline cudaError_t cudaDeviceSynchronize() { return cuda_emulator::last_error; }
static inline cudaError_t cudaThreadSynchronize() { return cuda_emulator::last_error; }
static inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
static inline cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
static inline cudaError_t cudaDeviceGetLimit(size_t *value, cudaLimit) { return *value = 256 << 10, cudaSuccess; }
static inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
static inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
static inline cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *greatest)
{ return *lowest = 0, *greatest = -5, cudaSuccess; }
static inline cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) { return *can = 0, cudaSuccess; }
static inline cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
static inline cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
static inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
static inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

/* Memory. The text of the argument that gets an array's address is the array's name in findings. */
enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum { cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4 };
enum { cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2 };
enum { cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaMemAttachSingle = 4 };
enum cudaMemoryAdvise {
    cudaMemAdviseSetReadMostly = 1,
    cudaMemAdviseUnsetReadMostly,
    cudaMemAdviseSetPreferredLocation,
    cudaMemAdviseUnsetPreferredLocation,
    cudaMemAdviseSetAccessedBy,
    cudaMemAdviseUnsetAccessedBy
};
enum { cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2 };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
#define cudaMalloc(p, ...) cuda_emulator::allocate(#p, p, __VA_ARGS__, CUDA_MEMORY_DEVICE)
#define cudaMallocAsync(p, bytes, ...) cuda_emulator::allocate(#p, p, bytes, CUDA_MEMORY_DEVICE)
#define cudaMallocHost(p, ...) cuda_emulator::allocate_host(#p, p, __VA_ARGS__)
#define cudaHostAlloc(p, ...) cuda_emulator::allocate_host(#p, p, __VA_ARGS__)
#define cudaMallocManaged(p, ...) cuda_emulator::allocate_host(#p, p, __VA_ARGS__)
namespace cuda_emulator
{
template <class P>
CUDA_EMULATOR_API cudaError_t allocate_host(const char *text, P **p, size_t bytes, unsigned = 0)
{ return allocate(text, p, bytes, CUDA_MEMORY_PINNED); }
} // namespace cuda_emulator
CUDA_EMULATOR_API cudaError_t cudaFree(void *p)
{ return p == nullptr ? cudaSuccess : cuda_emulator::recorded(cuda_emulator_free(p)); }
CUDA_EMULATOR_API cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }
CUDA_EMULATOR_API cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return cudaFree(p); }
template <class P>
CUDA_EMULATOR_API cudaError_t cudaMallocPitch(P **p, size_t *pitch, size_t width, size_t height)
{
    *pitch = (width + 511) / 512 * 512;
    return cuda_emulator::allocate("", p, *pitch * height, CUDA_MEMORY_DEVICE);
}
CUDA_EMULATOR_API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{ return cuda_emulator::recorded(cuda_emulator_copy(to, from, bytes, kind)); }
CUDA_EMULATOR_API cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr)
{ return cuda_emulator::recorded(cuda_emulator_copy(to, from, bytes, kind)); }
CUDA_EMULATOR_API cudaError_t cudaMemcpy2D(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind)
{ return cuda_emulator::recorded(cuda_emulator_copy_rows(to, to_pitch, from, from_pitch, width, height, kind)); }
CUDA_EMULATOR_API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
    size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t = nullptr)
{ return cuda_emulator::recorded(cuda_emulator_copy_rows(to, to_pitch, from, from_pitch, width, height, kind)); }
CUDA_EMULATOR_API cudaError_t cudaMemset(void *p, int value, size_t bytes)
{ return cuda_emulator::recorded(cuda_emulator_fill(p, value, bytes)); }
CUDA_EMULATOR_API cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t = nullptr)
{ return cuda_emulator::recorded(cuda_emulator_fill(p, value, bytes)); }
CUDA_EMULATOR_API cudaError_t cudaMemset2D(void *p, size_t pitch, int value, size_t width, size_t height)
{
    for (size_t row = 0; row < height; row++)
        if (const cudaError_t error = cudaMemset(static_cast<char *>(p) + row * pitch, value, width);
            error != cudaSuccess)
            return error;
    return cudaSuccess;
}
/* __device__ and __constant__ variables are the program's own here. */
template <class T>
CUDA_EMULATOR_API cudaError_t cudaMemcpyToSymbol(
    T &symbol, const void *from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice)
{
    if (offset + bytes > sizeof symbol)
        return cuda_emulator::recorded(cudaErrorInvalidValue);
    __builtin_memcpy(const_cast<char *>(reinterpret_cast<const volatile char *>(&symbol)) + offset, from, bytes);
    return cudaSuccess;
}
template <class T>
CUDA_EMULATOR_API cudaError_t cudaMemcpyFromSymbol(
    void *to, const T &symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost)
{
    if (offset + bytes > sizeof symbol)
        return cuda_emulator::recorded(cudaErrorInvalidValue);
    __builtin_memcpy(to, const_cast<const char *>(reinterpret_cast<const volatile char *>(&symbol)) + offset, bytes);
    return cudaSuccess;
}
template <class T>
CUDA_EMULATOR_API cudaError_t cudaMemcpyToSymbolAsync(
    T &symbol, const void *from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr)
{ return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind); }
template <class T>
CUDA_EMULATOR_API cudaError_t cudaGetSymbolAddress(void **p, const T &symbol)
{ return *p = const_cast<void *>(reinterpret_cast<const volatile void *>(&symbol)), cudaSuccess; }
static inline cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{ return *available = size_t{ 7 } << 30, *total = size_t{ 8 } << 30, cudaSuccess; }
static inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p)
{
    void *begin = nullptr;
    size_t bytes = 0;
    const int kind = cuda_emulator_kind(p, &begin, &bytes);
    *a = { kind == CUDA_MEMORY_HOST      ? cudaMemoryTypeUnregistered
            : kind == CUDA_MEMORY_DEVICE ? cudaMemoryTypeDevice
                                         : cudaMemoryTypeHost,
        0, kind == CUDA_MEMORY_HOST ? nullptr : const_cast<void *>(p),
        kind == CUDA_MEMORY_DEVICE ? nullptr : const_cast<void *>(p) };
    return cudaSuccess;
}
static inline cudaError_t cudaHostGetDevicePointer(void **p, void *host, unsigned) { return *p = host, cudaSuccess; }
static inline cudaError_t cudaMemPrefetchAsync(const void *, size_t, int, cudaStream_t = nullptr)
{ return cudaSuccess; }
static inline cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, int) { return cudaSuccess; }

/* Streams and events. Everything has been done when it is asked for. */
struct CUstream_st {
    int priority;
};
struct CUevent_st {
    double time;
};
typedef CUevent_st *cudaEvent_t;
enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4 };
enum { cudaEventRecordDefault = 0, cudaEventWaitDefault = 0 };
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void *);
typedef void (*cudaHostFn_t)(void *);
static inline cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = new CUstream_st{ 0 }, cudaSuccess; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) { return cudaStreamCreate(stream); }
static inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int priority)
{ return *stream = new CUstream_st{ priority }, cudaSuccess; }
static inline cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{ return *priority = stream->priority, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cuda_emulator::last_error; }
static inline cudaError_t cudaStreamQuery(cudaStream_t) { return cuda_emulator::last_error; }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
static inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void *, size_t = 0, unsigned = 4)
{ return cudaSuccess; }
static inline cudaError_t cudaStreamAddCallback(
    cudaStream_t stream, cudaStreamCallback_t function, void *given, unsigned)
{ return function(stream, cudaSuccess, given), cudaSuccess; }
static inline cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void *given)
{ return function(given), cudaSuccess; }
static inline cudaError_t cudaEventCreate(cudaEvent_t *event) { return *event = new CUevent_st{ 0 }, cudaSuccess; }
static inline cudaError_t cudaEventCreate(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) { return cudaEventCreate(event); }
static inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr)
{ return event->time = cuda_emulator_now(), cudaSuccess; }
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cuda_emulator::last_error; }
static inline cudaError_t cudaEventQuery(cudaEvent_t) { return cuda_emulator::last_error; }
static inline cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{ return *milliseconds = static_cast<float>(end->time - begin->time), cudaSuccess; }

/* Kernels */
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum { cudaSharedmemCarveoutDefault = -1, cudaSharedmemCarveoutMaxL1 = 0, cudaSharedmemCarveoutMaxShared = 100 };
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
};
template <class F>
CUDA_EMULATOR_API cudaError_t cudaFuncSetAttribute(F *, cudaFuncAttribute attribute, int value)
{
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > 227 << 10)
            return cuda_emulator::recorded(cudaErrorInvalidValue);
        cuda_emulator_ask_shared(static_cast<size_t>(value));
    }
    return cudaSuccess;
}
template <class F>
static inline cudaError_t cudaFuncSetCacheConfig(F *, cudaFuncCache)
{ return cudaSuccess; }
template <class F>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *a, F *)
{ return *a = { 0, 0, 0, 1024, 32, 80, 80, 0, 48 << 10 }, cudaSuccess; }
template <class F>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, F, int threads, size_t)
{ return *blocks = threads > 0 && threads <= 1024 ? 2048 / threads : 0, cudaSuccess; }
template <class F>
static inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, F, size_t = 0, int limit = 0)
{ return *block = limit > 0 && limit < 1024 ? limit : 1024, *grid = 8, cudaSuccess; }
namespace cuda_emulator
{
template <class... P, size_t... I>
CUDA_EMULATOR_API void launch_pointers(void (*kernel)(P...), const Configuration &c, void **values, numbers<I...>)
{
    launch(
        "a kernel of cudaLaunchKernel", c, [kernel](P... a) __attribute__((no_sanitize("thread"))) { kernel(a...); },
        *static_cast<std::remove_const_t<P> *>(values[I])...);
}
} // namespace cuda_emulator
template <class... P>
CUDA_EMULATOR_API cudaError_t cudaLaunchKernel(
    void (*kernel)(P...), dim3 grid, dim3 block, void **values, size_t shared = 0, cudaStream_t stream = nullptr)
{
    cuda_emulator::launch_pointers(kernel, cuda_emulator::Configuration(grid, block, shared, stream), values,
        cuda_emulator::numbers<__integer_pack(sizeof...(P))...>());
    return cuda_emulator::last_error;
}
#endif
