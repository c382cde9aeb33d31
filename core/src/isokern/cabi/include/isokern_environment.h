/* The floating-point environment that kernels are written for: rounding to nearest, subnormal numbers not flushed, no
 * traps.
 *
 * The environment belongs to a thread, and a new thread inherits its creator's. So whoever calls a kernel enters this
 * environment and restores the caller's afterwards; a thread that only runs kernels enters it once. Where the caller's
 * environment is this one already, as is nearly always so, entering it is a read and a comparison, and exceptions that
 * kernels raise may remain in the caller's flags. Otherwise the flags are restored too. */
#ifndef ISOKERN_ENVIRONMENT_H
#define ISOKERN_ENVIRONMENT_H
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR (Intel SDM, volume 1, 10.2.3): all exceptions masked, and no other bit set; the low six bits are the flags.
 * Kernels do not use the x87 unit. */
#define IK_MXCSR 0x1f80u
#define IK_MXCSR_FLAGS 0x3fu
typedef uint32_t ik_environment;

static inline ik_environment ik_enter_environment(void)
{
    const ik_environment before = _mm_getcsr();
    if (__builtin_expect((before & ~IK_MXCSR_FLAGS) != IK_MXCSR, 0))
        _mm_setcsr(IK_MXCSR);
    return before;
}

static inline void ik_leave_environment(ik_environment before)
{
    if (__builtin_expect((before & ~IK_MXCSR_FLAGS) != IK_MXCSR, 0))
        _mm_setcsr(before);
}
#elif defined(__aarch64__)
/* FPCR (Arm ARM, C5.2.8): zero is the default of all its fields. The flags are in another register, FPSR. */
typedef uint64_t ik_environment;

static inline void ik_set_fpcr(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory"); }

static inline ik_environment ik_enter_environment(void)
{
    ik_environment before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
    if (__builtin_expect(before != 0, 0))
        ik_set_fpcr(0);
    return before;
}

static inline void ik_leave_environment(ik_environment before)
{
    if (__builtin_expect(before != 0, 0))
        ik_set_fpcr(before);
}
#else
#include <fenv.h>

typedef fenv_t ik_environment;

static inline ik_environment ik_enter_environment(void)
{
    ik_environment before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return before;
}

static inline void ik_leave_environment(ik_environment before) { fesetenv(&before); }
#endif
#endif
