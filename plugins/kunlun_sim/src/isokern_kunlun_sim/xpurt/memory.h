/* Device memory: an address range for each device's HBM and L3, and allocations in it with red zones around them.
 *
 * The ranges are reserved once and cost nothing until they are touched. So a kernel that leaves its allocation hits
 * other device memory or faults, as on a card, and never hits memory of the host. */
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

namespace xpurt
{

enum { RED_ZONE = 256 }; /* bytes on both sides that belong to no allocation */

struct GmShadow;

struct Allocation {
    char *start;
    std::uint64_t bytes;
    XPUMemoryKind kind;
    int device;
    std::shared_ptr<GmShadow> shadow; /* for checked kernels */
    std::atomic<bool> freed{ false };
    bool has(const void *address) const { return address >= start && address < start + bytes; }
};

/* The address range of one memory of one device. */
class Arena
{
  public:
    explicit Arena(std::uint64_t capacity) : capacity_(capacity) {}
    /* Allocate `bytes` bytes; null if the host refuses. */
    char *take(std::uint64_t bytes);
    void give(char *start, std::uint64_t bytes);
    /* Give back to the host what is free at the end. */
    void trim();
    bool has(const void *address) const
    {
        const char *base = base_.load(std::memory_order_acquire);
        return base != nullptr && address >= base && address < base + reserved_;
    }

    std::uint64_t used = 0; /* without red zones, as the user counts */
    std::uint64_t capacity() const { return capacity_; }

  private:
    std::uint64_t capacity_, reserved_ = 0, usable_ = 0; /* usable_: where what can be touched ends */
    std::atomic<char *> base_{ nullptr };
    std::map<char *, std::uint64_t> free_; /* free ranges by address; neighbours are merged */
};

/* All device memory of the process. Freed allocations stay known, and their memory unused, for a while, so that a late
 * use can be reported. */
class Memory
{
  public:
    Memory();
    /* Returns XPU_SUCCESS, XPUERR_NOMEM or XPUERR_NOCPUMEM, with details in `why`. Throws std::bad_alloc. */
    int allocate(void **pointer, std::uint64_t bytes, XPUMemoryKind kind, int device, std::string &why);
    int free(void *pointer, std::string &why);
    /* Whether the address is in a device's range, allocated or not; cheap. */
    bool in_range(const void *address) const;
    /* Find the allocation whose bytes or red zones contain `address`; null if there is none. */
    std::shared_ptr<const Allocation> find(const void *address) const;
    /* Whether [address, address + bytes) lies within one live allocation. */
    bool holds(const void *address, std::uint64_t bytes) const;

  private:
    Arena &arena(int device, XPUMemoryKind kind) const
    { return *arenas_[static_cast<std::size_t>(2 * device + (kind == XPU_MEM_L3 ? 1 : 0))]; }
    /* Release the oldest freed allocations until at most `but` bytes are held back. */
    void release(std::uint64_t but);
    /* Make the shadow of an allocation; where the host has no room for it, after freed ones have given theirs up. */
    std::shared_ptr<GmShadow> make_shadow(char *start, std::uint64_t bytes);
    mutable std::shared_mutex mutex_;
    std::map<const char *, std::shared_ptr<Allocation>> by_end_; /* the key is one past the upper red zone */
    std::vector<std::unique_ptr<Arena>> arenas_;                 /* HBM and L3 of each device */
    std::deque<std::shared_ptr<Allocation>> freed_;              /* oldest first */
    std::uint64_t quarantined_ = 0;
};

Memory &memory();

} // namespace xpurt
#endif
