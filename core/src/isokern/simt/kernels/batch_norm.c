/* batch_norm of [c, *rest]: y = (x - mean) * (w / sqrt(var + eps)) + bias, with mean, factor and bias by channel. One
 * work-group per piece of a run along the last dim, which needs its factor once; one item per element where runs are
 * short, or channels are adjacent in memory. */
/* launch
 * let(run=y.shape[-1], outer=prod(y.shape[1:-1]), channels_adjacent=abs(y.strides[0]) < abs(y.strides[-1]))
 * let(alone=channels_adjacent or run < 128, pieces=ceil_div(run, 4096))
 * batch_norm_items(when=alone, items=y.numel, rest=outer * run, channels_adjacent=channels_adjacent)
 * let(groups=y.shape[0] * outer * pieces)
 * batch_norm_runs(when=not alone, groups=groups, local=128, outer=outer, pieces=pieces, length=4096)
 */
#include "channels.h"

IK_ENTRY(batch_norm_items)(IK_PARAMS)
{
    const ik_index i = IK_ITEM;
    if (i >= p.items)
        return;
    const int rank = (int)p.y.ndim;
    const ik_index inner = p.channels_adjacent ? p.y.shape[0] : p.rest;
    const ik_index outside = i / inner, inside = i - outside * inner;
    const ik_index c = p.channels_adjacent ? inside : outside, rest = p.channels_adjacent ? outside : inside;
    const ik_index from = p.x.offset + c * p.x.strides[0] + ik_offset_within(p.x, 1, rank, rest);
    const ik_index to = p.y.offset + c * p.y.strides[0] + ik_offset_within(p.y, 1, rank, rest);
    IK_STORE(y, to, (IK_LOAD(x, from) - CHANNEL(mean, c)) * FACTOR(c) + BIAS(c));
}

IK_ENTRY(batch_norm_runs)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_index run = IK_GROUP_ID / p.pieces, begin = (IK_GROUP_ID - run * p.pieces) * p.length;
    const ik_index end = begin + p.length < p.y.shape[last] ? begin + p.length : p.y.shape[last];
    const ik_index c = run / p.outer, rest = run - c * p.outer;
    const ik_index from = p.x.offset + c * p.x.strides[0] + ik_offset_within(p.x, 1, last, rest);
    const ik_index to = p.y.offset + c * p.y.strides[0] + ik_offset_within(p.y, 1, last, rest);
    const ik_c shift = CHANNEL(mean, c), factor = FACTOR(c), after = BIAS(c);
    for (ik_index i = begin + IK_LOCAL_ID; i < end; i += IK_GROUP)
        IK_STORE(y, to + i * p.y.strides[last], (IK_LOAD(x, from + i * p.x.strides[last]) - shift) * factor + after);
}
