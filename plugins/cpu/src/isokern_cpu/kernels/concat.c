/* concat: every input is copied into its part of the output along the axis. */
#include "move.h"
#include "operators/concat.h"

IK_KERNEL(concat)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_CONCAT_Y];
    const ik_concat_attrs *attrs = plan->attrs;
    int64_t axis = attrs->axis + (attrs->axis < 0 ? y->ndim : 0), size = ik_itemsize(y->dtype);
    char *to = ik_ptr(plan, data, IK_CONCAT_Y);
    for (uint32_t i = IK_CONCAT_X; i < plan->tensor_count; i++) {
        const ik_tensor *x = &plan->tensors[i];
        if (ik_numel(x) == 0)
            continue;
        ik_block block = ik_block_of(size, x->ndim, x->shape, to, y->strides, ik_ptr(plan, data, i), x->strides);
        ik_move(&block);
        to += x->shape[axis] * y->strides[axis] * size;
    }
    return IK_SUCCESS;
}
