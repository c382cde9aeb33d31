/* This machine's own limits, for `isokern bench`: the rate at which all threads copy, and the rate of multiply-adds
 * that touch no memory. */
#include <string.h>

#include "runtime.h"

enum { BLOCK = 4096, MIN_BLOCKS = 32, PIECES_A_THREAD = 16, PREFETCH = 2048 }; /* MIN_BLOCKS: of a thread */

typedef struct copy_job {
    char *to;
    const char *from;
    int32_t streaming;
} copy_job;

#if defined(__x86_64__)
#include <immintrin.h>

/* Streaming stores need aligned lines: both ends of the copied range are multiples of BLOCK from a 64-byte address. */
static void stream_blocks(char *to, const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) {
        _mm_prefetch(from + i + PREFETCH, _MM_HINT_T0);
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + i + 48));
        _mm_stream_si128((__m128i *)(void *)(to + i), a);
        _mm_stream_si128((__m128i *)(void *)(to + i + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + i + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + i + 48), d);
    }
    _mm_sfence();
}
#else
static void stream_blocks(char *to, const char *from, int64_t bytes) { memcpy(to, from, (size_t)bytes); }
#endif

static void copy_blocks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const copy_job *j = context;
    int64_t at = begin * BLOCK, bytes = (end - begin) * BLOCK;
    (void)worker;
    if (j->streaming)
        stream_blocks(j->to + at, j->from + at, bytes);
    else
        memcpy(j->to + at, j->from + at, (size_t)bytes);
}

void ik_measure_copy(void *to, const void *from, uint64_t bytes, int32_t streaming)
{
    copy_job j = { to, from, streaming && (uintptr_t)to % 64 == 0 };
    int64_t blocks = (int64_t)(bytes / BLOCK);
    ik_parallel_for(blocks, MIN_BLOCKS, copy_blocks, &j);
    memcpy((char *)to + blocks * BLOCK, (const char *)from + blocks * BLOCK, (size_t)(bytes % BLOCK));
}

/* acc = acc * x + y in as many registers as hide the latency: one function for each instruction set and type. */
typedef float f32x4 __attribute__((vector_size(16)));
typedef double f64x2 __attribute__((vector_size(16)));
#define SPIN spin_f32
#define VECTOR f32x4
#define TARGET
#define FMA(a, x, y) ((a) * (x) + (y))
#include "limits_fma.h"
#define SPIN spin_f64
#define VECTOR f64x2
#define TARGET
#define FMA(a, x, y) ((a) * (x) + (y))
#include "limits_fma.h"
#if defined(__x86_64__)
#define SPIN spin_f32_v3
#define VECTOR __m256
#define TARGET __attribute__((target("avx2,fma")))
#define FMA _mm256_fmadd_ps
#include "limits_fma.h"
#define SPIN spin_f64_v3
#define VECTOR __m256d
#define TARGET __attribute__((target("avx2,fma")))
#define FMA _mm256_fmadd_pd
#include "limits_fma.h"
#define SPIN spin_f32_v4
#define VECTOR __m512
#define TARGET __attribute__((target("avx512f")))
#define FMA _mm512_fmadd_ps
#include "limits_fma.h"
#define SPIN spin_f64_v4
#define VECTOR __m512d
#define TARGET __attribute__((target("avx512f")))
#define FMA _mm512_fmadd_pd
#include "limits_fma.h"
#endif

typedef int64_t spin(int64_t rounds, double *sink);
typedef struct fma_job {
    spin *spin;
    int64_t rounds;
} fma_job;

/* Run `rounds` rounds for each piece. */
static void spin_pieces(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const fma_job *j = context;
    double sink = 0;
    (void)worker;
    j->spin((end - begin) * j->rounds, &sink);
}

static spin *choose_spin(int32_t dtype)
{
    int wide = dtype == IK_F64;
#if defined(__x86_64__)
    if (ik_level_missing("x86_v4") == NULL)
        return wide ? spin_f64_v4 : spin_f32_v4;
    if (ik_level_missing("x86_v3") == NULL)
        return wide ? spin_f64_v3 : spin_f32_v3;
#endif
    return wide ? spin_f64 : spin_f32;
}

double ik_measure_fma(int32_t dtype, int64_t rounds)
{
    double sink = 0;
    fma_job j = { choose_spin(dtype), rounds };
    int64_t pieces = (int64_t)ik_threads() * PIECES_A_THREAD;
    ik_parallel_for(pieces, 1, spin_pieces, &j);
    return (double)j.spin(0, &sink) * (double)rounds * (double)pieces;
}
