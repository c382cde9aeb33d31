/* cache_update: y[b, positions[b] + i] = x[b, i], one item per element, or per block of 32 of them. y has the layout of
 * x, from position 0 on. paged_cache_update: y[p / s, p mod s] = x[b, 0] for p = positions[b], none where negative.
 *
 * A sequence that would pass the ends of y is skipped; a second entry writes the first such one to the error words. */
#include "blocks.h"
#include "place.h"
#ifdef IK_OP_paged_cache_update
#define IK_LOWEST_GIVEN (-0x7fffffffffffffff - 1)
#endif
#define IK_GIVEN IK_ELEMENT(positions)
#include "min.h"

IK_ENTRY(cache_update)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int dims = (int)p.y.ndim;
    const ik_index sequence = IK_ITEM / (ik_index)p.own;
    const ik_i64 position = positions[p.positions.offset + sequence * p.positions.strides[0]];
    if (position < 0 || position > p.spare)
        return;
    const ik_place at = ik_place_of(p.y, p.x, dims, IK_ITEM * UNIT);
#ifdef IK_OP_paged_cache_update
    const ik_index page = (ik_index)position / (ik_index)p.rows, row = (ik_index)position - page * (ik_index)p.rows,
                   to = at.y + page * (ik_index)p.page + row * (ik_index)p.step;
#else
    const ik_index to = at.y + (ik_index)position * (ik_index)p.step;
#endif
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
