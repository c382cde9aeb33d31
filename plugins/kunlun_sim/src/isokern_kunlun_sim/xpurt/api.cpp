/* The C interface of the runtime (xpu/runtime.h) over emulated devices. */
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <pthread.h>

#include "check.h"
#include "check_rules.h"
#include "cluster.h"
#include "memory.h"
#include "model.h"
#include "stream.h"

using namespace xpurt;

namespace
{

/* ---- Errors: a number and, for xpu_strerror in the same thread, what it is about. ---- */

thread_local Status last;

int fail(int code, std::string what)
{
    last = { code, std::move(what) };
    return code;
}

int fail(const Status &status)
{ return status.code == XPU_SUCCESS ? static_cast<int>(XPU_SUCCESS) : fail(status.code, status.what); }

int invalid(std::string what) { return fail(XPUERR_INVALID_PARAM, std::move(what)); }

/* ---- The state of the process ---- */

/* One device that the process sees. After a kernel exception it runs nothing until a reset, that is in a new
 * process. */
struct Device {
    explicit Device(int index) : default_stream(std::make_shared<Stream>(index, settings().checked)) {}
    std::shared_ptr<Stream> default_stream;
    std::atomic<bool> abnormal{ false };
    std::string why; /* written once, before `abnormal` */
};

/* Host memory that the runtime knows. */
struct Host {
    std::uint64_t bytes;
    bool registered; /* by xpu_host_register; otherwise the runtime allocated it */
};

struct State {
    std::vector<std::unique_ptr<Device>> devices;
    std::mutex mutex; /* of the members below */
    std::map<void *, std::shared_ptr<Stream>> streams;
    std::map<void *, std::shared_ptr<Event>> events;
    std::map<char *, Host> host;
    std::uint64_t launches = 0;
};

/* Set in a child of a process that used the runtime: its threads do not exist here, and its locks may be locked. */
std::atomic<bool> forked{ false };

/* Created at first use and never destroyed, because threads may outlive exit. */
State &state()
{
    static State *made = [] {
        auto *s = new State;
        for (std::size_t i = 0; i < settings().devices.size(); i++)
            s->devices.push_back(std::make_unique<Device>(static_cast<int>(i)));
        pthread_atfork(nullptr, nullptr, [] { forked = true; });
        return s;
    }();
    return *made;
}

thread_local int current = 0;

/* Check that the runtime can work in this process. */
int ready()
{
    if (forked)
        return fail(XPUERR_UNINIT,
            "the process was forked from one that had used the XPU; start a new one instead "
            "(multiprocessing: method spawn)");
    if (!settings().error.empty())
        return fail(XPUERR_SIMULATOR, settings().error);
    return state().devices.empty() ? fail(XPUERR_NODEVICE, "XPU_VISIBLE_DEVICES names none")
                                   : static_cast<int>(XPU_SUCCESS);
}

int check_device(int id)
{
    const int status = ready();
    const auto count = status == XPU_SUCCESS ? static_cast<int>(state().devices.size()) : 0;
    if (status != XPU_SUCCESS || (id >= 0 && id < count))
        return status;
    return fail(XPUERR_INVALID_DEVICE, "device " + std::to_string(id) + "; allowed: 0 to " + std::to_string(count - 1));
}

Device &device_of(int id) { return *state().devices[static_cast<std::size_t>(id)]; }

bool is_abnormal(int id) { return device_of(id).abnormal; }

int check_normal(int id)
{
    return is_abnormal(id)
        ? fail(XPUERR_ABNORMAL, "device " + std::to_string(id) + ", until the process ends: " + device_of(id).why)
        : static_cast<int>(XPU_SUCCESS);
}

/* The stream that a handle names; null, with the error set, if it names none. */
std::shared_ptr<Stream> stream_of(XPUStream handle)
{
    if (ready() != XPU_SUCCESS)
        return nullptr;
    if (handle == nullptr)
        return device_of(current).default_stream;
    std::lock_guard lock(state().mutex);
    auto found = state().streams.find(handle);
    if (found != state().streams.end())
        return found->second;
    invalid("the stream is none, or was destroyed");
    return nullptr;
}

std::shared_ptr<Event> event_of(XPUEvent handle)
{
    if (ready() != XPU_SUCCESS)
        return nullptr;
    std::lock_guard lock(state().mutex);
    auto found = state().events.find(handle);
    if (found != state().events.end())
        return found->second;
    invalid("the event is none, or was destroyed");
    return nullptr;
}

int push(const std::shared_ptr<Stream> &stream, Work work)
{
    try {
        stream->push(std::move(work));
        return XPU_SUCCESS;
    } catch (const std::system_error &) {
        return fail(XPUERR_NOCPUMEM, "the host has no thread left for a stream");
    }
}

/* ---- Work in flight ---- */

std::string hex(const void *address)
{
    char text[32];
    std::snprintf(text, sizeof text, "%p", address);
    return text;
}

/* The name of work on any stream that would conflict with reading, or if `writes` with writing, these bytes; empty if
 * there is none. */
std::string in_flight(const void *start, std::uint64_t bytes, bool writes)
{
    std::vector<std::shared_ptr<Stream>> streams;
    for (const auto &device : state().devices)
        streams.push_back(device->default_stream);
    {
        std::lock_guard lock(state().mutex);
        for (const auto &entry : state().streams)
            streams.push_back(entry.second);
    }
    for (const auto &stream : streams)
        if (std::string name = stream->user(start, bytes, writes); !name.empty())
            return name;
    return {};
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

/* A hash in the manner of FNV-1a, over words: any change of the bytes should change it. */
std::uint64_t checksum(const void *start, std::uint64_t bytes)
{
    std::uint64_t sum = 14695981039346656037u, word = 0;
    for (std::uint64_t i = 0; i < bytes; i += 8) {
        std::memcpy(&word, static_cast<const char *>(start) + i, std::min<std::uint64_t>(8, bytes - i));
        sum = (sum ^ word) * 1099511628211u;
        sum ^= sum >> 29;
    }
    return sum;
}

/* Check that both ends of a copy are what its kind says. */
int check_copy(const void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (kind < XPU_DEVICE_TO_HOST || kind > XPU_DEVICE_TO_DEVICE)
        return invalid("kind " + std::to_string(kind)
            + " of copy; allowed: 0 (device to host), 1 (host to device), 2 (device to device)");
    if (bytes == 0)
        return XPU_SUCCESS;
    const bool on_device[2] = { kind != XPU_DEVICE_TO_HOST, kind != XPU_HOST_TO_DEVICE };
    const void *ends[2] = { to, from };
    for (int i = 0; i < 2; i++) {
        const std::string end = std::string(i == 0 ? "the destination " : "the source ") + hex(ends[i]);
        if (ends[i] == nullptr)
            return invalid(end + " is null");
        if (on_device[i] && !memory().holds(ends[i], bytes))
            return invalid(
                end + " of " + std::to_string(bytes) + " bytes is not within one allocation of device memory");
        if (!on_device[i] && memory().in_range(ends[i]))
            return invalid(end + " is device memory, which the kind of copy takes for the host's");
    }
    return XPU_SUCCESS;
}

int check_one_device(const void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (kind != XPU_DEVICE_TO_DEVICE || bytes == 0 || memory().find(to)->device == memory().find(from)->device)
        return XPU_SUCCESS;
    return invalid("the copy is between two devices: use xpu_memcpy_peer");
}

/* Copy, and update the shadow of which bytes are written. */
void transfer(void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    std::memmove(to, from, bytes);
    if (kind == XPU_HOST_TO_DEVICE)
        record_gm_write(to, bytes);
    else if (kind == XPU_DEVICE_TO_DEVICE)
        record_gm_copy(to, from, bytes);
}

/* Report a synchronous copy of bytes that a stream may still use. */
void check_host_copy(const void *to, const void *from, std::uint64_t bytes)
{
    if (const std::string user = in_flight(to, bytes, true); !user.empty())
        report(check::rules::copy_in_flight,
            "xpu_memcpy writes " + std::to_string(bytes) + " bytes at " + hex(to) + ", which " + user
                + " may still use",
            "call xpu_wait for its stream before the copy");
    else if (const std::string writer = in_flight(from, bytes, false); !writer.empty())
        report(check::rules::copy_in_flight,
            "xpu_memcpy reads " + std::to_string(bytes) + " bytes at " + hex(from) + ", which " + writer
                + " may still write"
                + (writer.rfind("kernel ", 0) == 0
                        ? ": it was given the memory, and a launch does not tell what is only read"
                        : ""),
            "call xpu_wait for its stream before the copy");
}

/* ---- The launch that this thread configures ---- */

struct Configuration {
    int clusters = 0, cores = 0;
    std::shared_ptr<Stream> stream;
    std::vector<char> parameters;
};
thread_local Configuration configuration;

} // namespace

extern "C" {

int xpu_device_count(int *count)
{
    if (count == nullptr)
        return invalid("count is null");
    *count = 0;
    const int status = ready();
    if (status == XPU_SUCCESS)
        *count = static_cast<int>(state().devices.size());
    return status;
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
        return invalid("devid is null");
    *devid = current;
    return ready();
}

int xpu_device_get_attr(uint64_t *value, XPUDeviceAttr attr, int devid)
{
    const int status = check_device(devid);
    if (status != XPU_SUCCESS)
        return status;
    if (value == nullptr)
        return invalid("value is null");
    const Model &m = settings().model;
    switch (attr) {
    case XPUATTR_DEVID:
        *value = static_cast<uint64_t>(settings().devices[static_cast<std::size_t>(devid)]);
        return XPU_SUCCESS;
    case XPUATTR_MODEL: *value = m.name == "KUNLUN2" ? 2 : 3; return XPU_SUCCESS;
    case XPUATTR_MEM_MAIN_CAPACITY: *value = m.hbm; return XPU_SUCCESS;
    case XPUATTR_MEM_L3_CAPACITY: *value = m.l3; return XPU_SUCCESS;
    case XPUATTR_NUM_CLUSTER: *value = static_cast<uint64_t>(m.clusters); return XPU_SUCCESS;
    case XPUATTR_NUM_SDNN: *value = static_cast<uint64_t>(m.sdnn); return XPU_SUCCESS;
    case XPUATTR_PCI_ADDRESS:
    case XPUATTR_BOARDID:
    case XPUATTR_ONBOARDID:
    case XPUATTR_NUM_DMACH:
    case XPUATTR_NUM_HWQ:
    case XPUATTR_NUM_ENC:
    case XPUATTR_NUM_DEC:
    case XPUATTR_NUM_IMGPROC: return fail(XPUERR_UNSUPPORTED, "attribute " + std::to_string(attr) + " is not modelled");
    }
    return invalid("attribute " + std::to_string(attr) + "; allowed: 0 to 13");
}

int xpu_malloc(void **pointer, uint64_t bytes, XPUMemoryKind kind)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    if (pointer == nullptr)
        return invalid("the place for the pointer is null");
    if (kind == XPU_MEM_MMAPPABLE)
        return fail(XPUERR_UNSUPPORTED, "memory that the host can map is not modelled");
    if (kind != XPU_MEM_MAIN && kind != XPU_MEM_L3 && kind != XPU_MEM_MAIN_KL2_HUGE)
        return invalid("kind " + std::to_string(kind) + " of memory; allowed: 0 (main), 1 (L3), 17 (main, huge pages)");
    try {
        std::string why;
        const int code = memory().allocate(pointer, bytes, kind, current, why);
        return code == XPU_SUCCESS ? code : fail(code, why);
    } catch (const std::bad_alloc &) {
        return fail(XPUERR_NOCPUMEM, "the host has no memory to keep account of " + std::to_string(bytes) + " bytes");
    }
}

int xpu_free(void *pointer)
{
    const int status = ready();
    if (status != XPU_SUCCESS || pointer == nullptr)
        return status;
    if (auto a = memory().find(pointer); a != nullptr && !a->freed && a->start == pointer)
        if (const std::string user = in_flight(a->start, a->bytes, true); !user.empty())
            report(check::rules::free_in_flight,
                "xpu_free of " + std::to_string(a->bytes) + " bytes at " + hex(pointer) + ", which " + user
                    + " may still use",
                "call xpu_wait for its stream before xpu_free, which waits for nothing");
    std::string why;
    const int code = memory().free(pointer, why);
    return code == XPU_SUCCESS ? code : fail(code, hex(pointer) + ": " + why);
}

int xpu_host_alloc(void **pointer, uint64_t bytes, unsigned)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    if (pointer == nullptr)
        return invalid("the place for the pointer is null");
    *pointer = std::malloc(std::max<uint64_t>(1, bytes));
    if (*pointer == nullptr)
        return fail(XPUERR_NOCPUMEM, std::to_string(bytes) + " bytes");
    std::lock_guard lock(state().mutex);
    state().host[static_cast<char *>(*pointer)] = { bytes, false };
    return XPU_SUCCESS;
}

