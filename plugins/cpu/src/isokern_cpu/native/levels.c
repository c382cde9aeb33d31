/* Which instruction-set levels and features this machine can run. To add one, extend this file and kernel_build.py, and
 * add a folder of kernels. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Linux gives a process the AMX tile state only on request (arch_prctl(2)); it refuses where a thread's signal stack is
 * too small. */
static const char *refuse_tiles(void)
{
#if defined(__linux__)
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    enum { UNKNOWN, GIVEN, REFUSED };
    static _Atomic int answer = UNKNOWN; /* of the process: two requests at once are harmless */
    if (atomic_load(&answer) == UNKNOWN)
        atomic_store(&answer, syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 ? GIVEN : REFUSED);
    return atomic_load(&answer) == GIVEN ? NULL
                                         : "Linux gives this process no AMX tiles (arch_prctl, ARCH_REQ_XCOMP_PERM)";
#else
    return "AMX tiles are asked for on Linux alone";
#endif
}

static const char *amx_bf16_missing(void)
{
    unsigned int a, b, c, d, low, high;
    /* Intel SDM: CPUID leaves 7 and 1, XCR0. */
    const unsigned int bf16 = 1u << 22, tile = 1u << 24, osxsave = 1u << 27, tile_state = 3u << 17;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & bf16) == 0 || (d & tile) == 0
        || !__builtin_cpu_supports("x86-64-v4"))
        return "the processor lacks AMX-BF16 (AMX-TILE, AMX-BF16, AVX-512)";
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & osxsave) == 0)
        return "the system does not keep the state of AMX tiles (XSAVE)";
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & tile_state) != tile_state)
        return "the system does not keep the state of AMX tiles (XCR0)";
    return refuse_tiles();
}
#endif

const char *ik_level_missing(const char *level)
{
    if (strcmp(level, "portable") == 0)
        return NULL;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(level, "x86_v3") == 0)
        return __builtin_cpu_supports("x86-64-v3") ? NULL : "the processor lacks x86-64-v3 (AVX2, FMA, F16C)";
    if (strcmp(level, "x86_v4") == 0)
        return __builtin_cpu_supports("x86-64-v4") ? NULL : "the processor lacks x86-64-v4 (AVX-512 F, BW, CD, DQ, VL)";
    if (strcmp(level, "avx512_vnni") == 0)
        return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512vnni")
            ? NULL
            : "the processor lacks AVX-512 VNNI";
    if (strcmp(level, "avx512_bf16") == 0)
        return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16")
            ? NULL
            : "the processor lacks AVX-512 BF16";
    if (strcmp(level, "amx_bf16") == 0)
        return amx_bf16_missing();
#endif
#if defined(__aarch64__)
    if (strcmp(level, "neon") == 0)
        return NULL; /* part of every AArch64 processor */
#endif
    return "the level is of another architecture";
}
