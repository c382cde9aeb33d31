/* What all kernels share. Local memory is 8 KB a core, including the stack; a kernel's tiles use IK_LM_BYTES at
 * most. */
#ifndef IK_XPU_KERNEL_H
#define IK_XPU_KERNEL_H
#include "host.h"

#include "xpu/kernel/xtdk.h"

#define IK_INLINE __host__ __device__ inline __attribute__((always_inline))
#define IK_ROW static inline __device__
#define IK_VECTORISE
#ifdef __clang__ /* as XTDK's compiler is */
#define IK_UNROLL _Pragma("unroll")
#else
#define IK_UNROLL _Pragma("GCC unroll 8")
#endif
#define IK_NO_F64
#include "isokern_dtypes.h"
#include "isokern_half.h"
#include "isokern_int.h"
#include "isokern_math.h"

enum { IK_LM_BYTES = 6144, IK_LINE = 64, IK_CORES = 64, IK_MAX_TENSORS = 4, IK_GRAIN = 16 };

static inline __device__ long long ik_min(long long a, long long b) { return a < b ? a : b; }
static inline __device__ long long ik_max(long long a, long long b) { return a > b ? a : b; }
static inline __device__ long long ik_ceil_div(long long a, long long b) { return (a + b - 1) / b; }

/* The number of this core among the cores of all clusters, and how many there are. */
static inline __device__ int ik_flat_id() { return core_num() * cluster_id() + core_id(); }
static inline __device__ int ik_flat_count() { return core_num() * cluster_num(); }

/* Share number `id` of `count` of n elements, [begin, end); shares are whole units except the last. */
static inline __device__ void ik_share_of(
    long long n, long long unit, int id, int count, long long *begin, long long *end)
{
    const long long units = ik_ceil_div(n, unit), each = units / count, more = units % count;
    const long long first = id * each + ik_min(id, more);
    *begin = ik_min(n, first * unit);
    *end = ik_min(n, (first + each + (id < more ? 1 : 0)) * unit);
}

/* This core's share. */
static inline __device__ void ik_share(long long n, long long unit, long long *begin, long long *end)
{ ik_share_of(n, unit, ik_flat_id(), ik_flat_count(), begin, end); }

/* The granularity, in elements of `size` bytes, at which cores share n elements: lines where every core gets at least
 * one, so that no line is written by two cores; else 16 elements of a narrow type, because an idle core costs more than
 * a line that is written twice. */
static inline __host__ __device__ int ik_grain_of(long long n, int size, int cores)
{
    const int line = IK_LINE / size;
    return line > IK_GRAIN && n < (long long)line * cores ? IK_GRAIN : line;
}

/* This core's share, in units of ik_grain_of. */
static inline __device__ void ik_share_elements(long long n, int size, long long *begin, long long *end)
{ ik_share(n, ik_grain_of(n, size, ik_flat_count()), begin, end); }

/* Tensors as one kernel parameter: a shape that all share, and strides in elements for each. */
struct ik_geometry {
    long long shape[IK_MAX_RANK];
    long long strides[IK_MAX_TENSORS][IK_MAX_RANK];
    int dtype[IK_MAX_TENSORS];
    int ndim, tensors;
    int dense; /* bit t: tensor t's memory is in the order of the linear index */
    int still; /* bit t: tensor t is a single element */
};

/* Conversion between memory's types and the compute type, in place. A tile has space for n values of the compute type;
 * narrower values lie at its far end before they are widened, and at its beginning after they were narrowed. */
static inline __device__ char *ik_narrow_end(void *tile, int n, int width, int size)
{ return (char *)tile + (long long)n * (width - size); }

static inline __device__ void ik_widen_f32(int dtype, float *tile, int n)
{
    const char *from = ik_narrow_end(tile, n, 4, ik_itemsize(dtype));
    switch (dtype) {
#define IK_CASE(code, name, type) \
    case code: \
        for (int i = 0; i < n; i++) \
            tile[i] = ik_##name##_to_f32(((const type *)from)[i]); \
        return;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    case IK_BOOL:
        for (int i = 0; i < n; i++)
            tile[i] = ((const unsigned char *)from)[i] != 0 ? 1.0f : 0.0f;
        return;
    }
}

