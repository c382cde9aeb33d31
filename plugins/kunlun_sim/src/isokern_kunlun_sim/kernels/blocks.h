/* Block-quantised types in local memory: unpacking blocks and other weights to F32, and quantising floats to blocks.
 *
 * A tensor of blocks is walked in blocks: its geometry counts blocks, and its element size is the bytes of a block. */
#ifndef IK_XPU_BLOCKS_H
#define IK_XPU_BLOCKS_H
#include "move.h"

#include "isokern_blocks.h"

enum { IK_BLOCK_BATCH = 32 }; /* blocks that are quantised at a time: they fill whole lines for each type */

/* The fields of a block, which lie at even addresses. */
static inline __device__ float ik_block_scale(const char *block)
{ return ik_f16_to_f32(*(const unsigned short *)block); }
static inline __device__ float ik_block_minimum(const char *block)
{ return ik_f16_to_f32(((const unsigned short *)block)[1]); }
static inline __device__ const unsigned char *ik_block_quants(int dtype, const char *block)
{ return (const unsigned char *)block + (dtype == IK_Q4_1 ? 4 : 2); }

/* Unpack a block that is only decoded, which `to` may overlap. */
template <class Of>
static inline __device__ void ik_unpack_layout(const char *block, int elements, int bytes, float *to, Of of)
{
    unsigned char own[320]; /* those of Q8_K are 292 */
    for (int i = 0; i < bytes; i++)
        own[i] = (unsigned char)block[i];
    for (int i = 0; i < elements; i++)
        to[i] = of(own, i);
}

