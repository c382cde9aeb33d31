/* The host side of the kernels, beside isokern_native.c: streams over the runtime's, and the word in which a kernel leaves what only it can see. */
#include "host.h"

#include <cstdlib>
#include <new>

extern "C" {

const char *ik_level_missing(const char *) { return nullptr; }

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
    if (xpu_malloc(&word, sizeof none, XPU_MEM_MAIN) != XPU_SUCCESS || xpu_memcpy(word, &none, sizeof none, XPU_HOST_TO_DEVICE) != XPU_SUCCESS ||
        xpu_stream_create(&s->xpu) != XPU_SUCCESS) {
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
    int current = s->device; /* of this thread, which may be at something else: streams end when they are collected */
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
    case XPUERR_NOMEM: case XPUERR_NOCPUMEM: return ik_fail(IK_OUT_OF_MEMORY, "%s (%d)", xpu_strerror(code), code);
    case XPUERR_INVALID_PARAM: return ik_fail(IK_INVALID_ARGUMENT, "%s (%d)", xpu_strerror(code), code);
    case XPUERR_INVALID_DEVICE: case XPUERR_UNINIT: case XPUERR_NODEVICE: case XPUERR_SIMULATOR: case XPUERR_ABNORMAL: return ik_fail(IK_DEVICE_NOT_AVAILABLE, "%s (%d)", xpu_strerror(code), code);
    default: return ik_fail(IK_INTERNAL_ERROR, "%s (%d)", xpu_strerror(code), code);
    }
}

ik_status ik_stream_synchronize(void *stream)
{
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
    return ik_fail(IK_INVALID_ARGUMENT, "value:%lld:%lld:%u", found.at, found.value, static_cast<unsigned>(found.kind));
}
}
