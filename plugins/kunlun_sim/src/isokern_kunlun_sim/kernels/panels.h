/* How a core brings its share of panels from device memory to shared memory, as values of the compute type. */
#ifndef IK_XPU_PANELS_H
#define IK_XPU_PANELS_H
#include "blocks.h"

enum { IK_BUFFER_BYTES = 2048 }; /* for data on its way to or from memory */

/* Whether memory holds the values in the compute type. */
static inline __device__ bool ik_plain(int dtype, const float *) { return dtype == IK_F32; }
static inline __device__ bool ik_plain(int dtype, const unsigned *) { return dtype == IK_I32 || dtype == IK_U32; }
static inline __device__ bool ik_plain(int, const unsigned long long *) { return true; }

template <class T, class From>
static inline __device__ void ik_unpack_as(const From *from, int step, int n, __shared_ptr__ T *to, int to_step)
{
    for (int i = 0; i < n; i++)
        to[i * to_step] = (T)from[i * step];
}

/* `step` is the first element's position in the first block. */
static inline __device__ void ik_unpack_blocks(
    int dtype, const char *from, int step, int n, __shared_ptr__ float *to, int to_step)
{
    switch (dtype) {
#define IK_CASE(name, elements, bytes, lowest) \
    case IK_##name: \
        for (int i = 0; i < n; i++) \
            to[i * to_step] = ik_load_##name((ik_block_bytes)from, step + i); \
        return;
        IK_LAYOUTS(IK_CASE)
#undef IK_CASE
    }
    float block[IK_BLOCK];
    for (int i = 0; i < n; i++) {
        const int at = (step + i) % IK_BLOCK;
        if (i == 0 || at == 0)
            ik_unpack_block(dtype, from + ik_bytes(dtype, step + i), block);
        to[i * to_step] = block[at];
    }
}

static inline __device__ void ik_unpack(
    int dtype, const char *from, int step, int n, __shared_ptr__ float *to, int to_step)
{
    switch (dtype) {
#define IK_CASE(code, name, type) \
    case code: \
        for (int i = 0; i < n; i++) \
            to[i * to_step] = ik_##name##_to_f32(((const type *)from)[i * step]); \
        return;
        IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    default:
        if (ik_is_blocks(dtype))
            ik_unpack_blocks(dtype, from, step, n, to, to_step);
        else
            ik_unpack_as((const float *)from, step, n, to, to_step);
    }
}

static inline __device__ void ik_unpack(
    int dtype, const char *from, int step, int n, __shared_ptr__ unsigned *to, int to_step)
{
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: ik_unpack_as((const type *)from, step, n, to, to_step); return;
        IK_NARROW_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    }
}

static inline __device__ void ik_unpack(
    int, const char *from, int step, int n, __shared_ptr__ unsigned long long *to, int to_step)
{ ik_unpack_as((const unsigned long long *)from, step, n, to, to_step); }

/* Brings runs of elements into shared memory. Values that need no conversion or reordering are copied there; all others
 * go through local memory, as many runs as fit there for one fence. */
template <class T>
struct ik_stager {
    enum { RUNS = 16 };
    __shared_ptr__ T *shared;
    char *buffer; /* IK_BUFFER_BYTES of local memory */
    int dtype, size; /* of the elements in memory */
    int used = 0, count = 0; /* bytes and runs in the buffer */
    /* One core brings a whole panel: it goes through local memory, because a direct copy to shared memory by one core
     * is at risk on KUNLUN3. */
    bool alone = false;
    /* In the buffer: n elements, `step` apart, from byte `at` on. In shared memory: `to_step` apart from `to` on. */
    struct run {
        int at, step, n, to, to_step;
    } runs[RUNS];

    __device__ ik_stager(__shared_ptr__ char *panels, char *local, int of)
        : shared((__shared_ptr__ T *)panels), buffer(local), dtype(of), size(ik_itemsize(of))
    {
    }

    /* Convert what is in the buffer to where it belongs. */
    __device__ void flush()
    {
        if (count == 0)
            return;
        mfence_lm();
        for (int i = 0; i < count; i++) {
            const run &r = runs[i];
            ik_unpack(dtype, buffer + r.at, r.step, r.n, shared + r.to, r.to_step);
        }
        used = count = 0;
    }

    /* Set the dtype of the runs that follow. */
    __device__ void set_dtype(int of)
    {
        if (of == dtype)
            return;
        flush();
        dtype = of;
        size = ik_itemsize(of);
    }

    __device__ void zero(int n, int to, int to_step)
    {
        for (int i = 0; i < n; i++)
            shared[to + i * to_step] = 0;
    }

    /* Bring n elements, `stride` apart, starting at `from`. */
    __device__ void bring(__global_ptr__ const char *from, long long stride, int n, int to, int to_step)
    {
        if (!alone && stride == 1 && to_step == 1 && ik_plain(dtype, (const T *)nullptr)) {
            GM2SM_ASYNC(from, shared + to, n * size);
            return;
        }
        /* One copy brings the gaps, too. */
        const bool spans = stride * size >= -IK_LINE / 2 && stride * size <= IK_LINE / 2;
        const bool backwards = spans && stride < 0;
        const int step = !spans ? 1 : (int)(backwards ? -stride : stride);
        while (n > 0) {
            const int space = (IK_BUFFER_BYTES - used) / size;
            if (space == 0 || count == RUNS) {
                flush();
                continue;
            }
            const int m = step == 0 ? n : (int)ik_min(n, (space - 1) / step + 1), length = step * (m - 1) + 1;
            if (spans)
                GM2LM_ASYNC(backwards ? from + (m - 1) * stride * size : from, buffer + used, length * size);
            else
                ik_fetch_run(from, stride, m, size, buffer + used);
            runs[count++] = { backwards ? used + (length - 1) * size : used, backwards ? -step : step, m, to, to_step };
            used += length * size;
            from += m * stride * size;
            to += m * to_step;
            n -= m;
        }
    }

    /* Bring n weights of the row that begins at `row`, from its element `at` on: of blocks, or as `bring` does. */
    __device__ void bring_weights(
        __global_ptr__ const char *base, long long row, long long at, long long stride, int n, int to, int to_step)
    {
        if (ik_block_elements(dtype) == 1) {
            bring(base + (row + at * stride) * size, stride, n, to, to_step);
            return;
        }
        const int block = ik_block_elements(dtype);
        while (n > 0) {
            const int place = (int)(at % block), space = (IK_BUFFER_BYTES - used) / size * block - place;
            if (space <= 0 || count == RUNS) {
                flush();
                continue;
            }
            const int m = (int)ik_min(n, space), bytes = (int)ik_ceil_div(place + m, block) * size;
            GM2LM_ASYNC(base + ik_bytes(dtype, row + at - place), buffer + used, bytes);
            runs[count++] = { used, place, m, to, to_step };
            used += bytes;
            at += m;
            to += m * to_step;
            n -= m;
        }
    }
};
#endif
