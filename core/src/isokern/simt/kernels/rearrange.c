/* copy, rearrange, slice, flatten: y = x element by element, since the strides already express the operator. Where x is
 * dense along another dim than y, squares of both go through local memory, so that both are accessed by whole lines. */
#include "simt.h"
#include "move.h"

IK_ENTRY(rearrange_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    ik_move_line(y + line.y, p.y.strides[last], x + line.x, p.x.strides[last], at.begin, at.end);
}

IK_ENTRY(rearrange_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, IK_ITEM);
    y[at.y] = x[at.x];
}

/* Of the last two dims, x is dense along the first and y along the second. A line of the square has one element more
 * than the square, so that neither direction hits the same bank of local memory repeatedly. */
IK_ENTRY(rearrange_squares)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(IK_ELEMENT(y), square, 32 * 33);
    enum { ACROSS = IK_GROUP < 32 ? IK_GROUP : 32 };
    const int c = (int)p.y.ndim - 1, r = c - 1;
    const ik_index across = (p.y.shape[c] + 31) / 32, down = (p.y.shape[r] + 31) / 32;
    const ik_index rest = IK_GROUP_ID / across, column = (IK_GROUP_ID - rest * across) * 32;
    const ik_index other = rest / down, row = (rest - other * down) * 32;
    const ik_place at = ik_place_of(p.y, p.x, r, other);
    const ik_index from = at.x + row * p.x.strides[r] + column * p.x.strides[c],
                   to = at.y + row * p.y.strides[r] + column * p.y.strides[c];
    const int height = p.y.shape[r] - row < 32 ? (int)(p.y.shape[r] - row) : 32,
              width = p.y.shape[c] - column < 32 ? (int)(p.y.shape[c] - column) : 32;
    for (int j = IK_LOCAL_ID / ACROSS; j < width; j += IK_GROUP / ACROSS)
        for (int i = (IK_LOCAL_ID & (ACROSS - 1)); i < height; i += ACROSS)
            square[j * 33 + i] = x[from + j * p.x.strides[c] + i * p.x.strides[r]];
    IK_BARRIER();
    for (int i = IK_LOCAL_ID / ACROSS; i < height; i += IK_GROUP / ACROSS)
        for (int j = (IK_LOCAL_ID & (ACROSS - 1)); j < width; j += ACROSS)
            y[to + i * p.y.strides[r] + j * p.y.strides[c]] = square[j * 33 + i];
}
