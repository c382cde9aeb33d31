/* cache_update: y[b, positions[b] + i] = x[b, i], one item per element, or per block of 32 of them. y has the layout of
 * x, from position 0 on.
 *
 * A sequence that would pass the ends of y is skipped; a second entry writes the first such one to the error words. */
/* launch
 * let(unit=y.dtype.block, step=y.strides[1], spare=y.shape[1] - x.shape[1], own=x.numel // max(1, x.shape[0]))
 * let(still=tensor(y, x.shape, y.strides, y.offset))
 * cache_update(when=x.numel > 0, items=x.numel // unit, UNIT=unit, y=still, own=own // unit, step=step, spare=spare)
 * cache_update_check(when=positions.numel > 0, groups=1, local=64, y=None, x=None, spare=spare)
 */
#include "blocks.h"
#include "place.h"
#define IK_GIVEN IK_ELEMENT(positions)
#include "min.h"

IK_ENTRY(cache_update)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int dims = (int)p.y.ndim;
    const ik_i64 position = positions[p.positions.offset + IK_ITEM / (ik_index)p.own * p.positions.strides[0]];
    if (position < 0 || position > p.spare)
        return;
    const ik_place at = ik_place_of(p.y, p.x, dims, IK_ITEM * UNIT);
    const ik_index to = at.y + (ik_index)position * (ik_index)p.step;
#if UNIT > 1
    float v[UNIT];
    for (int k = 0; k < UNIT; k++)
        v[k] = IK_LOAD(x, at.x + k * p.x.strides[dims - 1]);
    IK_PASTE(ik_make_, IK_TYPE_y)(IK_BLOCK_AT(y, to), v);
#else
    IK_STORE(y, to, IK_LOAD(x, at.x));
#endif
}

IK_ENTRY(cache_update_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    report_outside(p.positions, positions, p.spare, places, error);
}