/* Unpack a block's elements, front to back, so that the block may be the last bytes of the memory it is unpacked to. */
static inline __device__ void ik_unpack_block(int dtype, const char *block, float *to)
{
    switch (dtype) {
#define IK_CASE(name, elements, bytes, lowest) \
    case IK_##name: \
        ik_unpack_layout(block, elements, bytes, to, [](ik_block_bytes of, int i) { return ik_of_##name(of, i); }); \
        return;
        IK_LAYOUTS(IK_CASE)
#undef IK_CASE
    }
    const float d = ik_block_scale(block), m = dtype == IK_Q4_1 ? ik_block_minimum(block) : 0;
    const unsigned char *q = ik_block_quants(dtype, block);
    switch (dtype) {
    case IK_Q8_0:
        for (int i = 0; i < IK_BLOCK; i++)
            to[i] = (float)(signed char)q[i] * d;
        return;
    case IK_Q4_1:
        for (int i = 0; i < IK_BLOCK / 2; i++) {
            const int both = q[i];
            to[i] = (float)(both & 15) * d + m;
            to[i + IK_BLOCK / 2] = (float)(both >> 4) * d + m;
        }
        return;
    default:
        for (int i = 0; i < IK_BLOCK / 2; i++) {
            const int both = q[i];
            to[i] = (float)((both & 15) - 8) * d;
            to[i + IK_BLOCK / 2] = (float)((both >> 4) - 8) * d;
        }
    }
}

/* The counterparts of ik_narrow_end and ik_widen_f32 for n weights: they lie at the far end of their tile before they
 * become floats. */
static inline __device__ char *ik_weights_end(int dtype, float *tile, int n)
{ return (char *)(tile + n) - ik_bytes(dtype, n); }

static inline __device__ void ik_widen_weights(int dtype, float *tile, int n)
{
    if (ik_block_elements(dtype) == 1) {
        ik_widen_f32(dtype, tile, n);
        return;
    }
    const char *from = ik_weights_end(dtype, tile, n);
    const int block = ik_block_elements(dtype);
    for (int i = 0; i < n; i += block)
        ik_unpack_block(dtype, from + ik_bytes(dtype, i), tile + i);
}

/* Fetch a run of n weights to local memory; mfence() completes it. Blocks are contiguous; `offset` counts elements. */
static inline __device__ void ik_fetch_weights(
    int dtype, __global_ptr__ const char *base, long long offset, long long stride, int n, char *to)
{
    const int size = ik_itemsize(dtype);
    if (ik_block_elements(dtype) == 1)
        ik_fetch_run(base + offset * size, stride, n, size, to);
    else
        GM2LM_ASYNC(base + ik_bytes(dtype, offset), to, (int)ik_bytes(dtype, n));
}

/* The largest or least element of a block; NaN if one is NaN. */
template <class Of>
static inline __device__ float ik_of_block(const float *x, Of of)
{
    float found = x[0];
    for (int i = 1; i < IK_BLOCK; i++)
        found = of(found, x[i]);
    return found;
}

static inline __device__ void ik_pack_nibbles(const float *x, float low, float inverse, float up, unsigned char *q)
{
    for (int i = 0; i < IK_BLOCK / 2; i++) {
        const unsigned a = ik_block_nibble((x[i] - low) * inverse + up),
                       b = ik_block_nibble((x[i + IK_BLOCK / 2] - low) * inverse + up);
        q[i] = (unsigned char)(a | b << 4);
    }
}

/* Quantise a block. NaN counts as the largest magnitude; of equal magnitudes the first is chosen. */
static inline __device__ void ik_pack_block(int dtype, const float *x, char *block)
{
    unsigned short *half = (unsigned short *)block;
    unsigned char *q = (unsigned char *)block + (dtype == IK_Q4_1 ? 4 : 2);
    switch (dtype) {
    case IK_Q5_0: ik_make_Q5_0((unsigned char *)block, x); return;
    case IK_Q5_1: ik_make_Q5_1((unsigned char *)block, x); return;
    case IK_MXFP4: ik_make_MXFP4((unsigned char *)block, x); return;
    case IK_TQ2_0: ik_make_TQ2_0((unsigned char *)block, x); return;
    case IK_TQ1_0: ik_make_TQ1_0((unsigned char *)block, x); return;
    case IK_Q8_K: ik_make_Q8_K((unsigned char *)block, x); return;
    }
    if (dtype == IK_Q4_1) {
        const float low = ik_of_block(x, [](float a, float b) { return ik_minimum_f32(a, b); }) + 0.0f; /* never -0 */
        const float high = ik_of_block(x, [](float a, float b) { return ik_maximum_f32(a, b); }) + 0.0f;
        const float d = (high - low) / 15.0f;
        half[0] = ik_block_half(d);
        half[1] = ik_block_half(low);
        ik_pack_nibbles(x, low, ik_block_inverse(d), 0.5f, q);
        return;
    }
    int largest = 0;
    for (int i = 1; i < IK_BLOCK && x[largest] == x[largest]; i++)
        if (!(ik_abs_f32(x[i]) <= ik_abs_f32(x[largest])))
            largest = i;
    const float d = dtype == IK_Q8_0 ? ik_abs_f32(x[largest]) / 127.0f : x[largest] / -8.0f,
                inverse = ik_block_inverse(d);
    half[0] = ik_block_half(d);
    if (dtype == IK_Q4_0)
        ik_pack_nibbles(x, 0, inverse, 8.5f, q);
    else
        for (int i = 0; i < IK_BLOCK; i++)
            q[i] = (unsigned char)ik_block_byte(x[i] * inverse);
}

/* Fetch the floats of blocks from `at` on of tensor 1, of a geometry in blocks, as F32; `step` is between neighbouring
 * elements. */
static inline __device__ void ik_fetch_floats(
    const ik_geometry &g, long long step, __global_ptr__ const char *x, long long at, int blocks, float *tile)
{
    const int size = ik_itemsize(g.dtype[1]), block = ik_block_elements(g.dtype[0]), n = blocks * block;
    char *to = ik_narrow_end(tile, n, 4, size);
    const long long next = g.strides[1][g.ndim - 1];
    for (ik_walk w(g, at, blocks); w.next();) {
        const int each = (int)(next == step * block ? w.run : 1); /* contiguous blocks that one copy can bring */
        for (int b = 0; b < w.run; b += each)
            ik_fetch_run(
                x + (w.offset(1) + b * next) * size, step, each * block, size, to + (w.done + b) * block * size);
    }
    mfence();
    ik_widen_f32(g.dtype[1], tile, n);
}

/* Quantise blocks [at, at + n) of x to y. `memory` has space for IK_BLOCK_BATCH blocks of 32 and their elements, or as
 * many elements in larger blocks. */
static inline __device__ void ik_quantize_tile(const ik_geometry &g, long long step, long long at, int n,
    __global_ptr__ char *y, __global_ptr__ const char *x, char *memory)
{
    float *tile = (float *)memory;
    char *out = memory + IK_BLOCK_BATCH * IK_BLOCK * 4;
    const int bytes = ik_itemsize(g.dtype[0]), block = ik_block_elements(g.dtype[0]);
    ik_fetch_floats(g, step, x, at, n, tile);
    for (int i = 0; i < n; i++)
        ik_pack_block(g.dtype[0], tile + i * block, out + i * bytes);
    ik_store(g, 0, y, at, n, out);
}

/* Quantise x to y for this core's tiles. */
static inline __device__ void ik_quantize(const ik_geometry &g, long long step, const ik_tiling &tiling,
    __global_ptr__ char *y, __global_ptr__ const char *x, char *memory)
{
    for (ik_tiles t(tiling); t.next();)
        ik_quantize_tile(g, step, t.at, t.n, y, x, memory);
}

/* Host: the geometry, counted in blocks, of y and x of one shape, one of which has blocks. Strides are in blocks for
 * that tensor and in elements for the other. */
static inline ik_geometry ik_geometry_in_blocks(const ik_tensor *y, const ik_tensor *x)
{
    const ik_tensor *of[2] = { y, x };
    ik_geometry g = {};
    g.ndim = y->ndim;
    g.tensors = 2;
    const int last = g.ndim - 1, block = (int)ik_max(ik_block_elements(y->dtype), ik_block_elements(x->dtype));
    for (int d = 0; d < g.ndim; d++)
        g.shape[d] = d == last ? y->shape[d] / block : y->shape[d];
    for (int t = 0; t < 2; t++) {
        g.dtype[t] = of[t]->dtype;
        const bool blocks = ik_block_elements(of[t]->dtype) > 1;
        for (int d = 0; d < last; d++)
            g.strides[t][d] = blocks ? of[t]->strides[d] / block : of[t]->strides[d];
        g.strides[t][last] = blocks ? 1 : of[t]->strides[last] * block;
    }
    ik_set_order(g);
    return g;
}

/* Host: the tiling of `blocks` blocks of `elements`; where there are many, no two cores share a line. */
static inline ik_tiling ik_blocks_tiling(const ik_xpu_stream *s, long long blocks, int elements = IK_BLOCK)
{
    const int batch = IK_BLOCK_BATCH * IK_BLOCK / elements;
    return { ik_max(0, blocks), ik_max(1, blocks), blocks < (long long)batch * IK_CORES * ik_clusters(s) ? 1 : batch,
        batch };
}
#endif
