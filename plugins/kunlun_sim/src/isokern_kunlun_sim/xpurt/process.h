/* The process as the C interface (xpu/runtime.h) sees it: its devices, streams and events, and how a call fails.
 *
 * A function of the C interface passes its body to `call`. What the body finds wrong it throws as a Status; `call`
 * returns its code, and keeps it for xpu_strerror. */
#ifndef XPURT_PROCESS_H
#define XPURT_PROCESS_H
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "stream.h"

namespace xpurt
{

inline thread_local Status last_error;
inline thread_local int current_device = 0;

[[noreturn]] inline void fail(int code, std::string what) { throw Status{ code, std::move(what) }; }
[[noreturn]] inline void refuse(std::string what) { fail(XPUERR_INVALID_PARAM, std::move(what)); }

inline void require(const void *pointer, const char *what)
{
    if (pointer == nullptr)
        refuse(std::string(what) + " is null");
}

inline void throw_if_failed(Status status)
{
    if (status.code != XPU_SUCCESS)
        throw status;
}

template <class Body>
int call(const Body &body)
{
    try {
        body();
        return XPU_SUCCESS;
    } catch (Status &status) {
        last_error = std::move(status);
    } catch (const std::system_error &) {
        last_error = { XPUERR_NOCPUMEM, "the host has no thread left for a stream" };
    }
    return last_error.code;
}

/* One device that the process sees. After a kernel exception it runs nothing until a reset, that is in a new
 * process. */
struct Device {
    explicit Device(int index);
    std::shared_ptr<Stream> default_stream;
    std::atomic<bool> abnormal{ false };
    std::string why; /* written once, before `abnormal` */
};

struct Process {
    std::vector<std::unique_ptr<Device>> devices;
    std::mutex mutex; /* of the members below */
    std::map<void *, std::shared_ptr<Stream>> streams;
    std::map<void *, std::shared_ptr<Event>> events;
    std::uint64_t launches = 0;
};

/* Created at first use and never destroyed, because threads may outlive exit. */
Process &process();

/* Throw unless the runtime can work in this process, unless the device exists, and unless it may run work. */
void check_ready();
void check_device(int id);
void check_normal(int id);

inline Device &device(int id) { return *process().devices[static_cast<std::size_t>(id)]; }
inline bool is_abnormal(int id) { return device(id).abnormal; }

/* What a handle names. */
std::shared_ptr<Stream> stream_of(XPUStream handle);
std::shared_ptr<Event> event_of(XPUEvent handle);

/* The name of work on any stream that would conflict with reading, or if `writes` with writing, these bytes; empty if
 * there is none. */
std::string in_flight(const void *start, std::uint64_t bytes, bool writes);

} // namespace xpurt
#endif
