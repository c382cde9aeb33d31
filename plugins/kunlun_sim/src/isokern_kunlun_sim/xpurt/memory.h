/* Device memory: an address range for each device's HBM and L3, and allocations in it with room around them.
 *
 * The ranges are reserved once and cost nothing until they are touched, so that a kernel that leaves its allocation meets other device memory
 * or faults, as on a card, and never memory of the host. */
#ifndef XPURT_MEMORY_H
#define XPURT_MEMORY_H
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "../include/xpu/runtime.h"

namespace xpurt {

enum { RED_ZONE = 256 }; /* bytes on both sides that belong to nobody */

struct GmShadow;

struct Allocation {
    char *start;
    std::uint64_t bytes;
    XPUMemoryKind kind;
    int device;
    std::shared_ptr<GmShadow> shadow; /* of checked kernels */
    std::atomic<bool> freed{false};
    bool has(const void *address) const { return address >= start && address < start + bytes; }
};

/* The address range of one capacity. */
class Arena {
public:
    explicit Arena(std::uint64_t capacity) : capacity_(capacity) {}
    /* `bytes` bytes of it, null where the host refuses. */
    char *take(std::uint64_t bytes);
    void give(char *start, std::uint64_t bytes);
    bool has(const void *address) const
    {
        const char *base = base_.load(std::memory_order_acquire);
        return base != nullptr && address >= base && address < base + reserved_;
    }

    std::uint64_t used = 0; /* as the user counts: without red zones */
    std::uint64_t capacity() const { return capacity_; }

private:
    std::uint64_t capacity_, reserved_ = 0, usable_ = 0; /* bytes from the base that can be touched */
    std::atomic<char *> base_{nullptr};
    std::map<char *, std::uint64_t> room_; /* what is free, by address; neighbours are one */
};

/* All device memory of the process. What is freed stays known (and its memory unused) for a while, so that a late use can be told. */
class Memory {
public:
    Memory();
    /* XPU_SUCCESS, XPUERR_NOMEM or XPUERR_NOCPUMEM; `why` says more. Throws std::bad_alloc. */
    int allocate(void **pointer, std::uint64_t bytes, XPUMemoryKind kind, int device, std::string &why);
    int free(void *pointer, std::string &why);
    /* Whether the address lies where device memory is, allocated or not: cheap. */
    bool in_range(const void *address) const;
    /* The allocation whose red zones or bytes hold `address`, or null. */
    std::shared_ptr<const Allocation> find(const void *address) const;
    /* Whether [address, address + bytes) lies within one live allocation. */
    bool holds(const void *address, std::uint64_t bytes) const;

private:
    Arena &arena(int device, XPUMemoryKind kind) const { return *arenas_[static_cast<std::size_t>(2 * device + (kind == XPU_MEM_L3 ? 1 : 0))]; }
    /* Let the oldest of what was freed be used again, until no more than `but` bytes are held back. */
    void release(std::uint64_t but);
    mutable std::shared_mutex mutex_;
    std::map<const char *, std::shared_ptr<Allocation>> by_end_; /* key: one past the upper red zone */
    std::vector<std::unique_ptr<Arena>> arenas_;                 /* HBM and L3 of each device */
    std::deque<std::shared_ptr<Allocation>> freed_;              /* oldest first */
    std::uint64_t quarantined_ = 0;
};

Memory &memory();

} // namespace xpurt
#endif
