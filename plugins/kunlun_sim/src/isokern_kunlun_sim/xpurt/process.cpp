#include "process.h"

#include <pthread.h>

#include "model.h"

namespace xpurt
{

/* Set in a child of a process that used the runtime: its threads do not exist here, and its locks may be locked. */
static std::atomic<bool> forked{ false };

Device::Device(int index) : default_stream(std::make_shared<Stream>(index, settings().checked)) {}

Process &process()
{
    static Process *made = [] {
        auto *p = new Process;
        for (std::size_t i = 0; i < settings().devices.size(); i++)
            p->devices.push_back(std::make_unique<Device>(static_cast<int>(i)));
        pthread_atfork(nullptr, nullptr, [] { forked = true; });
        return p;
    }();
    return *made;
}

void check_ready()
{
    if (forked)
        fail(XPUERR_UNINIT,
            "the process was forked from one that had used the XPU; start a new one instead "
            "(multiprocessing: method spawn)");
    if (!settings().error.empty())
        fail(XPUERR_SIMULATOR, settings().error);
    if (process().devices.empty())
        fail(XPUERR_NODEVICE, "XPU_VISIBLE_DEVICES names none");
}

void check_device(int id)
{
    check_ready();
    const int count = static_cast<int>(process().devices.size());
    if (id < 0 || id >= count)
        fail(XPUERR_INVALID_DEVICE, "device " + std::to_string(id) + "; allowed: 0 to " + std::to_string(count - 1));
}

void check_normal(int id)
{
    if (is_abnormal(id))
        fail(XPUERR_ABNORMAL, "device " + std::to_string(id) + ", until the process ends: " + device(id).why);
}

template <class T>
static std::shared_ptr<T> find_handle(std::map<void *, std::shared_ptr<T>> &all, void *handle, const char *what)
{
    std::lock_guard lock(process().mutex);
    const auto found = all.find(handle);
    if (found == all.end())
        refuse(std::string(what) + " is none, or was destroyed");
    return found->second;
}

std::shared_ptr<Stream> stream_of(XPUStream handle)
{
    check_ready();
    return handle == nullptr ? device(current_device).default_stream
                             : find_handle(process().streams, handle, "the stream");
}

std::shared_ptr<Event> event_of(XPUEvent handle)
{
    check_ready();
    return find_handle(process().events, handle, "the event");
}

std::string in_flight(const void *start, std::uint64_t bytes, bool writes)
{
    std::vector<std::shared_ptr<Stream>> streams;
    for (const auto &device : process().devices)
        streams.push_back(device->default_stream);
    {
        std::lock_guard lock(process().mutex);
        for (const auto &entry : process().streams)
            streams.push_back(entry.second);
    }
    for (const auto &stream : streams)
        if (std::string name = stream->user(start, bytes, writes); !name.empty())
            return name;
    return {};
}

} // namespace xpurt