static inline __device__ void ik_narrow_f32(int dtype, float *tile, int n)
{
    switch (dtype) {
#define IK_CASE(code, name, type) \
    case code: \
        for (int i = 0; i < n; i++) \
            ((type *)tile)[i] = ik_f32_to_##name(tile[i]); \
        return;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    case IK_BOOL:
        for (int i = 0; i < n; i++)
            ((unsigned char *)tile)[i] = tile[i] != 0.0f;
        return;
    }
}

static inline __device__ void ik_widen_i64(int dtype, long long *tile, int n)
{
    const char *from = ik_narrow_end(tile, n, 8, ik_itemsize(dtype));
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: \
        for (int i = 0; i < n; i++) \
            tile[i] = ((const type *)from)[i]; \
        return;
        IK_NARROW_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    case IK_BOOL:
        for (int i = 0; i < n; i++)
            tile[i] = ((const unsigned char *)from)[i] != 0;
        return;
    }
}

static inline __device__ void ik_narrow_i64(int dtype, long long *tile, int n)
{
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: \
        for (int i = 0; i < n; i++) \
            ((type *)tile)[i] = (type)tile[i]; \
        return;
        IK_NARROW_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    case IK_BOOL:
        for (int i = 0; i < n; i++)
            ((unsigned char *)tile)[i] = tile[i] != 0;
        return;
    }
}

/* By the compute type, which is long long for integers; as unsigned, those of up to 32 bits are only narrowed. */
static inline __device__ void ik_widen(int dtype, float *tile, int n) { ik_widen_f32(dtype, tile, n); }
static inline __device__ void ik_narrow(int dtype, float *tile, int n) { ik_narrow_f32(dtype, tile, n); }

template <class T>
static inline __device__ void ik_widen(int dtype, T *tile, int n)
{ ik_widen_i64(dtype, (long long *)tile, n); }

template <class T>
static inline __device__ void ik_narrow(int dtype, T *tile, int n)
{ ik_narrow_i64(dtype, (long long *)tile, n); }

static inline __device__ void ik_narrow(int dtype, unsigned *tile, int n)
{
    for (int i = 0; i < n && ik_itemsize(dtype) == 1; i++)
        ((unsigned char *)tile)[i] = (unsigned char)tile[i];
    for (int i = 0; i < n && ik_itemsize(dtype) == 2; i++)
        ((unsigned short *)tile)[i] = (unsigned short)tile[i];
}

/* high + low += x, without loss (Knuth's TwoSum). */
static inline __device__ void ik_add(float *high, float *low, float x)
{
    const float sum = *high + x, part = sum - *high;
    *low += (*high - (sum - part)) + (x - part);
    *high = sum;
}

/* If the sum is not finite, `low` may be NaN and is ignored. */
static inline __device__ float ik_sum_of(float high, float low) { return low == low ? high + low : high; }

/* A walk over elements [at, at + n) of the linear index of `shape`, or of its first `dims` dims, as runs along the last
 * of them:
 *     for (ik_walk w(g, at, n); w.next();) with w.run elements from w.done on.
 * It has no pointer to GM, because those may not be members. */
struct ik_walk {
    const ik_geometry &g;
    const int dims;
    const long long n;
    long long index[IK_MAX_RANK], run = 0, done = 0; /* index: of the run's first element */

    inline __device__ ik_walk(const ik_geometry &of, long long at, long long elements, int of_dims = 0)
        : g(of), dims(of_dims != 0 ? of_dims : of.ndim), n(elements)
    {
        for (int d = dims - 1; d >= 0; d--) {
            index[d] = at % g.shape[d];
            at /= g.shape[d];
        }
    }

    inline __device__ bool next()
    {
        const int last = dims - 1;
        if (run != 0) {
            done += run;
            index[last] = 0;
            for (int d = last - 1; d >= 0 && ++index[d] == g.shape[d]; d--)
                index[d] = 0;
        }
        run = ik_min(n - done, g.shape[last] - index[last]);
        return run > 0;
    }

    /* The offset of the run's first element in a tensor. */
    inline __device__ long long offset(int tensor) const
    {
        long long sum = 0;
        for (int d = 0; d < dims; d++)
            sum += index[d] * g.strides[tensor][d];
        return sum;
    }
};

template <class T>
static inline __device__ void ik_set_as(T *to, T value, long long n)
{
    for (long long i = 0; i < n; i++)
        to[i] = value;
}

