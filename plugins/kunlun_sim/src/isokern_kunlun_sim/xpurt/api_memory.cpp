/* The C interface of the runtime (xpu/runtime.h): memory and copies. */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "check.h"
#include "check_rules.h"
#include "host_memory.h"
#include "memory.h"
#include "model.h"
#include "process.h"

using namespace xpurt;

namespace
{

/* Host memory that the runtime knows. */
struct Host {
    std::uint64_t bytes;
    bool registered; /* by xpu_host_register; otherwise the runtime allocated it */
};

std::mutex host_mutex;
auto &host_memory = *new std::map<char *, Host>; /* never destroyed: threads may outlive exit */

std::string hex(const void *address)
{
    char text[32];
    std::snprintf(text, sizeof text, "%p", address);
    return text;
}

std::string bytes_at(std::uint64_t bytes, const void *address)
{ return std::to_string(bytes) + " bytes at " + hex(address); }

/* Report a call of the host on bytes that a stream uses. */
void report_in_flight(const ik_emulation::Rule &rule, const std::string &call, const std::string &user,
    const std::string &use, const std::string &before)
{ report(rule, call + ", which " + user + use, "call xpu_wait for its stream before " + before); }

/* Check that both ends of a copy are what its kind says; return whether there is anything to copy. */
bool check_copy(const void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (kind < XPU_DEVICE_TO_HOST || kind > XPU_DEVICE_TO_DEVICE)
        refuse("kind " + std::to_string(kind)
            + " of copy; allowed: 0 (device to host), 1 (host to device), 2 (device to device)");
    if (bytes == 0)
        return false;
    const bool on_device[2] = { kind != XPU_DEVICE_TO_HOST, kind != XPU_HOST_TO_DEVICE };
    const void *ends[2] = { to, from };
    for (int i = 0; i < 2; i++) {
        const std::string end = std::string(i == 0 ? "the destination " : "the source ") + hex(ends[i]);
        require(ends[i], end.c_str());
        if (on_device[i] && !memory().holds(ends[i], bytes))
            refuse(end + " of " + std::to_string(bytes) + " bytes is not within one allocation of device memory");
        if (!on_device[i] && memory().in_range(ends[i]))
            refuse(end + " is device memory, which the kind of copy takes for the host's");
    }
    return true;
}

/* The same, within one device. */
bool check_local_copy(const void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (!check_copy(to, from, bytes, kind))
        return false;
    if (kind == XPU_DEVICE_TO_DEVICE && memory().find(to)->device != memory().find(from)->device)
        refuse("the copy is between two devices: use xpu_memcpy_peer");
    return true;
}

/* Update the shadow of which bytes are written. Returns what is wrong with what the host read. */
Status record(void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (kind == XPU_HOST_TO_DEVICE)
        record_gm_write(to, bytes);
    else if (kind == XPU_DEVICE_TO_DEVICE)
        record_gm_copy(to, from, bytes);
    else if (!record_gm_read(from, bytes))
        return { XPUERR_KEXCEPTION, "the checked mode met bytes that nobody wrote in what the host reads" };
    return {};
}

/* The name of work that the host has not waited for and that would conflict with its reading, or if `writes` with its
 * writing, these bytes; empty if there is none. */
std::string user_of(const void *start, std::uint64_t bytes, bool writes)
{
    std::string user = in_flight(start, bytes, writes);
    return user.empty() ? check::unfinished(start, bytes, writes) : user;
}

/* Copy synchronously; report it if a stream may still use the bytes. */
void copy_now(void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind)
{
    if (const std::string user = user_of(to, bytes, true); !user.empty())
        report_in_flight(check::rules::copy_in_flight, "xpu_memcpy writes " + bytes_at(bytes, to), user,
            " may still use", "the copy");
    else if (const std::string writer = user_of(from, bytes, false); !writer.empty())
        report_in_flight(check::rules::copy_in_flight, "xpu_memcpy reads " + bytes_at(bytes, from), writer,
            std::string(" may still write")
                + (writer.rfind("kernel ", 0) == 0
                        ? ": it was given the memory, and a launch does not tell what is only read"
                        : ""),
            "the copy");
    std::memmove(to, from, bytes);
    throw_if_failed(record(to, from, bytes, kind));
}

} // namespace

