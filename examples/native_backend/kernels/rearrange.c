/* copy, rearrange, slice, flatten: y = x, element by element; their strides say the rest. */
#include "tensors.h"

#include "operators/rearrange.h"

IK_KERNEL(rearrange)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_REARRANGE_Y], *x = &plan->tensors[IK_REARRANGE_X];
    const size_t size = (size_t)ik_itemsize(y->dtype);
    char *to = first_of(plan, data, IK_REARRANGE_Y);
    const char *from = first_of(plan, data, IK_REARRANGE_X);
    for (int64_t i = 0; i < count_elements(y, 0, y->ndim); i++)
        memmove(
            to + offset_of(y, 0, y->ndim, i) * (int64_t)size, from + offset_of(x, 0, x->ndim, i) * (int64_t)size, size);
    return IK_SUCCESS;
}
