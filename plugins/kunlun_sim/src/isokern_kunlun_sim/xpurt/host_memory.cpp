#include "host_memory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include <malloc.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"
#include "check_rules.h"
#include "process.h"

namespace xpurt
{

static constexpr unsigned char UNREAD = 0xcd; /* fills the destination until the copy is done */
static std::atomic<int> watched_copies{ 0 };

/* A hash in the manner of FNV-1a, over words: any change of the bytes should change it. */
static std::uint64_t checksum(const void *start, std::uint64_t bytes)
{
    std::uint64_t sum = 14695981039346656037u, word = 0;
    for (std::uint64_t i = 0; i < bytes; i += 8) {
        std::memcpy(&word, static_cast<const char *>(start) + i, std::min<std::uint64_t>(8, bytes - i));
        sum = (sum ^ word) * 1099511628211u;
        sum ^= sum >> 29;
    }
    return sum;
}

/* Copy between memory of this process and memory that the host may have unmapped; returns false if it has. */
static bool copy_safely(void *mine, void *theirs, std::uint64_t bytes, bool read)
{
    for (std::uint64_t done = 0; done < bytes;) {
        iovec here{ static_cast<char *>(mine) + done, bytes - done };
        iovec there{ static_cast<char *>(theirs) + done, bytes - done };
        const ssize_t moved = read ? process_vm_readv(getpid(), &here, 1, &there, 1, 0)
                                   : process_vm_writev(getpid(), &here, 1, &there, 1, 0);
        if (moved > 0) {
            done += static_cast<std::uint64_t>(moved);
            continue;
        }
        if (moved < 0 && errno != EFAULT && errno != ENOMEM) { /* the call is not allowed here */
            std::memcpy(read ? here.iov_base : there.iov_base, read ? there.iov_base : here.iov_base, bytes - done);
            return true;
        }
        return false;
    }
    return true;
}

WatchedCopy::WatchedCopy(void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind, std::string name)
    : to_(to), from_(from), bytes_(bytes), kind_(kind), name_(std::move(name))
{
    watched_copies++;
    const bool reads = kind == XPU_HOST_TO_DEVICE;
    if (!in_flight(reads ? from : to, bytes, !reads).empty())
        return;
    watched_ = true;
    if (reads)
        sum_ = checksum(from, bytes);
    else
        std::memset(to, UNREAD, bytes);
}

WatchedCopy::~WatchedCopy() { watched_copies--; }

void WatchedCopy::report_change(const char *what) const
{
    report(check::rules::host_changed_in_flight, name_ + ": " + what,
        "call xpu_wait before the host writes there or frees it, or keep a copy for the device");
}

void WatchedCopy::run()
{
    if (kind_ == XPU_HOST_TO_DEVICE) {
        if (!copy_safely(to_, const_cast<void *>(from_), bytes_, true))
            report_change("the host's memory was freed between the call and the copy");
        else if (watched_ && checksum(to_, bytes_) != sum_)
            report_change("the host's bytes changed between the call and the copy: they were written, or freed");
        return;
    }
    bool there = true, changed = false;
    char now[4096];
    for (std::uint64_t at = 0; at < bytes_ && there && watched_; at += sizeof now) {
        const std::uint64_t n = std::min<std::uint64_t>(sizeof now, bytes_ - at);
        there = copy_safely(now, static_cast<char *>(to_) + at, n, true);
        changed |= there && !std::all_of(now, now + n, [](char c) { return static_cast<unsigned char>(c) == UNREAD; });
    }
    /* Memory that was freed belongs to somebody else now, perhaps to malloc itself. */
    if (there && !changed)
        there = copy_safely(const_cast<void *>(from_), to_, bytes_, false);
    if (!there)
        report_change("the host's memory was freed between the call and the copy");
    else if (changed)
        report_change(
            "the host's bytes changed between the call and the copy, which is left out: they were written, or freed "
            "and used for something else");
}

bool report_freed(const void *start, std::uint64_t bytes, const char *by)
{
    if (start == nullptr || watched_copies == 0)
        return false;
    const std::string user = in_flight(start, bytes, true);
    if (user.empty())
        return false;
    report(check::rules::free_in_flight,
        std::string(by) + " of the host's memory, which " + user + " still uses; the memory stays",
        "call xpu_wait for the stream before the memory is freed");
    return true;
}

void report_ended(const void *object, std::uint64_t bytes)
{
    if (watched_copies == 0)
        return;
    const std::string user = in_flight(object, bytes, true);
    if (!user.empty())
        report(check::rules::host_changed_in_flight, user + ": the host's bytes are a variable whose block has ended",
            "call xpu_wait before the block ends, or declare the variable outside of it");
}

void report_dead_arrays(Stream &stream, const char *frame)
{
    if (watched_copies == 0)
        return;
    static thread_local struct Bounds {
        const char *low = nullptr, *high = nullptr;
        Bounds()
        {
            pthread_attr_t attributes;
            if (pthread_getattr_np(pthread_self(), &attributes) != 0)
                return;
            void *start = nullptr;
            std::size_t bytes = 0;
            if (pthread_attr_getstack(&attributes, &start, &bytes) == 0)
                low = static_cast<const char *>(start), high = low + bytes;
            pthread_attr_destroy(&attributes);
        }
    } stack;
    if (frame <= stack.low || frame >= stack.high)
        return;
    const std::string user = stream.user(stack.low, static_cast<std::uint64_t>(frame - stack.low), true);
    if (!user.empty())
        report(check::rules::host_changed_in_flight,
            user + ": the host's bytes are an array of a function that has returned since",
            "call xpu_wait before the function returns, or keep the array longer");
}

} // namespace xpurt

extern "C" {

/* The linker redirects a checked library's calls of these functions to here; the mangled names are those of operator
 * delete. */
void __wrap_free(void *start)
{
    if (!xpurt::report_freed(start, start == nullptr ? 0 : malloc_usable_size(start), "free"))
        std::free(start);
}

void *__wrap_realloc(void *start, std::size_t bytes)
{
    const std::size_t before = start == nullptr ? 0 : malloc_usable_size(start);
    if (!xpurt::report_freed(start, before, "realloc"))
        return std::realloc(start, bytes);
    void *made = std::malloc(bytes);
    return made == nullptr ? nullptr : std::memcpy(made, start, std::min(before, bytes));
}

static void delete_unless_used(void *start)
{
    if (!xpurt::report_freed(start, start == nullptr ? 0 : malloc_usable_size(start), "delete"))
        ::operator delete(start);
}

void __wrap__ZdlPv(void *start) { delete_unless_used(start); }
void __wrap__ZdaPv(void *start) { delete_unless_used(start); }
void __wrap__ZdlPvm(void *start, std::size_t) { delete_unless_used(start); }
void __wrap__ZdaPvm(void *start, std::size_t) { delete_unless_used(start); }
void __wrap__ZdlPvSt11align_val_t(void *start, std::size_t) { delete_unless_used(start); }
void __wrap__ZdaPvSt11align_val_t(void *start, std::size_t) { delete_unless_used(start); }
void __wrap__ZdlPvmSt11align_val_t(void *start, std::size_t, std::size_t) { delete_unless_used(start); }
void __wrap__ZdaPvmSt11align_val_t(void *start, std::size_t, std::size_t) { delete_unless_used(start); }

void xpusim_lifetime_ends(const volatile void *object, std::size_t bytes)
{ xpurt::report_ended(const_cast<const void *>(object), bytes); }
}
