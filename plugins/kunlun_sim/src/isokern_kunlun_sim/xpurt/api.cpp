/* The C interface of the runtime (xpu/runtime.h) over an emulated device. */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "cluster.h"
#include "memory.h"
#include "model.h"
#include "stream.h"

using namespace xpurt;

namespace {

/* One device of the process. */
struct Device {
    std::unique_ptr<Stream> default_stream;
    std::atomic<bool> abnormal{false}; /* after a kernel exception nothing runs until a reset */
};

struct State {
    const Model *m = nullptr;
    std::vector<std::unique_ptr<Device>> devices;
    std::mutex mutex;
    std::set<Stream *> streams;
    std::set<Event *> events;
    std::set<void *> host;
};

/* The state, made at first use; null where the settings name no model (the reason was printed). Never destroyed: threads may outlive exit. */
State *state()
{
    static State *made = [] {
        auto *s = new State;
        std::string error;
        s->m = model(error);
        if (s->m == nullptr) {
            std::fprintf(stderr, "xpurt: %s\n", error.c_str());
            return s;
        }
        for (int i = 0; i < device_count(); i++) {
            s->devices.push_back(std::make_unique<Device>());
            s->devices.back()->default_stream = std::make_unique<Stream>(i);
        }
        return s;
    }();
    return made;
}

thread_local int current = 0;

int check_device(int id)
{
    if (state()->m == nullptr)
        return XPUERR_SIMULATOR;
    if (state()->devices.empty())
        return XPUERR_NODEVICE;
    return id >= 0 && id < static_cast<int>(state()->devices.size()) ? XPU_SUCCESS : XPUERR_INVALID_DEVICE;
}

/* The stream that a handle names, null where it names none. */
Stream *stream_of(XPUStream handle)
{
    if (handle == nullptr)
        return state()->devices[static_cast<std::size_t>(current)]->default_stream.get();
    std::lock_guard lock(state()->mutex);
    auto *s = static_cast<Stream *>(handle);
    return state()->streams.count(s) != 0 ? s : nullptr;
}

Event *event_of(XPUEvent handle)
{
    std::lock_guard lock(state()->mutex);
    auto *e = static_cast<Event *>(handle);
    return state()->events.count(e) != 0 ? e : nullptr;
}

/* Both ends of a copy must be what its kind says. */
int check_copy(const void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (bytes == 0)
        return XPU_SUCCESS;
    if (to == nullptr || from == nullptr || kind < XPU_DEVICE_TO_HOST || kind > XPU_DEVICE_TO_DEVICE)
        return XPUERR_INVALID_PARAM;
    const bool to_device = kind != XPU_DEVICE_TO_HOST, from_device = kind != XPU_HOST_TO_DEVICE;
    const bool right = (to_device ? memory().holds(to, bytes) : memory().find(to) == nullptr) && (from_device ? memory().holds(from, bytes) : memory().find(from) == nullptr);
    return right ? XPU_SUCCESS : XPUERR_INVALID_PARAM;
}

void move(void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    std::memcpy(to, from, bytes);
    if (kind == XPU_HOST_TO_DEVICE)
        gm_written(to, bytes);
    else if (kind == XPU_DEVICE_TO_DEVICE)
        gm_copied(to, from, bytes);
}

struct Configuration {
    int clusters = 0, cores = 0;
    XPUStream stream = nullptr;
    std::vector<char> parameters;
};
thread_local Configuration configuration;

} // namespace

