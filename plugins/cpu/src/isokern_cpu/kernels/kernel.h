/* What every kernel file includes: tensor access, tiles, and streaming stores; the names of its functions are in isokern_native.h.
 * What the declaration of an operator gives to C (its number, the numbers of its tensors, the struct of its attributes) is in operators/<operator>.h,
 * made by the build: a kernel includes those that it reads, and is compiled again for no other.
 *
 * A kernel file is built once for every level with that level's flags; a file of the same name in a level's folder replaces it there and
 * in the levels above. Its workspace is for ik_threads() threads. Kernels allocate nothing, keep nothing, and take unaligned data. */
#ifndef IK_KERNEL_H
#define IK_KERNEL_H
#include <stdbool.h>
#include <string.h>

#include "isokern_math.h"
#include "isokern_int.h"
#include "runtime.h"

#if defined(__clang__)
#define IK_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IK_VECTORISE _Pragma("GCC ivdep")
#endif

/* What takes long to compile is compiled in parts, side by side, with IK_PART from 0 on (PARTS in kernel_build.py); without it, the file is whole.
 * What one part has for another is hidden from all else, and its name ends in the level. */
#ifdef IK_PART
#define IK_IN_PART(n) (IK_PART == (n))
#else
#define IK_IN_PART(n) 1
#endif
#define IK_SHARED(name) __attribute__((visibility("hidden"))) IK_JOIN(name, , IK_LEVEL)
#define IK_PART_NAME(name) IK_JOIN(name, , IK_LEVEL)

/* Below this many bytes of work a second thread costs more than it brings. */
enum { IK_TILE = 1024, IK_THREAD_BYTES = 1 << 17 };

/* Outputs beyond this many bytes bypass the caches (a streaming store saves the read of each line). */
#define IK_STREAM_BYTES (INT64_C(2) << 20)

/* Bytes of an element; of block types ik_bytes tells. */
static inline int64_t ik_itemsize(int32_t dtype)
{
    switch (dtype) {
    case IK_F64: case IK_I64: case IK_U64: return 8;
    case IK_F32: case IK_I32: case IK_U32: return 4;
    case IK_F16: case IK_BF16: case IK_I16: case IK_U16: return 2;
    default: return 1;
    }
}

/* Element `at` of indices: I64, I32 or U8. */
static inline int64_t ik_index_at(int32_t dtype, const void *indices, int64_t at)
{
    switch (dtype) {
    case IK_I64: return ((const int64_t *)indices)[at];
    case IK_I32: return ((const int32_t *)indices)[at];
    default: return ((const uint8_t *)indices)[at];
    }
}

/* Bytes of `elements`, or from element 0 to that one: of block types a whole number of blocks. */
static inline int64_t ik_bytes(int32_t dtype, int64_t elements)
{
    switch (dtype) {
    case IK_Q4_0: return elements / 32 * 18;
    case IK_Q4_1: return elements / 32 * 20;
    case IK_Q8_0: return elements / 32 * 34;
    default: return elements * ik_itemsize(dtype);
    }
}

static inline bool ik_is_blocks(int32_t dtype) { return dtype >= IK_Q4_0; }

static inline int64_t ik_numel(const ik_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

/* Address of element 0 of tensor i, null where it is absent. */
static inline void *ik_ptr(const ik_plan *plan, void *const *data, uint32_t i)
{
    if (i >= plan->tensor_count || plan->tensors[i].dtype == IK_NONE)
        return NULL;
    return (char *)data[i] + ik_bytes(plan->tensors[i].dtype, plan->tensors[i].offset);
}

static inline bool ik_present(const ik_plan *plan, uint32_t i)
{
    return i < plan->tensor_count && plan->tensors[i].dtype != IK_NONE;
}

/* Offset in elements of the row with number `row`, counted over all dims of t but the last `keep`. */
static inline int64_t ik_row_offset(const ik_tensor *t, int64_t row, int32_t keep)
{
    int64_t offset = 0;
    for (int32_t i = t->ndim - keep - 1; i >= 0; i--) {
        offset += row % t->shape[i] * t->strides[i];
        row /= t->shape[i];
    }
    return offset;
}

static inline int64_t ik_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ik_max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
