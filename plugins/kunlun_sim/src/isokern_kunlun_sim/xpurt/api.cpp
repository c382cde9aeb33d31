/* The C interface of the runtime (xpu/runtime.h) over emulated devices: devices, streams, events, launches, errors. */
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cluster.h"
#include "host_memory.h"
#include "memory.h"
#include "model.h"
#include "process.h"

using namespace xpurt;

namespace
{

/* The launch that this thread configures. */
struct Configuration {
    int clusters = 0, cores = 0;
    std::shared_ptr<Stream> stream;
    std::vector<char> parameters;
};
thread_local Configuration configuration;

void check_current(const Stream &stream)
{
    if (stream.device != current_device)
        refuse("the stream is of device " + std::to_string(stream.device) + ", the current device is "
            + std::to_string(current_device));
}

/* Device memory that a launch may use: every allocation that its parameter block has an address of. */
std::vector<Range> named_memory(const std::vector<char> &parameters)
{
    std::vector<Range> found;
    for (std::size_t at = 0; at + sizeof(void *) <= parameters.size(); at += sizeof(void *)) {
        void *address;
        std::memcpy(&address, parameters.data() + at, sizeof address);
        if (auto a = memory().find(address); a != nullptr && !a->freed && a->has(address))
            found.push_back({ a->start, a->bytes, true });
    }
    return found;
}

/* Run a launch, unless its device is abnormal; a kernel exception makes it so. */
Status run_on_device(const Launch &launch)
{
    Device &on = device(launch.device);
    if (on.abnormal)
        return { XPUERR_ABNORMAL, on.why };
    Status done = run_launch(launch);
    if (done.code == XPUERR_KEXCEPTION || done.code == XPUERR_TIMEOUT) {
        std::fprintf(stderr, "xpurt: %s\n", done.what.c_str());
        std::lock_guard lock(process().mutex);
        if (!on.abnormal) {
            on.why = done.what;
            on.abnormal = true;
        }
    }
    return done;
}

} // namespace

