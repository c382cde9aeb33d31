/* batch_norm of [c, *rest] whose last dim is contiguous: a thread takes 16 bytes of one channel, in one load and one
 * store.
 *
 * A group of the portable kernel moves one element per thread at a time; an item of it divides and takes a root for
 * each element. */
/* launch
 * let(takes=16 // y.dtype.itemsize)
 * refuse(when=y.numel == 0 or x.strides[-1] != 1, reason="planes do not lie along memory")
 * refuse(when=pack([y, x], 16) != takes, reason="planes do not lie along memory by packs")
 * batch_norm(items=y.numel // takes, EACH=takes, rest=prod(y.shape[1:]))
 */
#include "packs.h"
#include "channels.h"
#include "place.h"

IK_ENTRY(batch_norm)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index i = IK_ITEM * EACH, c = i / (ik_index)p.rest;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, i);
    const auto given = get(x + at.x);
    const ik_c shift = CHANNEL(mean, c), factor = FACTOR(c), after = BIAS(c);
    auto made = pack_of(y);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        STORE_OF(y, made, e, (LOAD_OF(x, given, e) - shift) * factor + after);
    put(y + at.y, made);
}
