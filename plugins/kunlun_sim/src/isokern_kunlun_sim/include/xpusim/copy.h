/* GM2LM and its relatives, and the fences. The arguments are source, destination, bytes. */
#ifndef XPUSIM_COPY_H
#define XPUSIM_COPY_H
#include "device.h"

/* In checked kernels, copies are inlined, so that the compiler sees the objects that they copy. */
#ifdef XPUSIM_CHECKED
#define XPUSIM_COPY static inline __attribute__((always_inline, unused))
#if __GNUC__ >= 12
#define XPUSIM_REST(p) __builtin_dynamic_object_size(p, 0)
#else
#define XPUSIM_REST(p) __builtin_object_size(p, 0)
#endif
#else
#define XPUSIM_COPY XPUSIM_RUNTIME
#endif

/* The function behind all of them. */
XPUSIM_COPY void xpusim_move(
    xpusim_direction direction, const void *from, void *to, int64_t bytes, int asynchronous, xpusim_site site)
{
#ifdef XPUSIM_CHECKED
    xpusim_copy(direction, from, XPUSIM_REST(from), to, XPUSIM_REST(to), bytes, asynchronous, site);
#else
    (void)direction, (void)asynchronous;
    if (bytes <= 0)
        xpusim_raise(XPUSIM_DMA_LENGTH_ZERO, "a copy of no bytes", site);
    __builtin_memcpy(to, from, static_cast<size_t>(bytes));
#endif
}

XPUSIM_COPY void GM2LM(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GM2LM, from, to, bytes, 0, XPUSIM_SITE); }
XPUSIM_COPY void LM2GM(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_LM2GM, from, to, bytes, 0, XPUSIM_SITE); }
XPUSIM_COPY void GM2SM(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GM2SM, from, to, bytes, 0, XPUSIM_SITE); }
XPUSIM_COPY void SM2GM(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_SM2GM, from, to, bytes, 0, XPUSIM_SITE); }
XPUSIM_COPY void GM2LM_ASYNC(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GM2LM, from, to, bytes, 1, XPUSIM_SITE); }
XPUSIM_COPY void LM2GM_ASYNC(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_LM2GM, from, to, bytes, 1, XPUSIM_SITE); }
XPUSIM_COPY void GM2SM_ASYNC(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GM2SM, from, to, bytes, 1, XPUSIM_SITE); }
XPUSIM_COPY void SM2GM_ASYNC(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_SM2GM, from, to, bytes, 1, XPUSIM_SITE); }
XPUSIM_COPY void GM2GSM(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GM2GSM, from, to, bytes, 0, XPUSIM_SITE); }
XPUSIM_COPY void GSM2GM(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GSM2GM, from, to, bytes, 0, XPUSIM_SITE); }
XPUSIM_COPY void GM2GSM_ASYNC(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GM2GSM, from, to, bytes, 1, XPUSIM_SITE); }
XPUSIM_COPY void GSM2GM_ASYNC(const void *from, void *to, int64_t bytes, XPUSIM_HERE)
{ xpusim_move(XPUSIM_GSM2GM, from, to, bytes, 1, XPUSIM_SITE); }

XPUSIM_RUNTIME void xpusim_fence_of(int spaces, xpusim_site site)
{
#ifdef XPUSIM_CHECKED
    xpusim_fence(spaces, site);
#else
    (void)spaces, (void)site;
#endif
}

XPUSIM_RUNTIME void mfence(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_LM | XPUSIM_SM | XPUSIM_GM, XPUSIM_SITE); }
XPUSIM_RUNTIME void mfence_lm(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_LM, XPUSIM_SITE); }
XPUSIM_RUNTIME void mfence_sm(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_SM, XPUSIM_SITE); }
XPUSIM_RUNTIME void mfence_gm(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_GM, XPUSIM_SITE); }
XPUSIM_RUNTIME void mfence_lm_sm(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_LM | XPUSIM_SM, XPUSIM_SITE); }
XPUSIM_RUNTIME void mfence_lm_gm(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_LM | XPUSIM_GM, XPUSIM_SITE); }
XPUSIM_RUNTIME void mfence_sm_gm(XPUSIM_HERE) { xpusim_fence_of(XPUSIM_SM | XPUSIM_GM, XPUSIM_SITE); }
#endif