extern "C" {

int xpu_device_count(int *count)
{
    return call([&] {
        require(count, "count");
        *count = 0;
        check_ready();
        *count = static_cast<int>(process().devices.size());
    });
}

int xpu_set_device(int devid)
{
    return call([&] {
        check_device(devid);
        current_device = devid;
    });
}

int xpu_current_device(int *devid)
{
    return call([&] {
        require(devid, "devid");
        *devid = current_device;
        check_ready();
    });
}

int xpu_device_get_attr(uint64_t *value, XPUDeviceAttr attr, int devid)
{
    return call([&] {
        check_device(devid);
        require(value, "value");
        const Model &m = settings().model;
        switch (attr) {
        case XPUATTR_DEVID: *value = static_cast<uint64_t>(settings().devices[static_cast<std::size_t>(devid)]); return;
        case XPUATTR_MODEL: *value = m.name == "KUNLUN2" ? 2 : 3; return;
        case XPUATTR_MEM_MAIN_CAPACITY: *value = m.hbm; return;
        case XPUATTR_MEM_L3_CAPACITY: *value = m.l3; return;
        case XPUATTR_NUM_CLUSTER: *value = static_cast<uint64_t>(m.clusters); return;
        case XPUATTR_NUM_SDNN: *value = static_cast<uint64_t>(m.sdnn); return;
        default: break;
        }
        if (attr < 0 || attr > XPUATTR_NUM_IMGPROC)
            refuse("attribute " + std::to_string(attr) + "; allowed: 0 to " + std::to_string(XPUATTR_NUM_IMGPROC));
        fail(XPUERR_UNSUPPORTED, "attribute " + std::to_string(attr) + " is not modelled");
    });
}

int xpu_stream_create(XPUStream *stream)
{
    return call([&] {
        check_ready();
        require(stream, "the place for the stream");
        auto made = std::make_shared<Stream>(current_device, settings().checked);
        *stream = made.get();
        std::lock_guard lock(process().mutex);
        process().streams[*stream] = std::move(made);
    });
}

int xpu_stream_destroy(XPUStream stream)
{
    return call([&] {
        if (stream == nullptr)
            refuse("the default stream is not destroyed");
        const auto s = stream_of(stream);
        {
            std::lock_guard lock(process().mutex);
            if (process().streams.erase(stream) == 0)
                refuse("the stream is being destroyed by another thread");
        }
        s->wait(is_abnormal); /* its work is done, so none of it can hold the last reference to the stream */
        take_output(stream);
    });
}

int xpu_event_create(XPUEvent *event)
{
    return call([&] {
        check_ready();
        require(event, "the place for the event");
        auto made = std::make_shared<Event>();
        *event = made.get();
        std::lock_guard lock(process().mutex);
        process().events[*event] = std::move(made);
    });
}

int xpu_event_destroy(XPUEvent event)
{
    return call([&] {
        const auto e = event_of(event);
        std::lock_guard lock(process().mutex);
        process().events.erase(event);
    });
}

int xpu_event_record(XPUEvent event, XPUStream stream)
{
    return call([&] {
        const auto e = event_of(event);
        e->record(stream_of(stream));
    });
}

int xpu_event_wait(XPUEvent event)
{
    return call([&] { throw_if_failed(event_of(event)->wait()); });
}

int xpu_event_query(XPUEvent event)
{
    return call([&] { throw_if_failed(event_of(event)->query()); });
}

int xpu_stream_wait_event(XPUStream stream, XPUEvent event)
{
    return call([&] {
        const auto e = event_of(event);
        Moment recorded;
        const std::uint64_t number = e->last(recorded);
        stream_of(stream)->push(
            { [e, number](const Status &, const Moment &) {
                 const Status found = e->wait(number);
                 return found.code == XPU_SUCCESS
                     ? Status{}
                     : Status{ XPUERR_EVENT_WAIT, "the event is behind work that failed: " + found.what };
             },
                "an event", {}, false, recorded });
    });
}

int xpu_wait(XPUStream stream)
{
    const char *frame = static_cast<const char *>(__builtin_frame_address(0));
    return call([&] {
        const auto s = stream_of(stream);
        report_dead_arrays(*s, frame);
        throw_if_failed(s->wait(is_abnormal));
    });
}

int xpu_launch_config(int nclusters, int ncores, XPUStream stream)
{
    return call([&] {
        configuration = {};
        const auto s = stream_of(stream);
        const int max_cores = settings().model.cores;
        if (nclusters < 1 || nclusters > 255)
            refuse("a launch of " + std::to_string(nclusters) + " clusters; allowed: 1 to 255");
        if (ncores < 1 || ncores > max_cores)
            refuse("a launch of " + std::to_string(ncores) + " cores a cluster; allowed: 1 to "
                + std::to_string(max_cores));
        check_current(*s);
        configuration = { nclusters, ncores, s, {} };
    });
}

int xpu_launch_argument_set(const void *argument, size_t size, size_t offset)
{
    return call([&] {
        const unsigned max_bytes = settings().model.parameter_bytes;
        require(argument, "the argument");
        if (offset % 4 != 0 || offset > max_bytes || size > max_bytes - offset) {
            configuration = {};
            refuse(std::to_string(size) + " bytes at offset " + std::to_string(offset)
                + " of the parameter block; allowed: multiples of 4, " + std::to_string(max_bytes) + " bytes in all");
        }
        std::vector<char> &block = configuration.parameters;
        block.resize(std::max(block.size(), (offset + size + 3) / 4 * 4));
        std::memcpy(block.data() + offset, argument, size);
    });
}

int xpu_launch_async(XPUFunc function)
{
    return call([&] {
        Configuration c = std::move(configuration);
        configuration = {};
        check_ready();
        const auto *f = static_cast<const xpusim_function *>(function);
        if (f == nullptr || f->run == nullptr || f->kernel == nullptr)
            fail(XPUERR_NOFUNC, "the function is null");
        if (c.stream == nullptr)
            refuse("no launch is configured: call xpu_launch_config first, in this thread");
        check_current(*c.stream);
        if (c.parameters.size() != f->parameter_bytes)
            refuse(std::to_string(c.parameters.size()) + " bytes of parameters; the kernel takes "
                + std::to_string(f->parameter_bytes));
        check_normal(current_device);
        auto launch = std::make_shared<Launch>();
        launch->function = *f;
        launch->name = f->name == nullptr ? "(without a name)" : f->name;
        launch->function.name = launch->name.c_str();
        launch->clusters = c.clusters;
        launch->cores = c.cores;
        launch->device = current_device;
        launch->stream = c.stream.get();
        launch->parameters = std::move(c.parameters);
        {
            std::lock_guard lock(process().mutex);
            launch->number = ++process().launches;
        }
        c.stream->push({ [launch](const Status &, const Moment &now) {
                            launch->moment = now;
                            return run_on_device(*launch);
                        },
            "kernel " + launch->name, named_memory(launch->parameters), false, {} });
    });
}

int xpu_kernel_debug(XPUStream stream)
{
    return call([&] {
        const auto s = stream_of(stream);
        const Status status = s->wait(is_abnormal);
        const std::string text = take_output(s.get());
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
        throw_if_failed(status);
    });
}

int xpu_kernel_debug_reset(void)
{
    return call([] {
        check_ready();
        forget_output();
    });
}

int xpu_get_runtime_version(uint32_t *major, uint32_t *minor)
{
    return call([&] {
        if (major == nullptr || minor == nullptr)
            refuse("the place for the version is null");
        *major = 4;
        *minor = 33;
    });
}

int xpu_get_driver_version(uint32_t *major, uint32_t *minor) { return xpu_get_runtime_version(major, minor); }

const char *xpu_strerror(int error)
{
    static thread_local std::string text;
    const int code = error < 0 ? -error : error;
    text = [code] {
        switch (code) {
        case XPU_SUCCESS: return "success";
        case XPUERR_INVALID_DEVICE: return "invalid device";
        case XPUERR_UNINIT: return "not initialised";
        case XPUERR_NODEVICE: return "no device";
        case XPUERR_VERSION: return "versions do not match";
        case XPUERR_NOMEM: return "no device memory";
        case XPUERR_NOCPUMEM: return "no CPU memory";
        case XPUERR_INVALID_PARAM: return "invalid parameter";
        case XPUERR_NOFUNC: return "no function";
        case XPUERR_DLOPEN: return "a library cannot be opened";
        case XPUERR_DLSYM: return "a symbol is missing";
        case XPUERR_SIMULATOR: return "simulator";
        case XPUERR_UNSUPPORTED: return "unsupported";
        case XPUERR_ABNORMAL: return "abnormal state after a kernel exception";
        case XPUERR_KEXCEPTION: return "kernel exception";
        case XPUERR_TIMEOUT: return "timeout";
        case XPUERR_BUSY: return "busy";
        case XPUERR_USEAFTERCLOSE: return "use after close";
        case XPUERR_UCECC: return "uncorrectable memory error";
        case XPUERR_OVERHEAT: return "overheat";
        case XPUERR_EVENT_WAIT: return "waiting for an event failed";
        case XPUERR_UNEXPECT: return "unexpected error";
        case XPUERR_RESET: return "reset";
        case XPUERR_HWEXCEPTION: return "hardware exception";
        case XPUERR_HOST_MEM_REGISTERED: return "host memory is registered already";
        default: return "unknown error";
        }
    }();
    if (code == last_error.code && code != XPU_SUCCESS && !last_error.what.empty())
        text += ": " + last_error.what;
    return text.c_str();
}
}
