/* concat of inputs that lie along memory: a thread moves 16 bytes, or as many as lines allow.
 *
 * A portable group moves an element a thread at a time, and asks for the next one when that has been written. */
/* launch
 * tensors(y, *parts)
 * let(axis=attrs.axis % y.ndim)
 * let(starts=[sum([t.shape[axis] for t in parts[:i]]) for i in range(len(parts))])
 * let(places=[tensor(y, t.shape, y.strides, y.offset + s * y.strides[axis] if t.numel else 0) for s, t in zip(starts, parts)])
 * let(pairs=[coalesce([bits(to), bits(t)]) for to, t in zip(places, parts)])
 * let(takes=[pack(pair, 16) if pair[0].strides[-1] == 1 and pair[1].strides[-1] == 1 else 1 for pair in pairs])
 * refuse(when=min(takes) < 2, reason="an input does not lie along memory by packs")
 * concat_packs(each=x, when=x.numel > 0, y=pairs[index][0], x=pairs[index][1], items=ceil_div(x.numel, takes[index]), EACH=takes[index], numel=x.numel)
 */
#include "packs.h"
#include "move.h"

IK_ENTRY(concat_packs)(IK_PARAMS)
{
    const ik_index i = IK_ITEM * EACH;
    if (i >= p.numel)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, i);
    move(y + at.y, x + at.x, p.numel - i);
}