int xpu_host_free(void *pointer)
{
    const int status = ready();
    if (status != XPU_SUCCESS || pointer == nullptr)
        return status;
    Host found{};
    {
        std::lock_guard lock(state().mutex);
        auto at = state().host.find(static_cast<char *>(pointer));
        if (at == state().host.end() || at->second.registered)
            return invalid(hex(pointer) + " is not what xpu_host_alloc gave, or was freed");
        found = at->second;
        state().host.erase(at);
    }
    if (const std::string user = in_flight(pointer, found.bytes, true); !user.empty()) {
        report(check::rules::free_in_flight,
            "xpu_host_free of " + std::to_string(found.bytes) + " bytes at " + hex(pointer) + ", which " + user
                + " still uses",
            "call xpu_wait for its stream before xpu_host_free");
        return XPU_SUCCESS; /* the memory stays allocated, so that the copy does no harm */
    }
    std::free(pointer);
    return XPU_SUCCESS;
}

int xpu_host_register(void *pointer, uint64_t bytes, unsigned)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    if (pointer == nullptr || bytes == 0)
        return invalid("no bytes to register");
    if (memory().in_range(pointer))
        return invalid(hex(pointer) + " is device memory");
    auto *start = static_cast<char *>(pointer);
    std::lock_guard lock(state().mutex);
    auto next = state().host.upper_bound(start);
    if ((next != state().host.end() && next->first < start + bytes)
        || (next != state().host.begin() && std::prev(next)->first + std::prev(next)->second.bytes > start))
        return fail(
            XPUERR_HOST_MEM_REGISTERED, std::to_string(bytes) + " bytes at " + hex(pointer) + ", some or all of them");
    state().host[start] = { bytes, true };
    return XPU_SUCCESS;
}

