/* copy, rearrange, slice, flatten: y = x element by element; the strides already express the rearrangement. */
#include "move.h"
#include "operators/rearrange.h"

IK_KERNEL(rearrange)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_REARRANGE_Y], *x = &plan->tensors[IK_REARRANGE_X];
    ik_block block = ik_block_of(ik_itemsize(y->dtype), y->ndim, y->shape, ik_ptr(plan, data, IK_REARRANGE_Y),
        y->strides, ik_ptr(plan, data, IK_REARRANGE_X), x->strides);
    ik_move(&block);
    return IK_SUCCESS;
}
