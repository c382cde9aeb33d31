#include "memory.h"

#include <algorithm>

#include <sys/mman.h>

#include "check.h"
#include "model.h"

namespace xpurt
{

/* Bytes of freed memory that are not reused yet, so that a late use is recognised and does not hit another allocation.
 * Checked kernels report late uses; for others it is better to reuse memory that is still in the caches. */
static std::uint64_t quarantine() { return std::uint64_t{ settings().checked ? 64u : 4u } << 20; }
/* By how much the usable part of a range grows at a time. */
static constexpr std::uint64_t STEP = std::uint64_t{ 2 } << 20;
/* From this size on, a freed allocation's memory is returned to the host. */
static constexpr std::uint64_t LARGE = std::uint64_t{ 32 } << 20;

static std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

char *Arena::take(std::uint64_t bytes)
{
    if (base_ == nullptr) {
        /* Red zones and fragmentation add to what the user allocates; the first part is never used, so that an address
         * before the first allocation is one of device memory, too. */
        reserved_ = round_up(2 * capacity_ + 2 * STEP, STEP);
        void *memory = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            return nullptr;
        madvise(memory, reserved_, MADV_HUGEPAGE); /* for fewer page faults; nothing depends on it */
        usable_ = STEP;
        base_.store(static_cast<char *>(memory), std::memory_order_release);
    }
    char *base = base_;
    auto best = free_.end(); /* the smallest that fits; of those the lowest */
    for (auto it = free_.begin(); it != free_.end(); ++it)
        if (it->second >= bytes && (best == free_.end() || it->second < best->second))
            best = it;
    if (best == free_.end()) {
        const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
        const bool at_end = last != free_.end() && last->first + last->second == base + usable_;
        const std::uint64_t more = round_up(bytes - (at_end ? last->second : 0), STEP);
        if (more > reserved_ - usable_ || mprotect(base + usable_, more, PROT_READ | PROT_WRITE) != 0)
            return nullptr;
        give(base + usable_, more);
        usable_ += more;
        best = std::prev(free_.end());
    }
    char *start = best->first;
    const std::uint64_t rest = best->second - bytes;
    free_.erase(best);
    if (rest != 0)
        free_[start + bytes] = rest;
    return start;
}

void Arena::give(char *start, std::uint64_t bytes)
{
    auto next = free_.lower_bound(start);
    if (next != free_.end() && next->first == start + bytes) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == start)
        std::prev(next)->second += bytes;
    else
        free_[start] = bytes;
}

void Arena::trim()
{
    const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
    if (last == free_.end() || last->first + last->second != base_ + usable_)
        return;
    const std::uint64_t less = last->second / STEP * STEP;
    char *start = base_ + (usable_ - less);
    if (less == 0
        || mmap(start, less, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return;
    madvise(start, less, MADV_HUGEPAGE);
    usable_ -= less;
    last->second -= less;
    if (last->second == 0)
        free_.erase(last);
}

Memory &memory()
{
    static Memory *all = new Memory; /* never destroyed: threads may outlive exit */
    return *all;
}

Memory::Memory()
{
    for (std::size_t i = 0; i < settings().devices.size(); i++)
        for (std::uint64_t capacity : { settings().model.hbm, settings().model.l3 })
            arenas_.push_back(std::make_unique<Arena>(capacity));
}

int Memory::allocate(void **pointer, std::uint64_t bytes, XPUMemoryKind kind, int device, std::string &why)
{
    Arena &a = arena(device, kind);
    const std::uint64_t space = round_up(bytes, RED_ZONE) + 2 * RED_ZONE;
    std::unique_lock lock(mutex_);
    if (bytes > a.capacity() - a.used) {
        why = std::to_string(bytes) + " bytes; of " + std::to_string(a.capacity()) + " bytes of "
            + (kind == XPU_MEM_L3 ? "L3" : "HBM") + " " + std::to_string(a.used) + " are in use";
        return XPUERR_NOMEM;
    }
    char *raw = a.take(space);
    if (raw == nullptr) {
        release(0);
        raw = a.take(space);
    }
    if (raw == nullptr) {
        why = "the host does not give " + std::to_string(bytes) + " bytes for the emulated device";
        return XPUERR_NOCPUMEM;
    }
    char *start = raw + RED_ZONE;
    a.used += bytes;
    lock.unlock(); /* poisoning takes time, and nobody else knows the memory yet */
    try {
        std::shared_ptr<Allocation> made(new Allocation{ start, bytes, kind, device, make_shadow(start, bytes) });
        lock.lock();
        by_end_[start + bytes + RED_ZONE] = std::move(made);
    } catch (...) {
        if (!lock.owns_lock())
            lock.lock();
        a.used -= bytes;
        a.give(raw, space);
        a.trim(); /* what was made usable for this takes the place of shadows */
        throw;
    }
    *pointer = start;
    return XPU_SUCCESS;
}

std::shared_ptr<GmShadow> Memory::make_shadow(char *start, std::uint64_t bytes)
{
    try {
        return gm_shadow(start, bytes);
    } catch (const std::bad_alloc &) {
        const std::unique_lock lock(mutex_);
        release(0);
    }
    return gm_shadow(start, bytes);
}

int Memory::free(void *pointer, std::string &why)
{
    std::unique_lock lock(mutex_);
    auto found = by_end_.upper_bound(static_cast<const char *>(pointer));
    if (found == by_end_.end() || found->second->start != pointer || found->second->freed) {
        const bool twice = found != by_end_.end() && found->second->start == pointer;
        why = twice ? "the memory was freed before" : "the address is not one that xpu_malloc gave";
        return XPUERR_INVALID_PARAM;
    }
    Allocation &a = *found->second;
    a.freed = true;
    arena(a.device, a.kind).used -= a.bytes;
    if (a.bytes >= LARGE)
        madvise(reinterpret_cast<void *>(round_up(reinterpret_cast<std::uintptr_t>(a.start), 4096)),
            a.bytes / 4096 * 4096 - 4096, MADV_DONTNEED);
    freed_.push_back(found->second);
    quarantined_ += a.bytes + RED_ZONE;
    release(quarantine());
    return XPU_SUCCESS;
}

void Memory::release(std::uint64_t but)
{
    while (quarantined_ > but) {
        const Allocation &oldest = *freed_.front();
        quarantined_ -= oldest.bytes + RED_ZONE;
        by_end_.erase(oldest.start + oldest.bytes + RED_ZONE);
        arena(oldest.device, oldest.kind)
            .give(oldest.start - RED_ZONE, round_up(oldest.bytes, RED_ZONE) + 2 * RED_ZONE);
        freed_.pop_front();
    }
}

bool Memory::in_range(const void *address) const
{
    return std::any_of(arenas_.begin(), arenas_.end(), [=](const auto &a) { return a->has(address); });
}

std::shared_ptr<const Allocation> Memory::find(const void *address) const
{
    if (!in_range(address))
        return nullptr;
    std::shared_lock lock(mutex_);
    auto found = by_end_.upper_bound(static_cast<const char *>(address));
    if (found == by_end_.end() || address < found->second->start - RED_ZONE)
        return nullptr;
    return found->second;
}

bool Memory::holds(const void *address, std::uint64_t bytes) const
{
    auto a = find(address);
    return a != nullptr && !a->freed && a->has(address)
        && bytes <= static_cast<std::uint64_t>(a->start + a->bytes - static_cast<const char *>(address));
}

} // namespace xpurt
