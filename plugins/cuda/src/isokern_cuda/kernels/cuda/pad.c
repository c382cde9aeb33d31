/* pad of lines that lie along memory: a thread writes 16 bytes of border or of x, or as many as both begin at.
 *
 * A portable group moves an element a thread at a time, and asks for the next one when that has been written. */
/* launch
 * let(order=[d for _, d in sorted([(-abs(s), d) for d, s in enumerate(y.strides)])], value=converted(attrs.value, y.dtype))
 * let(y=bits(y.permute(order)), x=bits(x.permute(order)), low=[attrs.low[d] for d in order])
 * let(whole=pack([y, x], 16) if y.ndim and y.strides[-1] == 1 and x.strides[-1] == 1 else 1)
 * let(takes=max([k for k in (1, 2, 4, 8, 16) if k == 1 or (k <= whole and not any([n % k for n in (low[-1], y.shape[-1], x.shape[-1])]))]))
 * refuse(when=y.numel == 0 or takes < 2, reason="a tensor does not lie along memory by packs")
 * pad_packs(items=y.numel // takes, EACH=takes, value=value, low=low)
 */
#include "packs.h"
#include "move.h"
#include "padded.h"

IK_ENTRY(pad_packs)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const padded at = place_of(p.y, p.x, p.low, (int)p.y.ndim, IK_ITEM * EACH);
    auto made = pack_of(y);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        made.v[e] = (IK_MOVED(y))p.value;
    put(y + at.y, at.inside ? get(x + at.x) : made);
}
