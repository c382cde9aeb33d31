/* The host side of the kernels, in addition to isokern_native.c: streams on top of the runtime's, and the error word in
 * which a kernel stores what only it can see. */
#include "host.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "isokern_dtypes.h"

extern "C" {

const char *ik_level_missing(const char *) { return nullptr; }

const char *ik_dtype_missing(int32_t dtype)
{
    switch (dtype) {
#define IK_CASE(code, ...) case code:
        IK_SMALL_FLOATS(IK_CASE)
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    case IK_F32:
    case IK_BOOL: return nullptr;
    case IK_F64: return "the cores have no unit for double";
    default: return ik_is_blocks(dtype) ? nullptr : "the kernels have no conversion for it";
    }
}

void *ik_stream_create(void)
{
    int device = 0;
    if (xpu_current_device(&device) != XPU_SUCCESS)
        return nullptr;
    auto *s = new (std::nothrow) ik_xpu_stream{};
    const ik_device_error none = {};
    if (s == nullptr)
        return nullptr;
    s->device = device;
    void *word = nullptr;
    if (xpu_malloc(&word, sizeof none, XPU_MEM_MAIN) != XPU_SUCCESS
        || xpu_memcpy(word, &none, sizeof none, XPU_HOST_TO_DEVICE) != XPU_SUCCESS
        || xpu_stream_create(&s->xpu) != XPU_SUCCESS) {
        xpu_free(word);
        delete s;
        return nullptr;
    }
    s->error = static_cast<ik_device_error *>(word);
    return s;
}

void ik_stream_destroy(void *stream)
{
    if (stream == nullptr)
        return;
    auto *s = static_cast<ik_xpu_stream *>(stream);
    ik_stream_abandon(s);
    /* This thread's device, which may be another one: streams end when they are garbage-collected. */
    int current = s->device;
    xpu_current_device(&current);
    xpu_set_device(s->device);
    xpu_wait(s->xpu);
    xpu_stream_destroy(s->xpu);
    xpu_free(s->error);
    xpu_set_device(current);
    delete s;
}

XPUStream ik_xpu_stream_of(void *stream) { return static_cast<ik_xpu_stream *>(stream)->xpu; }

ik_status ik_xpu_status(int code)
{
    switch (code < 0 ? -code : code) {
    case XPU_SUCCESS: return IK_SUCCESS;
    case XPUERR_NOMEM:
    case XPUERR_NOCPUMEM: return ik_fail(IK_OUT_OF_MEMORY, "%s (%d)", xpu_strerror(code), code);
    case XPUERR_INVALID_PARAM: return ik_fail(IK_INVALID_ARGUMENT, "%s (%d)", xpu_strerror(code), code);
    case XPUERR_INVALID_DEVICE:
    case XPUERR_UNINIT:
    case XPUERR_NODEVICE:
    case XPUERR_SIMULATOR:
    case XPUERR_ABNORMAL: return ik_fail(IK_DEVICE_NOT_AVAILABLE, "%s (%d)", xpu_strerror(code), code);
    default: return ik_fail(IK_INTERNAL_ERROR, "%s (%d)", xpu_strerror(code), code);
    }
}

uint32_t ik_device_count(void)
{
    int count = 0;
    return xpu_device_count(&count) == XPU_SUCCESS && count > 0 ? static_cast<uint32_t>(count) : 0;
}

ik_status ik_device_select(uint32_t device)
{
    const uint32_t count = ik_device_count();
    if (device >= count)
        return ik_fail(IK_INVALID_ARGUMENT, "device %u; allowed: less than %u", device, count);
    return ik_xpu_status(xpu_set_device(static_cast<int>(device)));
}

ik_status ik_memory_alloc(uint64_t bytes, const char *kind, void **memory)
{
    if (kind == nullptr || memory == nullptr)
        return ik_fail(
            IK_INVALID_ARGUMENT, "the %s is null", kind == nullptr ? "kind of memory" : "place for the memory");
    *memory = nullptr;
    const bool main = std::strcmp(kind, "default") == 0;
    if (!main && std::strcmp(kind, "l3") != 0)
        return ik_fail(IK_INVALID_ARGUMENT, "memory of kind %s; allowed: default, l3", kind);
    ik_status status = ik_xpu_status(xpu_malloc(memory, bytes == 0 ? 1 : bytes, main ? XPU_MEM_MAIN : XPU_MEM_L3));
    static const char zeros[1 << 16] = {};
    for (uint64_t at = 0; status == IK_SUCCESS && at < bytes; at += sizeof zeros) {
        const uint64_t n = bytes - at < sizeof zeros ? bytes - at : sizeof zeros;
        status = ik_xpu_status(xpu_memcpy(static_cast<char *>(*memory) + at, zeros, n, XPU_HOST_TO_DEVICE));
    }
    if (status != IK_SUCCESS && *memory != nullptr) {
        xpu_free(*memory);
        *memory = nullptr;
    }
    return status;
}

void ik_memory_free(void *memory)
{
    if (memory != nullptr)
        xpu_free(memory);
}

static ik_status copy(void *to, const void *from, uint64_t bytes, void *stream, XPUMemcpyKind kind)
{
    if (bytes != 0 && (to == nullptr || from == nullptr))
        return ik_fail(IK_INVALID_ARGUMENT, "what is to be copied %s is null", to == nullptr ? "to" : "from");
    const ik_status status = ik_stream_synchronize(stream);
    return status != IK_SUCCESS || bytes == 0 ? status : ik_xpu_status(xpu_memcpy(to, from, bytes, kind));
}

ik_status ik_memory_write(void *to, const void *from, uint64_t bytes, void *stream)
{ return copy(to, from, bytes, stream, XPU_HOST_TO_DEVICE); }
ik_status ik_memory_read(void *to, const void *from, uint64_t bytes, void *stream)
{ return copy(to, from, bytes, stream, XPU_DEVICE_TO_HOST); }

ik_status ik_stream_synchronize(void *stream)
{
    if (stream == nullptr)
        return ik_fail(IK_INVALID_ARGUMENT, "the stream is null");
    auto *s = static_cast<ik_xpu_stream *>(stream);
    const std::lock_guard<std::mutex> lock(s->mutex);
    ik_status status = ik_xpu_status(xpu_set_device(s->device));
    if (status == IK_SUCCESS)
        status = ik_xpu_status(xpu_wait(s->xpu));
    if (status != IK_SUCCESS || !s->may_fail)
        return status;
    ik_device_error found;
    status = ik_xpu_status(xpu_memcpy(&found, s->error, sizeof found, XPU_DEVICE_TO_HOST));
    s->may_fail = false;
    if (status != IK_SUCCESS || found.kind == 0)
        return status;
    const ik_device_error none = {};
    xpu_memcpy(s->error, &none, sizeof none, XPU_HOST_TO_DEVICE);
    return ik_bad_value_of(static_cast<uint32_t>(found.kind), found.at, found.value);
}
}
