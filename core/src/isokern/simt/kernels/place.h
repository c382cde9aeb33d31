/* Offsets of lines and elements in two tensors of one shape.
 *
 * A line is the last dim, and a group moves at most IK_PIECE elements of one: all lines take pieces(y) groups. Where
 * lines are too short for a group, an item moves an element. */
#ifndef IK_PLACE_H
#define IK_PLACE_H

typedef struct {
    ik_index y, x;
} ik_place;

/* Index i over the first `dims` dims, in row-major order, as offsets in y and x. */
static IK_INLINE ik_place ik_place_of(IK_RECORD(ik_tensor) y, IK_RECORD(ik_tensor) x, int dims, ik_index i)
{
    ik_place at = { y.offset, x.offset };
    for (int d = dims - 1; d >= 0; d--) {
        const ik_index rest = d > 0 ? i / y.shape[d] : 0, k = i - rest * y.shape[d];
        at.y += k * y.strides[d];
        at.x += k * x.strides[d];
        i = rest;
    }
    return at;
}

/* The piece of group `group` in lines of n elements: [begin, end) of line `line`. */
typedef struct {
    ik_index line, begin, end;
} ik_piece;

static IK_INLINE ik_piece ik_piece_of(ik_index n, ik_index group)
{
    const ik_index pieces = (n + IK_PIECE - 1) / IK_PIECE, line = group / pieces,
                   begin = (group - line * pieces) * IK_PIECE;
    const ik_piece piece = { line, begin, n - begin < IK_PIECE ? n : begin + IK_PIECE };
    return piece;
}
#endif