/* Repeat the first of n elements in local memory over all of them. */
static inline __device__ void ik_repeat(int size, char *to, long long n)
{
    switch (size) {
    case 1: ik_set_as((unsigned char *)to, *(unsigned char *)to, n); return;
    case 2: ik_set_as((unsigned short *)to, *(unsigned short *)to, n); return;
    case 4: ik_set_as((unsigned int *)to, *(unsigned int *)to, n); return;
    default: ik_set_as((unsigned long long *)to, *(unsigned long long *)to, n);
    }
}

/* Set n elements in local memory to the low bytes of `value`. */
static inline __device__ void ik_set(int size, char *to, unsigned long long value, long long n)
{
    switch (size) {
    case 1: ik_set_as((unsigned char *)to, (unsigned char)value, n); return;
    case 2: ik_set_as((unsigned short *)to, (unsigned short)value, n); return;
    case 4: ik_set_as((unsigned int *)to, (unsigned int)value, n); return;
    default: ik_set_as((unsigned long long *)to, value, n);
    }
}

/* Element `at` of indices in local memory: I64, I32 or U8. */
static inline __device__ long long ik_index_at(int dtype, const char *indices, int at)
{
    switch (dtype) {
    case IK_I64: return ((const long long *)indices)[at];
    case IK_I32: return ((const int *)indices)[at];
    default: return ((const unsigned char *)indices)[at];
    }
}

/* Element `at` of indices in global memory. */
static inline __device__ long long ik_fetch_index(int dtype, __global_ptr__ const char *indices, long long at)
{
    __local__ long long scratch;
    const int size = ik_itemsize(dtype);
    GM2LM(indices + at * size, (char *)&scratch, size);
    return ik_index_at(dtype, (const char *)&scratch, 0);
}

/* Fetch a run of n elements to local memory, contiguously; mfence() completes it. */
static inline __device__ void ik_fetch_run(__global_ptr__ const char *from, long long stride, int n, int size, char *to)
{
    if (stride == 1) {
        GM2LM_ASYNC(from, to, n * size);
    } else if (stride == 0) {
        GM2LM(from, to, size);
        ik_repeat(size, to, n);
    } else {
        for (int k = 0; k < n; k++)
            GM2LM_ASYNC(from + k * stride * size, to + k * size, size);
    }
}

/* Store a run of n elements from local memory; mfence() completes it. */
static inline __device__ void ik_store_run(const char *from, long long stride, int n, int size, __global_ptr__ char *to)
{
    if (stride == 1) {
        LM2GM_ASYNC(from, to, n * size);
    } else {
        for (int k = 0; k < n; k++)
            LM2GM_ASYNC(from + k * size, to + k * stride * size, size);
    }
}

/* Fetch elements [at, at + n) of a tensor to local memory, contiguously. A contiguous row is one copy, an element that
 * is repeated along a row is copied once, and all others are copied one by one. After a fence, ik_end_fetch must
 * follow. */
static inline __device__ void ik_start_fetch(
    const ik_geometry &g, int tensor, __global_ptr__ const char *base, long long at, int n, char *to)
{
    const int size = ik_itemsize(g.dtype[tensor]);
    if (g.dense >> tensor & 1) {
        GM2LM_ASYNC(base + at * size, to, n * size);
        return;
    }
    const long long stride = g.strides[tensor][g.ndim - 1];
    for (ik_walk w(g, at, n); w.next();)
        ik_fetch_run(base + w.offset(tensor) * size, stride == 0 ? 1 : stride, stride == 0 ? 1 : (int)w.run, size,
            to + w.done * size);
}

static inline __device__ void ik_end_fetch(const ik_geometry &g, int tensor, long long at, int n, char *to)
{
    const int size = ik_itemsize(g.dtype[tensor]);
    if (!(g.dense >> tensor & 1) && g.strides[tensor][g.ndim - 1] == 0)
        for (ik_walk w(g, at, n); w.next();)
            ik_repeat(size, to + w.done * size, w.run);
}

/* Start a fetch, fence, and end it. */
static inline __device__ void ik_fetch(
    const ik_geometry &g, int tensor, __global_ptr__ const char *base, long long at, int n, char *to)
{
    const int size = ik_itemsize(g.dtype[tensor]);
    if (g.dense >> tensor & 1) {
        GM2LM(base + at * size, to, n * size);
        return;
    }
    ik_start_fetch(g, tensor, base, at, n, to);
    mfence();
    ik_end_fetch(g, tensor, at, n, to);
}

