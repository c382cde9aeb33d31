/* Integers to and from the types of their sums, and transposing a block of b whose columns are contiguous. */
#ifndef IK_GEMM_TYPES_H
#define IK_GEMM_TYPES_H
#include "gemm_core.h"

/* Low bits of sums and products depend on low bits only, so 32-bit sums serve every integer type up to that width. */
static __attribute__((noinline)) void load_u32(int32_t dtype, const void *from, int64_t stride, int64_t n, uint32_t *to)
{
    enum { RUN = 64 };
    int64_t wide[RUN];
    for (int64_t at = 0; at < n; at += RUN) {
        int64_t count = ik_min(RUN, n - at);
        ik_load_i64(dtype, (const char *)from + at * stride * ik_itemsize(dtype), stride, count, wide);
        for (int64_t i = 0; i < count; i++)
            to[at + i] = (uint32_t)wide[i];
    }
}

static __attribute__((noinline)) void load_u64(int32_t dtype, const void *from, int64_t stride, int64_t n, uint64_t *to)
{ ik_load_i64(dtype, from, stride, n, (int64_t *)to); }

static __attribute__((noinline)) void finish_u32(
    const ik_gemm_args *g, int64_t row, int64_t col, int64_t n, const uint32_t *sums)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t wide = (int64_t)sums[j];
        ik_store_i64(g->y.dtype, &wide, ik_element(&g->y, row, col + j), 1, 1);
    }
}

static __attribute__((noinline)) void finish_u64(
    const ik_gemm_args *g, int64_t row, int64_t col, int64_t n, const uint64_t *sums)
{ ik_store_i64(g->y.dtype, (const int64_t *)sums, ik_element(&g->y, row, col), g->y.col, n); }

/* transpose_f32 for integers. */
static void transpose_u32(
    int32_t dtype, const char *from, int64_t column, int64_t k, int64_t cols, uint32_t *to, int64_t panel_width)
{
    uint32_t wide[IK_BLOCK_K];
    for (int64_t j = 0; j < cols; j++) {
        load_u32(dtype, from + j * column * ik_itemsize(dtype), 1, k, wide);
        for (int64_t p = 0; p < k; p++)
            to[p * panel_width + j] = wide[p];
    }
}

static void transpose_u64(
    int32_t dtype, const char *from, int64_t column, int64_t k, int64_t cols, uint64_t *to, int64_t panel_width)
{
    (void)dtype;
    for (int64_t j = 0; j < cols; j++)
        for (int64_t p = 0; p < k; p++)
            to[p * panel_width + j] = ((const uint64_t *)(const void *)from)[j * column + p];
}

#define IK_FILE "gemm_types.h"
#define IK_TYPES (IK_EACH_U32 | IK_EACH_U64)
#include "each_type.h"

#elif defined(IK_T)
#include "gemm_tile.h"
#include "gemm_pack.h"
#include "gemm_block.h"
#endif