int xpu_host_unregister(void *pointer)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    std::lock_guard lock(state().mutex);
    auto at = state().host.find(static_cast<char *>(pointer));
    if (at == state().host.end() || !at->second.registered)
        return invalid(hex(pointer) + " is not registered");
    state().host.erase(at);
    return XPU_SUCCESS;
}

int xpu_memcpy(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind)
{
    int status = ready();
    if (status == XPU_SUCCESS)
        status = check_copy(to, from, bytes, kind);
    if (status == XPU_SUCCESS)
        status = check_one_device(to, from, bytes, kind);
    if (status != XPU_SUCCESS || bytes == 0)
        return status;
    check_host_copy(to, from, bytes);
    transfer(to, from, bytes, kind);
    return XPU_SUCCESS;
}

int xpu_memcpy_async(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind, XPUStream stream)
{
    const auto s = stream_of(stream);
    if (s == nullptr)
        return last.code;
    int status = check_normal(s->device);
    if (status == XPU_SUCCESS)
        status = check_copy(to, from, bytes, kind);
    if (status == XPU_SUCCESS)
        status = check_one_device(to, from, bytes, kind);
    if (status != XPU_SUCCESS || bytes == 0)
        return status;
    /* Checked mode makes it visible if the host uses the memory before the copy is done: the destination is
     * overwritten, the source is hashed */
    const bool checked = settings().checked;
    const std::uint64_t sum = checked && kind == XPU_HOST_TO_DEVICE ? checksum(from, bytes) : 0;
    if (checked && kind == XPU_DEVICE_TO_HOST && in_flight(to, bytes, true).empty())
        std::memset(to, 0xcd, bytes);
    const std::string name =
        "xpu_memcpy_async of " + std::to_string(bytes) + " bytes from " + hex(from) + " to " + hex(to);
    return push(s,
        { [=](const Status &) {
             if (checked && kind == XPU_HOST_TO_DEVICE && checksum(from, bytes) != sum)
                 report(check::rules::host_changed_in_flight,
                     name + ": the host's bytes changed between the call and the copy",
                     "call xpu_wait before the host writes there, or keep a copy for the device");
             transfer(to, from, bytes, kind);
             return Status{};
         },
            name,
            { { static_cast<const char *>(to), bytes, true }, { static_cast<const char *>(from), bytes, false } } });
}