extern "C" {

int xpu_device_count(int *count)
{
    if (count == nullptr)
        return XPUERR_INVALID_PARAM;
    *count = state()->m == nullptr ? 0 : static_cast<int>(state()->devices.size());
    return state()->m == nullptr ? XPUERR_SIMULATOR : XPU_SUCCESS;
}

int xpu_set_device(int devid)
{
    const int status = check_device(devid);
    if (status == XPU_SUCCESS)
        current = devid;
    return status;
}

int xpu_current_device(int *devid)
{
    if (devid == nullptr)
        return XPUERR_INVALID_PARAM;
    *devid = current;
    return check_device(current);
}

int xpu_device_get_attr(uint64_t *value, XPUDeviceAttr attr, int devid)
{
    const int status = check_device(devid);
    if (status != XPU_SUCCESS)
        return status;
    if (value == nullptr)
        return XPUERR_INVALID_PARAM;
    const Model &m = *state()->m;
    switch (attr) {
    case XPUATTR_DEVID: *value = static_cast<uint64_t>(devid); return XPU_SUCCESS;
    case XPUATTR_MODEL: *value = m.name == "KUNLUN2" ? 2 : 3; return XPU_SUCCESS;
    case XPUATTR_MEM_MAIN_CAPACITY: *value = m.hbm; return XPU_SUCCESS;
    case XPUATTR_MEM_L3_CAPACITY: *value = m.l3; return XPU_SUCCESS;
    case XPUATTR_NUM_CLUSTER: *value = static_cast<uint64_t>(m.clusters); return XPU_SUCCESS;
    case XPUATTR_NUM_SDNN: *value = static_cast<uint64_t>(m.sdnn); return XPU_SUCCESS;
    case XPUATTR_PCI_ADDRESS: case XPUATTR_BOARDID: case XPUATTR_ONBOARDID: case XPUATTR_NUM_DMACH: case XPUATTR_NUM_HWQ:
    case XPUATTR_NUM_ENC: case XPUATTR_NUM_DEC: case XPUATTR_NUM_IMGPROC: return XPUERR_UNSUPPORTED;
    }
    return XPUERR_INVALID_PARAM;
}

int xpu_malloc(void **pointer, uint64_t bytes, XPUMemoryKind kind)
{
    const int status = check_device(current);
    if (status != XPU_SUCCESS)
        return status;
    if (pointer == nullptr || (kind != XPU_MEM_MAIN && kind != XPU_MEM_L3 && kind != XPU_MEM_MAIN_KL2_HUGE))
        return XPUERR_INVALID_PARAM;
    return memory().allocate(pointer, bytes, kind, current);
}

int xpu_free(void *pointer) { return pointer == nullptr ? XPU_SUCCESS : memory().free(pointer); }

int xpu_host_alloc(void **pointer, uint64_t bytes, unsigned)
{
    if (pointer == nullptr)
        return XPUERR_INVALID_PARAM;
    *pointer = std::malloc(bytes == 0 ? 1 : bytes);
    if (*pointer == nullptr)
        return XPUERR_NOCPUMEM;
    std::lock_guard lock(state()->mutex);
    state()->host.insert(*pointer);
    return XPU_SUCCESS;
}

int xpu_host_free(void *pointer)
{
    std::lock_guard lock(state()->mutex);
    if (pointer != nullptr && state()->host.erase(pointer) == 0)
        return XPUERR_INVALID_PARAM;
    std::free(pointer);
    return XPU_SUCCESS;
}

int xpu_host_register(void *pointer, uint64_t bytes, unsigned)
{
    if (pointer == nullptr || bytes == 0)
        return XPUERR_INVALID_PARAM;
    std::lock_guard lock(state()->mutex);
    return state()->host.insert(pointer).second ? XPU_SUCCESS : XPUERR_HOST_MEM_REGISTERED;
}

int xpu_host_unregister(void *pointer)
{
    std::lock_guard lock(state()->mutex);
    return state()->host.erase(pointer) != 0 ? XPU_SUCCESS : XPUERR_INVALID_PARAM;
}

int xpu_memcpy(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind)
{
    const int status = check_copy(to, from, bytes, kind);
    if (status == XPU_SUCCESS && bytes != 0)
        move(to, from, bytes, kind);
    return status;
}

int xpu_memcpy_async(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind, XPUStream stream)
{
    Stream *s = check_device(current) == XPU_SUCCESS ? stream_of(stream) : nullptr;
    if (s == nullptr)
        return XPUERR_INVALID_PARAM;
    const int status = check_copy(to, from, bytes, kind);
    if (status == XPU_SUCCESS && bytes != 0)
        s->push([=] {
            move(to, from, bytes, kind);
            return XPU_SUCCESS;
        });
    return status;
}

int xpu_memcpy_peer(int to_device, void *to, int from_device, const void *from, uint64_t bytes)
{
    auto target = memory().find(to), source = memory().find(from);
    if (check_device(to_device) != XPU_SUCCESS || check_device(from_device) != XPU_SUCCESS)
        return XPUERR_INVALID_DEVICE;
    if (target == nullptr || source == nullptr || target->device != to_device || source->device != from_device)
        return XPUERR_INVALID_PARAM;
    return xpu_memcpy(to, from, bytes, XPU_DEVICE_TO_DEVICE);
}

int xpu_pointer_get_attrs(XPUPointerAttributes *attributes, const void *pointer)
{
    if (attributes == nullptr)
        return XPUERR_INVALID_PARAM;
    auto found = memory().find(pointer);
    const bool live = found != nullptr && !found->freed && found->has(pointer);
    *attributes = {live ? found->kind : XPU_MEM_MAIN, live ? found->device : -1, live ? const_cast<void *>(pointer) : nullptr, live ? nullptr : const_cast<void *>(pointer)};
    return XPU_SUCCESS;
}

int xpu_stream_create(XPUStream *stream)
{
    const int status = check_device(current);
    if (status != XPU_SUCCESS)
        return status;
    if (stream == nullptr)
        return XPUERR_INVALID_PARAM;
    auto *made = new Stream(current);
    std::lock_guard lock(state()->mutex);
    state()->streams.insert(made);
    *stream = made;
    return XPU_SUCCESS;
}

int xpu_stream_destroy(XPUStream stream)
{
    auto *s = static_cast<Stream *>(stream);
    {
        std::lock_guard lock(state()->mutex);
        if (state()->streams.erase(s) == 0)
            return XPUERR_INVALID_PARAM;
    }
    delete s;
    return XPU_SUCCESS;
}

int xpu_event_create(XPUEvent *event)
{
    if (event == nullptr)
        return XPUERR_INVALID_PARAM;
    auto *made = new Event;
    std::lock_guard lock(state()->mutex);
    state()->events.insert(made);
    *event = made;
    return XPU_SUCCESS;
}

int xpu_event_destroy(XPUEvent event)
{
    auto *e = static_cast<Event *>(event);
    std::lock_guard lock(state()->mutex);
    return state()->events.erase(e) != 0 ? XPU_SUCCESS : XPUERR_INVALID_PARAM; /* its memory stays: a stream may still reach it */
}

int xpu_event_record(XPUEvent event, XPUStream stream)
{
    Event *e = event_of(event);
    Stream *s = check_device(current) == XPU_SUCCESS ? stream_of(stream) : nullptr;
    if (e == nullptr || s == nullptr)
        return XPUERR_INVALID_PARAM;
    std::uint64_t number;
    {
        std::lock_guard lock(e->mutex);
        number = ++e->recorded;
    }
    s->push([e, number] {
        std::lock_guard lock(e->mutex);
        e->reached = std::max(e->reached, number);
        e->changed.notify_all();
        return XPU_SUCCESS;
    });
    return XPU_SUCCESS;
}

static int wait_for(Event *e, std::uint64_t number)
{
    std::unique_lock lock(e->mutex);
    e->changed.wait(lock, [=] { return e->reached >= number; });
    return XPU_SUCCESS;
}

int xpu_event_wait(XPUEvent event)
{
    Event *e = event_of(event);
    return e == nullptr ? static_cast<int>(XPUERR_INVALID_PARAM) : wait_for(e, e->recorded);
}

int xpu_event_query(XPUEvent event)
{
    Event *e = event_of(event);
    if (e == nullptr)
        return XPUERR_INVALID_PARAM;
    std::lock_guard lock(e->mutex);
    return e->reached >= e->recorded ? XPU_SUCCESS : XPUERR_BUSY;
}

int xpu_stream_wait_event(XPUStream stream, XPUEvent event)
{
    Event *e = event_of(event);
    Stream *s = check_device(current) == XPU_SUCCESS ? stream_of(stream) : nullptr;
    if (e == nullptr || s == nullptr)
        return XPUERR_INVALID_PARAM;
    s->push([e, number = e->recorded] { return wait_for(e, number); });
    return XPU_SUCCESS;
}

int xpu_wait(XPUStream stream)
{
    const int status = check_device(current);
    if (status != XPU_SUCCESS)
        return status;
    Stream *s = stream_of(stream);
    return s == nullptr ? static_cast<int>(XPUERR_INVALID_PARAM) : s->wait();
}

int xpu_launch_config(int nclusters, int ncores, XPUStream stream)
{
    const int status = check_device(current);
    if (status != XPU_SUCCESS)
        return status;
    Stream *s = stream_of(stream);
    if (nclusters < 1 || nclusters > 255 || ncores < 1 || ncores > state()->m->cores || s == nullptr || s->device != current)
        return XPUERR_INVALID_PARAM;
    configuration = {nclusters, ncores, stream, {}};
    return XPU_SUCCESS;
}

int xpu_launch_argument_set(const void *argument, size_t size, size_t offset)
{
    if (argument == nullptr || offset % 4 != 0 || offset + size > state()->m->parameter_bytes)
        return XPUERR_INVALID_PARAM;
    std::vector<char> &block = configuration.parameters;
    block.resize(std::max(block.size(), (offset + size + 3) / 4 * 4));
    std::memcpy(block.data() + offset, argument, size);
    return XPU_SUCCESS;
}

int xpu_launch_async(XPUFunc function)
{
    if (function == nullptr || configuration.clusters == 0)
        return XPUERR_NOFUNC;
    Device &device = *state()->devices[static_cast<std::size_t>(current)];
    if (device.abnormal)
        return XPUERR_ABNORMAL;
    Stream *s = stream_of(configuration.stream);
    auto launch = std::make_shared<Launch>();
    launch->function = *static_cast<const xpusim_function *>(function);
    launch->name = launch->function.name;
    launch->clusters = configuration.clusters;
    launch->cores = configuration.cores;
    launch->device = current;
    launch->parameters = std::move(configuration.parameters);
    configuration = {};
    launch->parameters.resize(launch->function.parameter_bytes);
    s->push([launch, &device] {
        if (device.abnormal)
            return static_cast<int>(XPUERR_ABNORMAL);
        std::string what;
        const int status = run_launch(*launch, *state()->m, what);
        if (status != XPU_SUCCESS) {
            device.abnormal = true;
            std::fprintf(stderr, "xpurt: %s\n", what.c_str());
        }
        return status;
    });
    return XPU_SUCCESS;
}

int xpu_kernel_debug(XPUStream stream)
{
    const int status = xpu_wait(stream);
    const std::string text = take_output();
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return status;
}

int xpu_kernel_debug_reset(void)
{
    take_output();
    return XPU_SUCCESS;
}

int xpu_get_runtime_version(uint32_t *major, uint32_t *minor)
{
    if (major == nullptr || minor == nullptr)
        return XPUERR_INVALID_PARAM;
    *major = 4;
    *minor = 33;
    return XPU_SUCCESS;
}

int xpu_get_driver_version(uint32_t *major, uint32_t *minor) { return xpu_get_runtime_version(major, minor); }

const char *xpu_strerror(int error)
{
    switch (error < 0 ? -error : error) {
    case XPU_SUCCESS: return "success";
    case XPUERR_INVALID_DEVICE: return "invalid device";
    case XPUERR_UNINIT: return "not initialised";
    case XPUERR_NODEVICE: return "no device";
    case XPUERR_NOMEM: return "no device memory";
    case XPUERR_NOCPUMEM: return "no CPU memory";
    case XPUERR_INVALID_PARAM: return "invalid parameter";
    case XPUERR_NOFUNC: return "no function";
    case XPUERR_SIMULATOR: return "simulator";
    case XPUERR_UNSUPPORTED: return "unsupported";
    case XPUERR_ABNORMAL: return "the device is in an abnormal state after a kernel exception";
    case XPUERR_KEXCEPTION: return "kernel exception";
    case XPUERR_TIMEOUT: return "kernel timeout";
    case XPUERR_BUSY: return "busy";
    case XPUERR_HOST_MEM_REGISTERED: return "host memory is registered already";
    default: return "unexpected error";
    }
}
}
