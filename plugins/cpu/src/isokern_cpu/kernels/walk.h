/* Elements of a tensor by a linear index over some of its dims: in place, or as runs of the innermost of them,
 * converted from and to a compute type. */
#ifndef IK_WALK_H
#define IK_WALK_H
#include "convert.h"

/* Some neighbouring dims of a tensor, at least one. */
typedef struct ik_lanes {
    int32_t compute, dtype, dims;
    bool dense, still; /* dense: elements are contiguous; still: all are the same element */
    int64_t size;
    const int64_t *shape, *strides;
} ik_lanes;

static inline ik_lanes ik_lanes_of(const ik_tensor *t, int32_t compute, int32_t first, int32_t dims)
{
    static const int64_t one = 1, none = 0;
    ik_lanes l = {
        .compute = compute, .dtype = t->dtype, .dims = dims, .dense = true, .still = true, .size = ik_itemsize(t->dtype)
    };
    l.shape = t->shape + first, l.strides = t->strides + first;
    if (dims == 0)
        l.dims = 1, l.shape = &one, l.strides = &none;
    int64_t count = 1;
    for (int32_t d = l.dims - 1; d >= 0; d--) {
        l.dense &= l.strides[d] == count;
        l.still &= l.strides[d] == 0;
        count *= l.shape[d];
    }
    return l;
}

/* Offset in elements of element number `at`. */
static inline int64_t ik_lanes_offset(const ik_lanes *l, int64_t at)
{
    int64_t offset = 0;
    for (int32_t d = l->dims - 1; d > 0; d--) {
        offset += at % l->shape[d] * l->strides[d];
        at /= l->shape[d];
    }
    return offset + at * l->strides[0];
}

/* The address of the elements from `at` on where they can be used in place, being contiguous and of the compute type;
 * else null. */
static inline char *ik_lanes_in_place(const ik_lanes *l, char *base, int64_t at, int64_t count)
{
    int64_t last = l->dims - 1;
    if (l->dtype != l->compute)
        return NULL;
    if (l->dense)
        return base + at * l->size;
    if (l->strides[last] != 1 || at % l->shape[last] + count > l->shape[last])
        return NULL;
    return base + ik_lanes_offset(l, at) * l->size;
}

/* Converts a piece of the innermost dim, between `memory` and `values`; ik_walk covers `count` elements from `at` on in
 * pieces. */
typedef void ik_piece(int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *values);

static inline __attribute__((always_inline)) void ik_walk(
    const ik_lanes *l, char *base, int64_t at, int64_t count, char *values, ik_piece *each)
{
    int64_t index[IK_MAX_RANK], last = l->dims - 1, width = l->compute == IK_F32 ? 4 : 8;
    int64_t offset = 0;
    for (int64_t d = last, rest = at; d >= 0; d--) {
        index[d] = rest % l->shape[d];
        rest /= l->shape[d];
        offset += index[d] * l->strides[d];
    }
    for (;;) {
        int64_t run = ik_min(count, l->shape[last] - index[last]);
        each(l->compute, l->dtype, base + offset * l->size, l->strides[last], run, values);
        count -= run;
        if (count == 0)
            return;
        values += run * width;
        offset -= index[last] * l->strides[last];
        index[last] = 0;
        for (int64_t d = last - 1; d >= 0; d--) { /* advance the indices, innermost dim first */
            offset += l->strides[d];
            if (++index[d] < l->shape[d])
                break;
            offset -= index[d] * l->strides[d];
            index[d] = 0;
        }
    }
}

static inline __attribute__((always_inline)) void ik_load_piece(
    int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *to)
{
    if (stride != 0) {
        ik_load(compute, dtype, memory, stride, n, to);
    } else if (compute == IK_F32) { /* one element, repeated */
        ik_load(compute, dtype, memory, 0, 1, to);
        const float value = *(const float *)(const void *)to;
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = value;
    } else {
        ik_load(compute, dtype, memory, 0, 1, to);
        uint64_t value;
        memcpy(&value, to, sizeof value);
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            ((uint64_t *)(void *)to)[i] = value;
    }
}

static inline __attribute__((always_inline)) void ik_store_piece(
    int32_t compute, int32_t dtype, char *memory, int64_t stride, int64_t n, char *from)
{ ik_store(compute, dtype, from, memory, stride, n); }

static __attribute__((noinline, unused)) void ik_lanes_load(
    const ik_lanes *l, const char *base, int64_t at, int64_t count, void *to)
{ ik_walk(l, (char *)(uintptr_t)base, at, count, to, ik_load_piece); }

static __attribute__((noinline, unused)) void ik_lanes_store(
    const ik_lanes *l, char *base, int64_t at, int64_t count, const void *from)
{ ik_walk(l, base, at, count, (char *)(uintptr_t)from, ik_store_piece); }

#endif
