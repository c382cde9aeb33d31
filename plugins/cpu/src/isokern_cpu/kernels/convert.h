/* Core's conversions of runs of elements, the width of a vector, and copies past the caches. */
#ifndef IK_CONVERT_H
#define IK_CONVERT_H
#include "kernel.h"
#include "vectors.h"

#include "isokern_convert.h"

#if defined(__AVX512F__)
enum { IK_VECTOR = 64 };
#elif defined(__AVX__)
enum { IK_VECTOR = 32 };
#else
enum { IK_VECTOR = 16 };
#endif

/* Keep a pointer or a number in a register of its own: gcc else makes a register of each row's distance from the first
 * one, more than there are, and moves some from vectors, in the place of multiplications. */
#define IK_HIDE(value) __asm__("" : "+r"(value))

typedef float ik_f32s __attribute__((vector_size(IK_VECTOR)));
typedef double ik_f64s __attribute__((vector_size(IK_VECTOR)));
typedef uint32_t ik_u32s __attribute__((vector_size(IK_VECTOR)));
typedef uint64_t ik_u64s __attribute__((vector_size(IK_VECTOR)));

/* Copy past the caches to memory that will not be read soon. Any alignment. */
static inline void ik_stream_copy(void *to, const void *from, int64_t bytes)
{
    char *y = to;
    const char *x = from;
#if defined(__SSE2__)
    int64_t head = ik_min(bytes, -(intptr_t)y & (IK_VECTOR - 1));
    memcpy(y, x, (size_t)head);
    y += head, x += head, bytes -= head;
    for (; bytes >= IK_VECTOR; y += IK_VECTOR, x += IK_VECTOR, bytes -= IK_VECTOR) {
#if defined(__AVX512F__)
        _mm512_stream_si512((__m512i *)y, _mm512_loadu_si512((const void *)x));
#elif defined(__AVX__)
        _mm256_stream_si256((__m256i *)y, _mm256_loadu_si256((const __m256i *)x));
#else
        _mm_stream_si128((__m128i *)y, _mm_loadu_si128((const __m128i *)x));
#endif
    }
#endif
    memcpy(y, x, (size_t)bytes);
}

/* Call after the last streaming store of a task, so that other threads see the stores. */
static inline void ik_stream_fence(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
