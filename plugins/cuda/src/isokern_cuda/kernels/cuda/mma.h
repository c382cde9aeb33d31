/* Tensor cores and asynchronous copies: PTX instructions, which cuda_host.h emulates on the host.
 *
 * A fragment is the part of a matrix that a thread of a warp holds, with two elements in 32 bits. With g = lane / 4 and
 * t = lane % 4 (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"):
 *
 *     left 16 × 16: rows g and g + 8 of columns 2t and 2t + 1, then the same of columns 2t + 8 and 2t + 9
 *     right 16 × 8: rows 2t and 2t + 1, then rows 2t + 8 and 2t + 9, of column g
 *     sums 16 × 8:  columns 2t and 2t + 1 of row g, then of row g + 8
 *
 * All threads of a warp call the same function at once, except for copies, which are a thread's own. */
#ifndef IK_MMA_H
#define IK_MMA_H
#include "isokern_half.h"

#ifdef __CUDA_ARCH__

static IK_INLINE unsigned ik_shared_address(const void *place) { return (unsigned)__cvta_generic_to_shared(place); }

static IK_INLINE void ik_mma_f16(float (&sums)[4], const unsigned (&left)[4], unsigned low, unsigned high)
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
        " {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
#else /* sm_75 multiplies 8 columns of the left matrix at a time */
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(low));
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[2]), "r"(left[3]), "r"(high));
#endif
}

#if __CUDA_ARCH__ >= 800
static IK_INLINE void ik_mma_bf16(float (&sums)[4], const unsigned (&left)[4], unsigned low, unsigned high)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
        " {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(low), "r"(high));
}
#endif

static IK_INLINE void ik_load_matrices(unsigned (&loaded)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(loaded[0]), "=r"(loaded[1]), "=r"(loaded[2]), "=r"(loaded[3])
        : "r"(ik_shared_address(row))
        : "memory");
}

static IK_INLINE void ik_load_transposed(unsigned (&loaded)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(loaded[0]), "=r"(loaded[1]), "=r"(loaded[2]), "=r"(loaded[3])
        : "r"(ik_shared_address(row))
        : "memory");
}

#if __CUDA_ARCH__ >= 800
static IK_INLINE void ik_copy_async(void *to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ik_shared_address(to)),
        "l"(__cvta_generic_to_global(from)), "r"(bytes)
        : "memory");
}
static IK_INLINE void ik_commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS>
static IK_INLINE void ik_wait_copies()
{ asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory"); }
#else /* the copy is done at once */
static IK_INLINE void ik_copy_async(void *to, const void *from, int bytes)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (bytes == 16)
        v = *(const uint4 *)from;
    else if (bytes != 0) {
        unsigned part[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (2 * i < bytes)
                part[i / 2] |= (unsigned)((const unsigned short *)from)[i] << (16 * (i % 2));
        v = make_uint4(part[0], part[1], part[2], part[3]);
    }
    *(uint4 *)to = v;
}
static IK_INLINE void ik_commit_copies() {}
template <int GROUPS>
static IK_INLINE void ik_wait_copies()
{
}
#endif

/* sums += left × right; `low` and `high` are the two parts of the right fragment. */
#define IK_MMA_F16(sums, left, low, high) ik_mma_f16(sums, left, low, high)
#define IK_MMA_BF16(sums, left, low, high) ik_mma_bf16(sums, left, low, high)
/* Four matrices of 8 × 8 elements of 16 bits from shared memory: `row` of lane 8 i + j is the address of row j of
 * matrix i, 16 bytes. A thread gets elements 2t and 2t + 1 of row g of each; transposed, of column g. */
#define IK_LOAD_MATRICES(loaded, row) ik_load_matrices(loaded, row)
#define IK_LOAD_TRANSPOSED(loaded, row) ik_load_transposed(loaded, row)
/* Copy `bytes` bytes (even, at most 16) from global to shared memory, and zeros up to 16. The thread itself may read
 * the copy after the wait for its group, which consists of the copies since the last commit; others may after a barrier
 * that follows the wait. IK_WAIT_COPIES(n) waits for all but the n groups that were committed last. */
#define IK_COPY_ASYNC(to, from, bytes) ik_copy_async(to, from, bytes)
#define IK_COMMIT_COPIES() ik_commit_copies()
#define IK_WAIT_COPIES(groups) ik_wait_copies<groups>()

#else

template <float (*widen)(uint16_t)>
static void ik_mma_on_host(float (&sums)[4], const unsigned (&left)[4], unsigned low, unsigned high, const char *site)
{
    const unsigned right[2] = { low, high };
    float given[12];
    for (int i = 0; i < 8; i++)
        given[i] = widen((uint16_t)(left[i / 2] >> (16 * (i % 2))));
    for (int i = 0; i < 4; i++)
        given[8 + i] = widen((uint16_t)(right[i / 2] >> (16 * (i % 2))));
    cuda_host_mma(sums, given, site);
}
#define IK_MMA_F16(sums, left, low, high) ik_mma_on_host<ik_f16_to_f32>(sums, left, low, high, CUDA_HOST_SITE)
#define IK_MMA_BF16(sums, left, low, high) ik_mma_on_host<ik_bf16_to_f32>(sums, left, low, high, CUDA_HOST_SITE)
#define IK_LOAD_MATRICES(loaded, row) cuda_host_load_matrices(loaded, row, 0, CUDA_HOST_SITE)
#define IK_LOAD_TRANSPOSED(loaded, row) cuda_host_load_matrices(loaded, row, 1, CUDA_HOST_SITE)
#define IK_COPY_ASYNC(to, from, bytes) cuda_host_copy_async(to, from, bytes, CUDA_HOST_SITE)
#define IK_COMMIT_COPIES() cuda_host_commit_copies()
#define IK_WAIT_COPIES(groups) cuda_host_wait_copies(groups)
#endif
#endif
