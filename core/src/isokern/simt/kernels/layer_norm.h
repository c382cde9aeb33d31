/* The entry of layer_norm, group_norm and instance_norm: one work-group per row; one item per row where rows are short,
 * several groups per row where rows are few and long.
 *
 * PHASE 0 computes a row at once. Otherwise PHASE 1 leaves the sums and squared deviations of the row's parts in the
 * workspace, and PHASE 2 joins these (Chan, Golub & LeVeque 1979) and writes the parts, none of which is empty. */
#ifndef IK_LAYER_NORM_H
#define IK_LAYER_NORM_H
#include "group.h"

/* Which element of w and bias belongs to element i of a row: of layer_norm the same; of the others that of the channel,
 * which has p.inner elements. With SEGMENTS, all items of a row compute a channel before the next. */
#ifdef IK_OP_layer_norm
#define AFFINE(row, i) (i)
#define SEGMENTS 0
#define SEGMENT_END(at, end) (end)
#else
#define AFFINE(row, i) ((row) % (ik_index)p.group_count * (ik_index)p.channels + (i) / (ik_index)p.inner)
#define SEGMENTS (p.inner >= IK_LANES)
#define SEGMENT_END(at, end) (SEGMENTS ? segment_end(at, (ik_index)p.inner, end) : (end))
#endif

static IK_INLINE ik_index segment_end(ik_index at, ik_index inner, ik_index end)
{
    const ik_index next = (at / inner + 1) * inner;
    return next < end ? next : end;
}

typedef struct {
    ik_sum sum, squares; /* of the elements; of their squared deviations from the part's mean */
} part_stat;

IK_ENTRY(layer_norm)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], row = IK_TASK / p.parts, part = IK_TASK - row * p.parts;
    const ik_index begin = part * p.length, end = begin + p.length < d ? begin + p.length : d;
    ik_sum sum = ik_sum_none(), squares = ik_sum_none();
#if PHASE == 2
    IK_GLOBAL const part_stat *const stats = (IK_GLOBAL const part_stat *)workspace + row * p.parts;
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        sum = ik_sum_join(sum, stats[i].sum);
    sum = ik_group_sum(sum, scratch);
    const ik_c mean = ik_sum_value(sum) / (ik_c)d;
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES) {
        const ik_c count = (ik_c)((i + 1) * p.length < d ? p.length : d - i * p.length);
        const ik_c delta = ik_sum_value(stats[i].sum) / count - mean;
        squares = ik_sum_add(ik_sum_join(squares, stats[i].squares), delta * delta * count);
    }
#endif
    const ik_index from = ik_offset(p.x, row * d), step = p.x.strides[last]; /* not before the sums: fewer registers */
#if PHASE != 2
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        sum = ik_sum_add(sum, IK_LOAD(x, from + i * step));
    sum = ik_group_sum(sum, scratch);
    const ik_c mean = ik_sum_value(sum) / (ik_c)(end - begin);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES) {
        const ik_c v = IK_LOAD(x, from + i * step) - mean;
        squares = ik_sum_add(squares, v * v);
    }
#endif
    squares = ik_group_sum(squares, scratch);
#if PHASE == 1
    if (IK_LANE == 0) {
        IK_GLOBAL part_stat *const stat = (IK_GLOBAL part_stat *)workspace + IK_TASK;
        stat->sum = sum;
        stat->squares = squares;
    }
#else
    const ik_c factor = IK_FN(rsqrt)(ik_sum_value(squares) / (ik_c)d + p.attr_eps);
    const ik_index to = ik_offset(p.y, row * d);
    /* The elements of a channel have the same w and bias; where they are fewer than lanes, each looks up its own. */
    for (ik_index at = begin, stop; at < end; at = stop) {
        stop = SEGMENT_END(at, end);
#ifdef IK_HAS_w
        const ik_c scale = IK_LOAD(w, p.w.offset + AFFINE(row, at) * p.w.strides[(int)p.w.ndim - 1]);
#endif
#ifdef IK_HAS_bias
        const ik_c shift = IK_LOAD(bias, p.bias.offset + AFFINE(row, at) * p.bias.strides[(int)p.bias.ndim - 1]);
#endif
        for (ik_index i = at + IK_LANE; i < stop; i += IK_LANES) {
            ik_c v = (IK_LOAD(x, from + i * step) - mean) * factor;
#ifdef IK_HAS_w
            v *= SEGMENTS ? scale : IK_LOAD(w, p.w.offset + AFFINE(row, i) * p.w.strides[(int)p.w.ndim - 1]);
#endif
#ifdef IK_HAS_bias
            v +=
                SEGMENTS ? shift : IK_LOAD(bias, p.bias.offset + AFFINE(row, i) * p.bias.strides[(int)p.bias.ndim - 1]);
#endif
            IK_STORE(y, to + i * p.y.strides[last], v);
        }
    }
#endif
}
#endif