/* Store elements [at, at + n) from local memory, where they have been fenced, to a tensor; mfence() completes it.
 * `dims` as in ik_walk. */
static inline __device__ void ik_start_store(
    const ik_geometry &g, int tensor, __global_ptr__ char *base, long long at, int n, const char *from, int dims = 0)
{
    const int size = ik_itemsize(g.dtype[tensor]);
    if (g.dense >> tensor & 1) {
        LM2GM_ASYNC(from, base + at * size, n * size);
        return;
    }
    const long long stride = g.strides[tensor][(dims != 0 ? dims : g.ndim) - 1];
    for (ik_walk w(g, at, n, dims); w.next();)
        ik_store_run(from + w.done * size, stride, (int)w.run, size, base + w.offset(tensor) * size);
}

/* The same between two fences: `from` may be reused when the function returns. */
static inline __device__ void ik_store(
    const ik_geometry &g, int tensor, __global_ptr__ char *base, long long at, int n, const char *from, int dims = 0)
{
    const int size = ik_itemsize(g.dtype[tensor]);
    mfence_lm();
    if (g.dense >> tensor & 1) {
        LM2GM(from, base + at * size, n * size);
        return;
    }
    ik_start_store(g, tensor, base, at, n, from, dims);
    mfence();
}

/* Host: set the flags that follow from the strides. */
static inline void ik_set_order(ik_geometry &g)
{
    g.dense = g.still = 0;
    for (int t = 0; t < g.tensors; t++) {
        long long expected = 1;
        bool dense = true, still = true;
        for (int d = g.ndim - 1; d >= 0; d--) {
            dense &= g.strides[t][d] == expected || g.shape[d] == 1;
            still &= g.strides[t][d] == 0 || g.shape[d] == 1;
            expected *= g.shape[d];
        }
        g.dense |= dense << t;
        g.still |= still << t;
    }
}

/* Host: the geometry of the first `count` tensors of a plan, all of the shape of the first. */
static inline ik_geometry ik_geometry_of(const ik_plan *plan, int count)
{
    ik_geometry g = {};
    g.ndim = plan->tensors[0].ndim;
    g.tensors = count;
    for (int d = 0; d < g.ndim; d++)
        g.shape[d] = plan->tensors[0].shape[d];
    for (int t = 0; t < count; t++) {
        g.dtype[t] = plan->tensors[t].dtype;
        for (int d = 0; d < g.ndim; d++)
            g.strides[t][d] = plan->tensors[t].strides[d];
    }
    ik_set_order(g);
    return g;
}

/* Host: the geometry of all tensors of a plan, all of the shape of the first. */
static inline ik_geometry ik_geometry_of(const ik_plan *plan) { return ik_geometry_of(plan, (int)plan->tensor_count); }

static inline long long ik_numel(const ik_tensor *t)
{
    long long n = 1;
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

/* Host: the address of element 0 of tensor i in device memory; null if the tensor is absent. */
static inline char *ik_ptr(const ik_plan *plan, void *const *data, uint32_t i)
{
    if (i >= plan->tensor_count || plan->tensors[i].dtype == IK_NONE)
        return nullptr;
    const ik_tensor *t = &plan->tensors[i];
    return static_cast<char *>(data[i]) + ik_bytes(t->dtype, t->offset);
}

/* Host: the device's cores. */
static inline int ik_all_cores(const ik_xpu_stream *s) { return IK_CORES * ik_clusters(s); }

/* Host: clusters worth starting for n elements of `size` bytes, as ik_share_elements shares them. */
static inline int ik_clusters_for(const ik_xpu_stream *s, long long n, int size)
{
    return static_cast<int>(
        ik_max(1, ik_min(ik_clusters(s), ik_ceil_div(n, IK_CORES * ik_grain_of(n, size, ik_all_cores(s))))));
}

/* Host: the entry for the width or the left side of a list of one integer, two (height, width) or four (top, left,
 * bottom, right). */
static inline long long ik_second(const ik_ints &list) { return list.v[list.count > 1 ? 1 : 0]; }
#endif
