/* Device memory: allocations with room around them, by address. */
#ifndef XPURT_MEMORY_H
#define XPURT_MEMORY_H
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include "../include/xpu/runtime.h"

namespace xpurt {

enum { RED_ZONE = 256 }; /* bytes on both sides that belong to nobody */

struct GmShadow;

struct Allocation {
    char *start;
    std::uint64_t bytes;
    XPUMemoryKind kind;
    int device;
    bool freed;
    std::shared_ptr<GmShadow> shadow; /* of checked kernels */
    bool has(const void *address) const { return address >= start && address < start + bytes; }
    ~Allocation();
};

/* All device memory of the process. What is freed stays known (and its memory unused) for a while, so that a late use can be told. */
class Memory {
public:
    int allocate(void **pointer, std::uint64_t bytes, XPUMemoryKind kind, int device);
    int free(void *pointer);
    /* The allocation whose red zones or bytes hold `address`, or null. */
    std::shared_ptr<Allocation> find(const void *address) const;
    /* Whether [address, address + bytes) lies within one live allocation. */
    bool holds(const void *address, std::uint64_t bytes) const;
    std::uint64_t in_use(int device, XPUMemoryKind kind) const;

private:
    mutable std::shared_mutex mutex_;
    std::map<const char *, std::shared_ptr<Allocation>> by_end_; /* key: one past the upper red zone */
    std::map<std::pair<int, int>, std::uint64_t> used_;
    std::uint64_t quarantined_ = 0;
};

Memory &memory();

} // namespace xpurt
#endif
