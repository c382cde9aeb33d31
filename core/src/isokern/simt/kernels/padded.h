/* Maps elements of y to elements of x, which lies in y with a border around it. */
#ifndef IK_PADDED_H
#define IK_PADDED_H
#include "simt.h"

/* Element i of y over the first `dims` dims: its offset in y, and its offset in x, which is meaningless where `inside`
 * is 0. */
typedef struct {
    ik_index y, x;
    int inside;
} padded;

static IK_INLINE padded place_of(
    IK_RECORD(ik_tensor) y, IK_RECORD(ik_tensor) x, IK_RECORD(ik_ints) low, int dims, ik_index i)
{
    padded at = { y.offset, x.offset, 1 };
    for (int d = dims - 1; d >= 0; d--) {
        const ik_index rest = i / y.shape[d], k = i - rest * y.shape[d], inner = k - (ik_index)low.v[d];
        at.y += k * y.strides[d];
        at.x += inner * x.strides[d];
        at.inside &= inner >= 0 && inner < x.shape[d];
        i = rest;
    }
    return at;
}
#endif
