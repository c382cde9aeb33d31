/* concat of contiguous inputs: a thread moves 16 bytes, or as many as lines allow.
 *
 * A group of the portable kernel moves one element per thread at a time, and loads the next one only after it has
 * stored that. */
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
