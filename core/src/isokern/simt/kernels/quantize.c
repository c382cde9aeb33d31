/* quantize and dequantize: rows of floats to blocks, and back. An item quantises one block, or dequantises a few
 * adjacent elements. */
/* launch
 * quantize(when=op == "quantize", items=y.numel // y.dtype.block, ELEMENTS=y.dtype.block)
 * dequantize(when=op == "dequantize", items=y.numel // 4)
 */
#include "blocks.h"
#include "place.h"

IK_ENTRY(quantize)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_place at = ik_place_of(p.y, p.x, last + 1, IK_ITEM * ELEMENTS);
    float v[ELEMENTS];
    for (int k = 0; k < ELEMENTS; k++)
        v[k] = IK_LOAD(x, at.x + k * p.x.strides[last]);
    IK_PASTE(ik_make_, IK_TYPE_y)(y + (ik_i64)(at.y / ELEMENTS) * IK_SIZE_y, v);
}

IK_ENTRY(dequantize)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_place at = ik_place_of(p.y, p.x, last + 1, IK_ITEM * 4);
    for (int k = 0; k < 4; k++)
        IK_STORE(y, at.y + k * p.y.strides[last], IK_LOAD(x, at.x + k));
}
