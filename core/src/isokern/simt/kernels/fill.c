/* fill: write one value, converted by the host, to every element. */
/* launch
 * let(value=convert_bits(attrs.value, y.dtype, attrs.offset), y=bits(y))
 * let(lines=y.shape[-1] * 2 >= min(64, device.group))
 * fill_lines(when=lines and y.numel > 0, groups=pieces(y), local=256, value=value)
 * fill_elements(when=not lines, items=y.numel, value=value)
 */
#include "simt.h"
#include "move.h"

IK_ENTRY(fill_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    ik_fill_line(
        y + ik_place_of(p.y, p.y, last, at.line).y, p.y.strides[last], (IK_ELEMENT(y))p.value, at.begin, at.end);
}

IK_ENTRY(fill_elements)(IK_PARAMS)
{
    if (IK_ITEM < p.items)
        y[ik_offset(p.y, IK_ITEM)] = (IK_ELEMENT(y))p.value;
}
