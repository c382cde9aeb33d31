/* Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
 * 1, 2, 3" (SC'11). Written in the common subset of C, OpenCL C and CUDA C++. */
#ifndef ISOKERN_PHILOX_H
#define ISOKERN_PHILOX_H
#include "isokern_int.h"

typedef struct ik_words {
    uint32_t w0, w1, w2, w3;
} ik_words;

/* The four words of a block, which its counter and the key determine. The low half of the key is its first word. */
static IK_INLINE ik_words ik_philox(ik_words c, IK_UINT64 key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++) {
        const IK_UINT64 a = (IK_UINT64)c.w0 * 0xd2511f53u, b = (IK_UINT64)c.w2 * 0xcd9e8d57u;
        c.w0 = (uint32_t)(b >> 32) ^ c.w1 ^ k0;
        c.w1 = (uint32_t)b;
        c.w2 = (uint32_t)(a >> 32) ^ c.w3 ^ k1;
        c.w3 = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

/* Block number `block` of random_bits: the low half of the counter is its number, the high half is 0. */
static IK_INLINE ik_words ik_philox_block(IK_UINT64 block, IK_UINT64 key)
{
    ik_words c;
    c.w0 = (uint32_t)block;
    c.w1 = (uint32_t)(block >> 32);
    c.w2 = 0;
    c.w3 = 0;
    return ik_philox(c, key);
}

#endif
