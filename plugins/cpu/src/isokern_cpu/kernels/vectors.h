/* The headers of the vector instructions, which take longer to read than most kernels: gcc reads them once for each
 * level (kernel_build.py). */
#ifndef IK_VECTORS_H
#define IK_VECTORS_H
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif
#endif
