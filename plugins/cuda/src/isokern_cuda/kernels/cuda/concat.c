/* concat of inputs that lie along memory: a thread moves 16 bytes, or as many as lines allow.
 *
 * A portable group moves an element a thread at a time, and asks for the next one when that has been written. */
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