extern "C" {

int xpu_malloc(void **pointer, uint64_t bytes, XPUMemoryKind kind)
{
    return call([&] {
        check_ready();
        require(pointer, "the place for the pointer");
        if (kind == XPU_MEM_MMAPPABLE)
            fail(XPUERR_UNSUPPORTED, "memory that the host can map is not modelled");
        if (kind != XPU_MEM_MAIN && kind != XPU_MEM_L3 && kind != XPU_MEM_MAIN_KL2_HUGE)
            refuse("kind " + std::to_string(kind) + " of memory; allowed: 0 (main), 1 (L3), 17 (main, huge pages)");
        try {
            std::string why;
            const int code = memory().allocate(pointer, bytes, kind, current_device, why);
            throw_if_failed({ code, why });
        } catch (const std::bad_alloc &) {
            fail(XPUERR_NOCPUMEM, "the host has no memory to keep account of " + std::to_string(bytes) + " bytes");
        }
    });
}

int xpu_free(void *pointer)
{
    return call([&] {
        check_ready();
        if (pointer == nullptr)
            return;
        if (auto a = memory().find(pointer); a != nullptr && !a->freed && a->start == pointer)
            if (const std::string user = user_of(a->start, a->bytes, true); !user.empty())
                report_in_flight(check::rules::free_in_flight, "xpu_free of " + bytes_at(a->bytes, pointer), user,
                    " may still use", "xpu_free, which waits for nothing");
        std::string why;
        const int code = memory().free(pointer, why);
        throw_if_failed({ code, hex(pointer) + ": " + why });
    });
}

int xpu_host_alloc(void **pointer, uint64_t bytes, unsigned)
{
    return call([&] {
        check_ready();
        require(pointer, "the place for the pointer");
        *pointer = std::malloc(std::max<uint64_t>(1, bytes));
        if (*pointer == nullptr)
            fail(XPUERR_NOCPUMEM, std::to_string(bytes) + " bytes");
        std::lock_guard lock(host_mutex);
        host_memory[static_cast<char *>(*pointer)] = { bytes, false };
    });
}

int xpu_host_free(void *pointer)
{
    return call([&] {
        check_ready();
        if (pointer == nullptr)
            return;
        Host found{};
        {
            std::lock_guard lock(host_mutex);
            auto at = host_memory.find(static_cast<char *>(pointer));
            if (at == host_memory.end() || at->second.registered)
                refuse(hex(pointer) + " is not what xpu_host_alloc gave, or was freed");
            found = at->second;
            host_memory.erase(at);
        }
        if (const std::string user = in_flight(pointer, found.bytes, true); !user.empty())
            /* The memory stays allocated, so that the copy does no harm. */
            report_in_flight(check::rules::free_in_flight, "xpu_host_free of " + bytes_at(found.bytes, pointer), user,
                " still uses", "xpu_host_free");
        else
            std::free(pointer);
    });
}

int xpu_host_register(void *pointer, uint64_t bytes, unsigned)
{
    return call([&] {
        check_ready();
        if (pointer == nullptr || bytes == 0)
            refuse("no bytes to register");
        if (memory().in_range(pointer))
            refuse(hex(pointer) + " is device memory");
        auto *start = static_cast<char *>(pointer);
        std::lock_guard lock(host_mutex);
        auto next = host_memory.upper_bound(start);
        if ((next != host_memory.end() && next->first < start + bytes)
            || (next != host_memory.begin() && std::prev(next)->first + std::prev(next)->second.bytes > start))
            fail(XPUERR_HOST_MEM_REGISTERED, bytes_at(bytes, pointer) + ", some or all of them");
        host_memory[start] = { bytes, true };
    });
}

int xpu_host_unregister(void *pointer)
{
    return call([&] {
        check_ready();
        std::lock_guard lock(host_mutex);
        auto at = host_memory.find(static_cast<char *>(pointer));
        if (at == host_memory.end() || !at->second.registered)
            refuse(hex(pointer) + " is not registered");
        host_memory.erase(at);
    });
}

int xpu_memcpy(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind)
{
    return call([&] {
        check_ready();
        if (check_local_copy(to, from, bytes, kind))
            copy_now(to, from, bytes, kind);
    });
}

int xpu_memcpy_async(void *to, const void *from, uint64_t bytes, XPUMemcpyKind kind, XPUStream stream)
{
    return call([&] {
        const auto s = stream_of(stream);
        check_normal(s->device);
        if (!check_local_copy(to, from, bytes, kind))
            return;
        const std::string name =
            "xpu_memcpy_async of " + std::to_string(bytes) + " bytes from " + hex(from) + " to " + hex(to);
        /* Checked mode makes it visible if the host uses its memory before the copy is done. */
        const auto watched = settings().checked && kind != XPU_DEVICE_TO_DEVICE
            ? std::make_shared<WatchedCopy>(to, from, bytes, kind, name)
            : nullptr;
        s->push({ [=](const Status &, const Moment &now) {
                     check::use_copied(
                         now, name, to, kind != XPU_DEVICE_TO_HOST, from, kind != XPU_HOST_TO_DEVICE, bytes);
                     if (watched == nullptr)
                         std::memmove(to, from, bytes);
                     else
                         watched->run();
                     return record(to, from, bytes, kind);
                 },
            name, { { static_cast<const char *>(to), bytes, true }, { static_cast<const char *>(from), bytes, false } },
            false, {} });
    });
}

int xpu_memcpy_peer(int to_device, void *to, int from_device, const void *from, uint64_t bytes)
{
    return call([&] {
        check_device(to_device);
        check_device(from_device);
        if (!check_copy(to, from, bytes, XPU_DEVICE_TO_DEVICE))
            return;
        const int holds_to = memory().find(to)->device, holds_from = memory().find(from)->device;
        if (holds_to != to_device || holds_from != from_device)
            refuse("the memory is of devices " + std::to_string(holds_to) + " and " + std::to_string(holds_from)
                + ", not of " + std::to_string(to_device) + " and " + std::to_string(from_device));
        copy_now(to, from, bytes, XPU_DEVICE_TO_DEVICE);
    });
}

int xpu_pointer_get_attrs(XPUPointerAttributes *attributes, const void *pointer)
{
    return call([&] {
        check_ready();
        require(attributes, "attributes");
        auto found = memory().find(pointer);
        void *address = const_cast<void *>(pointer);
        if (found != nullptr && !found->freed && found->has(pointer))
            *attributes = { found->kind, found->device, address, nullptr };
        else if (memory().in_range(pointer))
            refuse(hex(pointer) + " is device memory that is not allocated");
        else
            *attributes = { XPU_MEM_MAIN, -1, nullptr, address };
    });
}
}
