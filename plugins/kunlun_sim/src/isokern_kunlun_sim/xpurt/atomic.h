/* State that belongs to the cluster a thread runs. */
#ifndef XPURT_ATOMIC_H
#define XPURT_ATOMIC_H
namespace xpurt
{

/* Reset the state for a cluster that begins on this thread: its lock is free, nothing is linked, and no group has
 * memory. */
void begin_cluster();

} // namespace xpurt
#endif
