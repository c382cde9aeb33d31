/* Checking integers that only the device sees, such as indices: one cluster reads the list again and stores its first
 * wrong entry in the stream's error word, in whatever order the cores run. */
#ifndef IK_XPU_CHECKED_H
#define IK_XPU_CHECKED_H
#include "kernel.h"

enum { IK_PICK_BYTES = 2048 };

/* The rows from which an index picks one; a negative index counts from the end. */
struct ik_picked_rows {
    long long rows, step; /* step: elements from one row to the next */

    /* The row that an index names; -1 if it is out of range. */
    inline __device__ long long operator[](long long index) const
    {
        const long long row = index + (index < 0 ? rows : 0);
        return row < rows ? ik_max(row, -1) : -1;
    }
};

/* Check the n integers (I64, I32 or U8) of tensor 0 of g; wrong(value) says which are wrong. `picks` has IK_PICK_BYTES,
 * `found` an entry for each core. */
template <class Wrong>
static inline __device__ void ik_check(const ik_geometry &g, long long n, long long kind,
    __global_ptr__ ik_device_error *error, __global_ptr__ const char *list, char *picks,
    __shared_ptr__ ik_device_error *found, Wrong wrong)
{
    __local__ ik_device_error mine = {}, there;
    const int dtype = g.dtype[0], max_picks = IK_PICK_BYTES / ik_itemsize(dtype);
    long long begin, end;
    ik_share(n, IK_LINE / 4, &begin, &end);
    for (long long at = begin; at < end && mine.kind == 0; at += max_picks) {
        const int m = (int)ik_min(max_picks, end - at);
        ik_fetch(g, 0, list, at, m, picks);
        for (int i = 0; i < m && mine.kind == 0; i++)
            if (wrong(ik_index_at(dtype, picks, i)))
                mine = { kind, at + i, ik_index_at(dtype, picks, i) };
    }
    found[core_id()] = mine;
    mfence_sm();
    sync_cluster();
    if (core_id() != 0)
        return;
    GM2LM(error, &there, sizeof there);
    for (int i = 0; i < core_num() && there.kind == 0; i++)
        if (found[i].kind != 0) {
            there = found[i];
            mfence_lm();
            LM2GM(&there, error, sizeof there);
        }
}

/* Host: a tensor of integers as the geometry that ik_check reads. */
static inline ik_geometry ik_list_of(const ik_tensor *t)
{
    ik_geometry g = {};
    g.tensors = 1;
    g.dtype[0] = t->dtype;
    for (int d = 0; d < t->ndim; d++, g.ndim++) {
        g.shape[d] = t->shape[d];
        g.strides[0][d] = t->strides[d];
    }
    if (g.ndim == 0) {
        g.ndim = 1;
        g.shape[0] = 1;
    }
    ik_set_order(g);
    return g;
}
#endif
