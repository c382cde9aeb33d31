/* Which instruction-set levels this machine can run. A level is added here and as a folder of kernels. */
#include <string.h>

#include "runtime.h"

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
    if (strcmp(level, "avx512_bf16") == 0)
        return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16") ? NULL : "the processor lacks AVX-512 BF16";
#endif
#if defined(__aarch64__)
    if (strcmp(level, "neon") == 0)
        return NULL; /* part of every AArch64 */
#endif
    return "the level is of another architecture";
}
