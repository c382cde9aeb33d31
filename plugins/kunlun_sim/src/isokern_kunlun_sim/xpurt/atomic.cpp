/* What the cores of a cluster share besides memory: its lock, the links of loads to stores, and group-shared memory. */
#include "atomic.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "lane.h"
#include "../include/xpusim/device.h"
#include "check.h"
#include "model.h"

namespace xpurt
{

static constexpr int GROUPS = 16;
static constexpr std::uint64_t GROUP_MEMORY = 32 * 1024;

/* The state of the cluster that runs on this thread. */
struct Cluster {
    unsigned next = 0, served = 0; /* tickets of the lock */
    int owner = -1;
    xpusim_site locked{}; /* where the owner got it */
    const void *linked[MAX_CORES] = {};
    std::vector<const void *> objects[GROUPS];
    std::uint64_t bytes[GROUPS] = {};
    bool checked = false;
    unsigned operations = 0; /* those that let other cores run, in fast mode */
    /* Atomic operations that only read the word that their core had read before, since a core did anything else that
     * another may wait for. */
    unsigned idle = 0;
    bool global = false; /* one of them was on global memory */
    /* Each core's last word; not an array, because a library that is loaded late has few thread-local bytes. */
    std::vector<const void *> reads;
    unsigned late = 0; /* with a seed: the remainder by 8 of the cores that often wait long */
    std::minstd_rand random;
};
static thread_local Cluster cluster;

/* In fast mode every so many of the operations that a core spins on let other cores run. */
static constexpr unsigned READS = 16, LOCKS = 512;
/* So many operations in a row change nothing only if no core of the cluster will change anything: a late core waits for
 * at most 256 turns of 64 cores. */
static constexpr unsigned IDLE = 100000;

void begin_cluster(std::uint64_t seed, bool checked)
{
    cluster = {};
    cluster.reads.resize(MAX_CORES);
    cluster.checked = checked;
    cluster.random.seed(static_cast<unsigned>(seed));
    cluster.late = static_cast<unsigned>(seed >> 32) % 8;
}

void go_on() { cluster.idle = 0; }

bool waits_for_others() { return cluster.idle > READS && cluster.global; }

static int self() { return xpusim_current->core; }

/* Let the other cores run, as they would beside this one. With a seed the core waits for none or several turns; in fast
 * mode this is left out but for one of `seldom` calls. */
static void switch_cores(Cluster &mine, unsigned seldom, const xpusim_site &site)
{
    if (!mine.checked) {
        if (++mine.operations % seldom == 0)
            yield(site);
        return;
    }
    unsigned turns = 1;
    if (seed() != 0) {
        for (turns = 0; turns < 16 && mine.random() % 2 != 0;)
            turns++;
        if (static_cast<unsigned>(self()) % 8 == mine.late && mine.random() % 4 == 0)
            turns *= 16;
    }
    for (; turns != 0; turns--)
        yield(site);
}

/* Count an operation; a cluster whose cores only wait is ended. */
static void count_idle(const void *word, bool global, bool changes, const xpusim_site &site)
{
    const void *&last = cluster.reads[static_cast<std::size_t>(self())];
    const bool waits = !changes && last == word;
    last = word;
    cluster.idle = waits ? cluster.idle + 1 : 0;
    cluster.global |= global;
    cluster.global &= waits;
    if (cluster.idle < IDLE || !cluster.checked)
        return;
    lane->failure.other_cluster = lane->more_clusters && cluster.global;
    xpusim_raise(XPUSIM_TASK_TIMEOUT,
        lane->failure.other_cluster
            ? "waits for ever: no core of its cluster changes the word, and other clusters run after "
              "this one in the emulator"
            : "waits for ever: no core changes the word that it reads",
        site);
}

/* A store to `address` ends every core's link to it. */
static void unlink(const void *address)
{
    for (const void *&link : cluster.linked)
        if (link == address)
            link = nullptr;
}

static void release()
{
    cluster.owner = -1;
    cluster.served++;
}

bool release_lock(int core, xpusim_site &locked)
{
    if (cluster.owner != core)
        return false;
    locked = cluster.locked;
    release();
    return true;
}

} // namespace xpurt

using namespace xpurt;

extern "C" {

void xpusim_lock(xpusim_site site)
{
    Cluster &mine = cluster;
    if (mine.owner == self())
        xpusim_raise(XPUSIM_NESTED_ATOMIC,
            "nested atomic: ticket_lock_mix by the core that has the lock; "
            "unlock first, or use plain operations inside",
            site);
    switch_cores(mine, LOCKS, site);
    for (const unsigned ticket = mine.next++; ticket != mine.served;)
        yield(site);
    mine.owner = self();
    mine.locked = site;
    mine.idle = 0;
    if (mine.checked)
        check::record_atomic(
            nullptr, 0, XPUSIM_SM, site); /* stands for the lock, which is not in the kernel's memory */
}

void xpusim_unlock(xpusim_site site)
{
    Cluster &mine = cluster;
    if (mine.owner != self())
        xpusim_raise(XPUSIM_CORE_TRAP, "ticket_unlock_mix by a core that does not have the lock", site);
    if (mine.checked)
        check::record_atomic(nullptr, 0, XPUSIM_SM, site);
    release();
}

int xpusim_load_linked(const void *from, xpusim_site site)
{
    if (reinterpret_cast<std::uintptr_t>(from) % 4 != 0)
        xpusim_raise(XPUSIM_UNALIGNED, "SM2REG_atomic reads a 32-bit word: its address is not a multiple of 4", site);
    check::record_atomic(from, 4, XPUSIM_SM, site);
    cluster.linked[self()] = from;
    int bits;
    std::memcpy(&bits, from, sizeof bits);
    yield(site); /* other cores may run in between, as on a card */
    return bits;
}

int xpusim_store_conditional(void *to, int bits, xpusim_site site)
{
    if (cluster.linked[self()] != to)
        return 1;
    check::record_atomic(to, 4, XPUSIM_SM, site);
    cluster.idle = 0;
    unlink(to);
    std::memcpy(to, &bits, sizeof bits);
    return 0;
}

int xpusim_global_atomic(int *at, int value, int add, xpusim_site site)
{
    switch_cores(cluster, 1, site);
    check::record_atomic(at, 4, XPUSIM_GM, site);
    const int old =
        add != 0 ? __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST) : __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);
    count_idle(at, true, add != 0 ? value != 0 : value != old, site);
    return old;
}

void xpusim_atomic(const void *address, int bytes, int changes, xpusim_site site)
{
    switch_cores(cluster, READS, site);
    count_idle(address, false, changes != 0, site);
    check::record_atomic(address, bytes, XPUSIM_SM, site);
}

void xpusim_group_shared(const void *object, uint64_t bytes, xpusim_site site)
{
    const At runtime(IN_RUNTIME);
    check::record_group_shared(object, bytes);
    const int group = self() / width_of_groups(xpusim_current->cores);
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
