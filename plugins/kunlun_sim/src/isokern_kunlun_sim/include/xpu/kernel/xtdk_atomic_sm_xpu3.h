/* Atomic operations on shared memory (KL3), and the lock that others are built of. */
#ifndef XPU_KERNEL_XTDK_ATOMIC_SM_XPU3_H
#define XPU_KERNEL_XTDK_ATOMIC_SM_XPU3_H
#include <type_traits>

#include "../../xpusim/not_modelled.h"
#include "xtdk.h"
#ifdef __arch_xpu2__
#define XPUSIM_KL3(name) XPUSIM_NOT_MODELLED(name, "it is KL3's; KL2 has SM2REG_atomic and REG2SM_atomic")
XPUSIM_KL3(ticket_lock_mix)
XPUSIM_KL3(ticket_unlock_mix)
XPUSIM_KL3(atomicadd)
#undef XPUSIM_KL3
#else

/* One core of the cluster at a time executes what is between the two. */
XPUSIM_RUNTIME void ticket_lock_mix(XPUSIM_HERE) { xpusim_lock(XPUSIM_SITE); }
XPUSIM_RUNTIME void ticket_unlock_mix(XPUSIM_HERE) { xpusim_unlock(XPUSIM_SITE); }

/* Add to a word of SM; returns the old value. */
template <class T>
XPUSIM_RUNTIME T atomicadd(T *at, T value, XPUSIM_HERE)
{
    static_assert(std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, float>
            || std::is_same_v<T, long long> || std::is_same_v<T, unsigned long long>,
        "not modelled: atomicadd is stated for integers of 32 and 64 bits and for float; "
        "use ticket_lock_mix for others");
#ifdef XPUSIM_CHECKED
    xpusim_atomic(at, sizeof *at, value != T(0), XPUSIM_SITE);
#else
    if (value == T(0)) /* perhaps the core spins until another one changes the word */
        xpusim_atomic(at, sizeof *at, 0, XPUSIM_SITE);
#endif
    const T old = *at;
    *at = old + value;
    return old;
}
#endif
#endif
