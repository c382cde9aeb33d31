#include "memory.h"

#include <cstdlib>
#include <string>

#include "check.h"
#include "model.h"

namespace xpurt {

static constexpr std::uint64_t QUARANTINE = std::uint64_t{64} << 20;

Allocation::~Allocation() { std::free(start - RED_ZONE); }

Memory &memory()
{
    static Memory *all = new Memory; /* outlives every thread */
    return *all;
}

int Memory::allocate(void **pointer, std::uint64_t bytes, XPUMemoryKind kind, int device)
{
    std::string error;
    const Model *m = model(error);
    const std::uint64_t capacity = kind == XPU_MEM_L3 ? m->l3 : m->hbm;
    std::unique_lock lock(mutex_);
    std::uint64_t &used = used_[{device, kind == XPU_MEM_L3 ? 1 : 0}];
    if (bytes > capacity - used)
        return XPUERR_NOMEM;
    void *raw = nullptr;
    if (posix_memalign(&raw, RED_ZONE, (bytes + 3 * RED_ZONE - 1) / RED_ZONE * RED_ZONE) != 0)
        return XPUERR_NOCPUMEM;
    char *start = static_cast<char *>(raw) + RED_ZONE;
    by_end_[start + bytes + RED_ZONE] = std::shared_ptr<Allocation>(new Allocation{start, bytes, kind, device, false, gm_shadow(start, bytes)});
    used += bytes;
    *pointer = start;
    return XPU_SUCCESS;
}

int Memory::free(void *pointer)
{
    std::unique_lock lock(mutex_);
    auto found = by_end_.upper_bound(static_cast<const char *>(pointer));
    if (found == by_end_.end() || found->second->start != pointer || found->second->freed)
        return XPUERR_INVALID_PARAM;
    Allocation &a = *found->second;
    a.freed = true;
    used_[{a.device, a.kind == XPU_MEM_L3 ? 1 : 0}] -= a.bytes;
    quarantined_ += a.bytes;
    if (quarantined_ > QUARANTINE) { /* in the order of addresses: enough to tell most late uses */
        for (auto it = by_end_.begin(); it != by_end_.end() && quarantined_ > QUARANTINE / 2;) {
            if (it->second->freed) {
                quarantined_ -= it->second->bytes;
                it = by_end_.erase(it);
            } else {
                ++it;
            }
        }
    }
    return XPU_SUCCESS;
}

std::shared_ptr<Allocation> Memory::find(const void *address) const
{
    std::shared_lock lock(mutex_);
    auto found = by_end_.upper_bound(static_cast<const char *>(address));
    if (found == by_end_.end() || address < found->second->start - RED_ZONE)
        return nullptr;
    return found->second;
}

bool Memory::holds(const void *address, std::uint64_t bytes) const
{
    auto a = find(address);
    return a != nullptr && !a->freed && a->has(address) && bytes <= static_cast<std::uint64_t>(a->start + a->bytes - static_cast<const char *>(address));
}

std::uint64_t Memory::in_use(int device, XPUMemoryKind kind) const
{
    std::shared_lock lock(mutex_);
    auto found = used_.find({device, kind == XPU_MEM_L3 ? 1 : 0});
    return found == used_.end() ? 0 : found->second;
}

} // namespace xpurt
