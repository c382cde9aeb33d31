/* concat: every input moved into its part of the output along the axis, a launch an input. */
/* launch
 * tensors(y, *parts)
 * let(axis=attrs.axis % y.ndim)
 * let(starts=[sum([t.shape[axis] for t in parts[:i]]) for i in range(len(parts))])
 * let(places=[tensor(y, t.shape, y.strides, y.offset + s * y.strides[axis] if t.numel else 0) for s, t in zip(starts, parts)])
 * let(pairs=[coalesce([bits(to), bits(t)]) for to, t in zip(places, parts)])
 * let(lines=[to.shape[-1] * 2 >= min(64, device.group) for to, _ in pairs])
 * concat_lines(each=x, when=lines[index] and x.numel > 0, y=pairs[index][0], x=pairs[index][1], groups=pieces(pairs[index][0]), local=256)
 * concat_elements(each=x, when=not lines[index], y=pairs[index][0], x=pairs[index][1], items=pairs[index][0].numel)
 */
#include "simt.h"
#include "move.h"

IK_ENTRY(concat_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    ik_move_line(y + line.y, p.y.strides[last], x + line.x, p.x.strides[last], at.begin, at.end);
}

IK_ENTRY(concat_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, IK_ITEM);
    y[at.y] = x[at.x];
}
