/* Floating-point environments that a caller may have, for test_environment.py, whose build defines _GNU_SOURCE. */
#include <fenv.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

static inline void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); /* subnormal results and operands are zero */ }

/* Return the register that controls SSE arithmetic, without the exception flags: MXCSR. */
static inline uint32_t computing(void) { return _mm_getcsr() & ~0x3fu; }

/* Return the caller's whole environment: MXCSR, and above it the control word of the x87 unit. */
static inline uint32_t registers(void)
{
    uint16_t control;
    __asm__ volatile("fnstcw %0" : "=m"(control));
    return computing() | (uint32_t)control << 16;
}
#elif defined(__aarch64__)
static inline void flush(void)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | 1u << 24 | 1u << 19));
}

static inline uint32_t computing(void)
{
    uint64_t now;
    __asm__ volatile("mrs %0, fpcr" : "=r"(now));
    return (uint32_t)now;
}

static inline uint32_t registers(void) { return computing(); }
#endif

/* Enter the environment of that name, and return its registers. */
static inline uint32_t take_on(const char *name)
{
    fesetenv(FE_DFL_ENV);
    if (strcmp(name, "up") == 0 || strcmp(name, "all") == 0)
        fesetround(FE_UPWARD);
    if (strcmp(name, "down") == 0)
        fesetround(FE_DOWNWARD);
    if (strcmp(name, "zero") == 0)
        fesetround(FE_TOWARDZERO);
    if (strcmp(name, "flush") == 0 || strcmp(name, "all") == 0)
        flush();
    if (strcmp(name, "traps") == 0)
        feenableexcept(FE_ALL_EXCEPT);
    return registers();
}
