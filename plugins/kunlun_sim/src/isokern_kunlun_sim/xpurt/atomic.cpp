/* What the cores of a cluster share besides memory: its lock, the links of loads to stores, and group-shared memory. */
#include "atomic.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "lane.h"
#include "../include/xpusim/device.h"
#include "check.h"

namespace xpurt
{

static constexpr int GROUPS = 16;
static constexpr std::uint64_t GROUP_MEMORY = 32 * 1024;

/* The state of the cluster that runs on this thread. */
struct Cluster {
    unsigned next = 0, served = 0; /* tickets of the lock */
    int owner = -1;
    const void *linked[MAX_CORES] = {};
    std::vector<const void *> objects[GROUPS];
    std::uint64_t bytes[GROUPS] = {};
};
static thread_local Cluster cluster;

void begin_cluster() { cluster = {}; }

static int self() { return xpusim_current->core; }

/* A store to `address` ends every core's link to it. */
static void unlink(const void *address)
{
    for (const void *&link : cluster.linked)
        if (link == address)
            link = nullptr;
}

} // namespace xpurt

using namespace xpurt;

extern "C" {

void xpusim_lock(xpusim_site site)
{
    if (cluster.owner == self())
        xpusim_raise(XPUSIM_NESTED_ATOMIC,
            "nested atomic: ticket_lock_mix by the core that has the lock; "
            "unlock first, or use plain operations inside",
            site);
    for (const unsigned ticket = cluster.next++; ticket != cluster.served;)
        xpusim_yield();
    cluster.owner = self();
    xpusim_atomic(nullptr, 0, site); /* stands for the lock, which is not in the kernel's memory */
}

void xpusim_unlock(xpusim_site site)
{
    if (cluster.owner != self())
        xpusim_raise(XPUSIM_CORE_TRAP, "ticket_unlock_mix by a core that does not have the lock", site);
    xpusim_atomic(nullptr, 0, site);
    cluster.owner = -1;
    cluster.served++;
}

int xpusim_load_linked(const void *from, xpusim_site site)
{
    if (reinterpret_cast<std::uintptr_t>(from) % 4 != 0)
        xpusim_raise(XPUSIM_UNALIGNED, "SM2REG_atomic reads a 32-bit word: its address is not a multiple of 4", site);
    xpusim_atomic(from, 4, site);
    cluster.linked[self()] = from;
    int bits;
    std::memcpy(&bits, from, sizeof bits);
    xpusim_yield(); /* other cores may run in between, as on a card */
    return bits;
}

int xpusim_store_conditional(void *to, int bits, xpusim_site site)
{
    if (cluster.linked[self()] != to)
        return 1;
    xpusim_atomic(to, 4, site);
    unlink(to);
    std::memcpy(to, &bits, sizeof bits);
    return 0;
}

int xpusim_global_atomic(int *at, int value, int add, xpusim_site site)
{
    xpusim_yield();
    xpusim_atomic(at, 4, site);
    return add != 0 ? __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST)
                    : __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
}

void xpusim_group_shared(const void *object, uint64_t bytes, xpusim_site site)
{
    const At runtime(IN_RUNTIME);
    check::record_group_shared(object, bytes);
    const int group = self() / 4;
    std::vector<const void *> &objects = cluster.objects[group];
    if (std::find(objects.begin(), objects.end(), object) != objects.end())
        return;
    objects.push_back(object);
    cluster.bytes[group] += bytes;
    if (cluster.bytes[group] <= GROUP_MEMORY)
        return;
    char what[160];
    std::snprintf(what, sizeof what,
        "%llu bytes of group-shared memory: a group of four cores has 32768 bytes of local memory, its stacks included",
        static_cast<unsigned long long>(cluster.bytes[group]));
    xpusim_raise(XPUSIM_MEMORY_EXCEEDED, what, site);
}

uint64_t xpusim_clock(void)
{
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}
}