int xpu_memcpy_peer(int to_device, void *to, int from_device, const void *from, uint64_t bytes)
{
    int status = check_device(to_device);
    if (status == XPU_SUCCESS)
        status = check_device(from_device);
    if (status == XPU_SUCCESS)
        status = check_copy(to, from, bytes, XPU_DEVICE_TO_DEVICE);
    if (status != XPU_SUCCESS || bytes == 0)
        return status;
    if (memory().find(to)->device != to_device || memory().find(from)->device != from_device)
        return invalid("the memory is of devices " + std::to_string(memory().find(to)->device) + " and "
            + std::to_string(memory().find(from)->device) + ", not of " + std::to_string(to_device) + " and "
            + std::to_string(from_device));
    check_host_copy(to, from, bytes);
    transfer(to, from, bytes, XPU_DEVICE_TO_DEVICE);
    return XPU_SUCCESS;
}

int xpu_pointer_get_attrs(XPUPointerAttributes *attributes, const void *pointer)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    if (attributes == nullptr)
        return invalid("attributes is null");
    auto found = memory().find(pointer);
    void *address = const_cast<void *>(pointer);
    if (found != nullptr && !found->freed && found->has(pointer))
        *attributes = { found->kind, found->device, address, nullptr };
    else if (memory().in_range(pointer))
        return invalid(hex(pointer) + " is device memory that is not allocated");
    else
        *attributes = { XPU_MEM_MAIN, -1, nullptr, address };
    return XPU_SUCCESS;
}

