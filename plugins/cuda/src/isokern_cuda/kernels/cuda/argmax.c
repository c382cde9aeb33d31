/* argmax of contiguous rows, by 16 bytes per thread: LANES threads per output, which are part of a warp or a whole
 * block. Where that is too few blocks, each computes a part, which the workspace holds as [part][output], and a second
 * launch joins these.
 *
 * A block of the portable kernel reads one element per thread at a time, and waits at barriers for each output. */
#include "packs.h"
#include "best.h"

IK_ENTRY(argmax)(IK_PARAMS)
{
#if LANES > 32
    IK_LOCAL_ARRAY(ik_c, values, IK_GROUP);
    IK_LOCAL_ARRAY(ik_i64, places, IK_GROUP);
#endif
    const int last = (int)p.x.ndim - 1;
    const ik_index task = (IK_GROUP_ID * IK_GROUP + IK_LOCAL_ID) / LANES, outputs = (ik_index)p.outputs,
                   d = p.x.shape[last];
    const ik_index part = PARTS ? task / outputs : 0, output = task - part * outputs, lane = IK_LOCAL_ID % LANES;
    const ik_index begin = part * (ik_index)p.length, left = d - begin < p.length ? d - begin : (ik_index)p.length;
    const ik_index first = begin + lane * EACH, end = output < outputs ? begin + left : begin;
    const auto *const from = x + p.x.offset + ik_offset_within(p.x, 0, last, output);
    best b = best_of(0, -1);
    if (first < end) {
        ik_c max_value = IK_PASTE(ik_load_, IK_TYPE_x)(from, first);
        ik_index at = first;
#pragma unroll 2
        for (ik_index i = first; i < end; i += LANES * EACH) {
            const auto some = get(from + i);
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const ik_c v = LOAD_OF(x, some, e);
                /* Places ascend, so equal elements change nothing. */
                if (v > max_value || (v != v && max_value == max_value)) {
                    max_value = v;
                    at = i + e;
                }
            }
        }
        b = best_of(max_value, at);
    }
#if LANES > 32
    b = group_best(b, values, places);
#else
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        b = better(b, best_of(IK_SHUFFLE_DOWN(b.value, apart), IK_SHUFFLE_DOWN(b.at, apart)));
#endif
    if (lane == 0 && output < outputs)
#if PARTS
        ((best *)workspace)[part * outputs + output] = b;
#else
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, last, output), b.at);
#endif
}
