/* Elements of tensors by a linear index, one at a time, and as runs of values of a compute type. */
#ifndef ACME_ELEMENTS_H
#define ACME_ELEMENTS_H
#include "isokern_mixed.h"
#include "isokern_native.h"

enum { TILE = 128 }; /* elements that are computed at a time */

/* Values of a compute type. */
typedef union tile {
    float f32[TILE];
    double f64[TILE];
    int64_t i64[TILE];
    uint64_t u64[TILE];
} tile;

static inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* The number of elements over dims [from, to). */
static inline int64_t count_elements(const ik_tensor *t, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t d = from; d < to; d++)
        n *= t->shape[d];
    return n;
}

/* The offset, in elements, of element `index` of dims [from, to) in row-major order. */
static inline int64_t offset_of(const ik_tensor *t, int32_t from, int32_t to, int64_t index)
{
    int64_t offset = 0;
    for (int32_t d = to - 1; d >= from; d--) {
        offset += index % t->shape[d] * t->strides[d];
        index /= t->shape[d];
    }
    return offset;
}

/* Where element 0 of tensor i lies. */
static inline char *first_of(const ik_plan *plan, void *const *data, uint32_t i)
{ return (char *)data[i] + ik_bytes(plan->tensors[i].dtype, plan->tensors[i].offset); }

/* The elements [at, at + count) of dims [from, to), of which element 0 lies at `first`, to or from values of the
 * compute type. Each turn converts what lies in one row of the last dim, whose elements are one stride apart. */
static inline void convert_elements(int32_t compute, const ik_tensor *t, int32_t from, int32_t to, char *first,
    int64_t at, int64_t count, void *values, int loads)
{
    const int64_t size = ik_itemsize(t->dtype), row = to > from ? t->shape[to - 1] : 1;
    const int64_t stride = to > from ? t->strides[to - 1] : 0;
    for (char *next = values; count > 0;) {
        const int64_t n = min_of(count, row - at % row);
        char *elements = first + offset_of(t, from, to, at) * size;
        if (loads)
            ik_load_mixed(compute, t->dtype, elements, stride, n, next);
        else
            ik_store_mixed(compute, t->dtype, next, elements, stride, n);
        next += n * ik_itemsize(compute);
        at += n, count -= n;
    }
}

static inline void load_elements(int32_t compute, const ik_tensor *t, int32_t from, int32_t to, const char *first,
    int64_t at, int64_t count, void *values)
{ convert_elements(compute, t, from, to, (char *)(uintptr_t)first, at, count, values, 1); }

static inline void store_elements(
    int32_t compute, const ik_tensor *t, int32_t from, int32_t to, char *first, int64_t at, int64_t count, void *values)
{ convert_elements(compute, t, from, to, first, at, count, values, 0); }

#endif