int xpu_stream_create(XPUStream *stream)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    if (stream == nullptr)
        return invalid("the place for the stream is null");
    auto made = std::make_shared<Stream>(current, settings().checked);
    *stream = made.get();
    std::lock_guard lock(state().mutex);
    state().streams[*stream] = std::move(made);
    return XPU_SUCCESS;
}

int xpu_stream_destroy(XPUStream stream)
{
    if (stream == nullptr)
        return invalid("the default stream is not destroyed");
    const auto s = stream_of(stream);
    if (s == nullptr)
        return last.code;
    {
        std::lock_guard lock(state().mutex);
        if (state().streams.erase(stream) == 0)
            return invalid("the stream is being destroyed by another thread");
    }
    s->wait(is_abnormal); /* its work is done, so none of it can hold the last reference to the stream */
    take_output(stream);
    return XPU_SUCCESS;
}

int xpu_event_create(XPUEvent *event)
{
    const int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    if (event == nullptr)
        return invalid("the place for the event is null");
    auto made = std::make_shared<Event>();
    *event = made.get();
    std::lock_guard lock(state().mutex);
    state().events[*event] = std::move(made);
    return XPU_SUCCESS;
}

int xpu_event_destroy(XPUEvent event)
{
    if (event_of(event) == nullptr)
        return last.code;
    std::lock_guard lock(state().mutex);
    state().events.erase(event);
    return XPU_SUCCESS;
}

int xpu_event_record(XPUEvent event, XPUStream stream)
{
    const auto e = event_of(event);
    const auto s = e == nullptr ? nullptr : stream_of(stream);
    if (s == nullptr)
        return last.code;
    try {
        e->record(s);
        return XPU_SUCCESS;
    } catch (const std::system_error &) {
        return fail(XPUERR_NOCPUMEM, "the host has no thread left for a stream");
    }
}

int xpu_event_wait(XPUEvent event)
{
    const auto e = event_of(event);
    return e == nullptr ? last.code : fail(e->wait());
}

int xpu_event_query(XPUEvent event)
{
    const auto e = event_of(event);
    return e == nullptr ? last.code : fail(e->query());
}

int xpu_stream_wait_event(XPUStream stream, XPUEvent event)
{
    const auto e = event_of(event);
    const auto s = e == nullptr ? nullptr : stream_of(stream);
    if (s == nullptr)
        return last.code;
    return push(s,
        { [e, number = e->last()](const Status &) {
             const Status found = e->wait(number);
             return found.code == XPU_SUCCESS
                 ? Status{}
                 : Status{ XPUERR_EVENT_WAIT, "the event is behind work that failed: " + found.what };
         },
            "an event", {} });
}

int xpu_wait(XPUStream stream)
{
    const auto s = stream_of(stream);
    return s == nullptr ? last.code : fail(s->wait(is_abnormal));
}

