/* The machine's own fused multiply-add, where it has one: kernels are compiled for any machine of its kind, so it is
 * asked when a library of kernels is loaded. (Assembly of system headers is not rewritten.) */
#ifndef XPUSIM_FUSED_H
#define XPUSIM_FUSED_H
#pragma GCC system_header

namespace xpusim
{

typedef float float_quarter __attribute__((vector_size(16)));

#if defined __x86_64__ && !defined XPUSIM_NO_FUSED
static const bool has_fused = __builtin_cpu_supports("fma") != 0;

static inline __attribute__((always_inline)) float_quarter fused(float_quarter a, float_quarter b, float_quarter c)
{
    asm("vfmadd213ps %2, %1, %0" : "+x"(a) : "x"(b), "x"(c));
    return a;
}
#else
static const bool has_fused = false;

static inline float_quarter fused(float_quarter a, float_quarter, float_quarter) { return a; }
#endif

} // namespace xpusim
#endif
