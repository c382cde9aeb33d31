/* State that belongs to the cluster a thread runs. */
#ifndef XPURT_ATOMIC_H
#define XPURT_ATOMIC_H
#include "../include/xpusim/device.h"

#include <cstdint>

namespace xpurt
{

/* Reset the state for a cluster that begins on this thread: its lock is free, nothing is linked, and no group has
 * memory. `seed` is that of its schedule. */
void begin_cluster(std::uint64_t seed, bool checked);

/* A core of the cluster did what another may wait for. */
void go_on();
/* Whether the cores' last operations only read words of global memory that none of them changes. */
bool waits_for_others();

/* Release the cluster's lock if a core that ends has it, and say where the core got it. */
bool release_lock(int core, xpusim_site &locked);

} // namespace xpurt
#endif