int xpu_launch_config(int nclusters, int ncores, XPUStream stream)
{
    configuration = {};
    const auto s = stream_of(stream);
    if (s == nullptr)
        return last.code;
    if (nclusters < 1 || nclusters > 255)
        return invalid("a launch of " + std::to_string(nclusters) + " clusters; allowed: 1 to 255");
    if (ncores < 1 || ncores > settings().model.cores)
        return invalid("a launch of " + std::to_string(ncores) + " cores a cluster; allowed: 1 to "
            + std::to_string(settings().model.cores));
    if (s->device != current)
        return invalid("the stream is of device " + std::to_string(s->device) + ", the current device is "
            + std::to_string(current));
    configuration = { nclusters, ncores, s, {} };
    return XPU_SUCCESS;
}

int xpu_launch_argument_set(const void *argument, size_t size, size_t offset)
{
    const unsigned max_bytes = settings().model.parameter_bytes;
    if (argument == nullptr)
        return invalid("the argument is null");
    if (offset % 4 != 0 || offset > max_bytes || size > max_bytes - offset) {
        configuration = {};
        return invalid(std::to_string(size) + " bytes at offset " + std::to_string(offset)
            + " of the parameter block; allowed: multiples of 4, " + std::to_string(max_bytes) + " bytes in all");
    }
    std::vector<char> &block = configuration.parameters;
    block.resize(std::max(block.size(), (offset + size + 3) / 4 * 4));
    std::memcpy(block.data() + offset, argument, size);
    return XPU_SUCCESS;
}

int xpu_launch_async(XPUFunc function)
{
    Configuration c = std::move(configuration);
    configuration = {};
    int status = ready();
    if (status != XPU_SUCCESS)
        return status;
    const auto *f = static_cast<const xpusim_function *>(function);
    if (f == nullptr || f->run == nullptr || f->kernel == nullptr)
        return fail(XPUERR_NOFUNC, "the function is null");
    if (c.stream == nullptr)
        return invalid("no launch is configured: call xpu_launch_config first, in this thread");
    if (c.stream->device != current)
        return invalid("the stream is of device " + std::to_string(c.stream->device) + ", the current device is "
            + std::to_string(current));
    if (c.parameters.size() != f->parameter_bytes)
        return invalid(std::to_string(c.parameters.size()) + " bytes of parameters; the kernel takes "
            + std::to_string(f->parameter_bytes));
    status = check_normal(current);
    if (status != XPU_SUCCESS)
        return status;
    auto launch = std::make_shared<Launch>();
    launch->function = *f;
    launch->name = f->name == nullptr ? "(without a name)" : f->name;
    launch->function.name = launch->name.c_str();
    launch->clusters = c.clusters;
    launch->cores = c.cores;
    launch->device = current;
    launch->stream = c.stream.get();
    launch->parameters = std::move(c.parameters);
    {
        std::lock_guard lock(state().mutex);
        launch->number = ++state().launches;
    }
    return push(c.stream,
        { [launch](const Status &) {
             Device &device = device_of(launch->device);
             if (device.abnormal)
                 return Status{ XPUERR_ABNORMAL, device.why };
             Status done = run_launch(*launch);
             if (done.code == XPUERR_KEXCEPTION || done.code == XPUERR_TIMEOUT) {
                 std::fprintf(stderr, "xpurt: %s\n", done.what.c_str());
                 std::lock_guard lock(state().mutex);
                 if (!device.abnormal) {
                     device.why = done.what;
                     device.abnormal = true;
                 }
             }
             return done;
         },
            "kernel " + launch->name, named_memory(launch->parameters) });
}

int xpu_kernel_debug(XPUStream stream)
{
    const auto s = stream_of(stream);
    if (s == nullptr)
        return last.code;
    const Status status = s->wait(is_abnormal);
    const std::string text = take_output(s.get());
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    return fail(status);
}

int xpu_kernel_debug_reset(void)
{
    const int status = ready();
    if (status == XPU_SUCCESS)
        forget_output();
    return status;
}

int xpu_get_runtime_version(uint32_t *major, uint32_t *minor)
{
    if (major == nullptr || minor == nullptr)
        return invalid("the place for the version is null");
    *major = 4;
    *minor = 33;
    return XPU_SUCCESS;
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
    if (code == last.code && code != XPU_SUCCESS && !last.what.empty())
        text += ": " + last.what;
    return text.c_str();
}
}
