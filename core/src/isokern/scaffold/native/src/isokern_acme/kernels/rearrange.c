/* copy, rearrange, slice, flatten, transpose: y = x, element by element; their strides say the rest. */
#include "elements.h"
#include "operators/rearrange.h"

IK_KERNEL(rearrange)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_REARRANGE_Y], *x = &plan->tensors[IK_REARRANGE_X];
    const int64_t size = ik_itemsize(y->dtype), count = count_elements(y, 0, y->ndim);
    char *to = first_of(plan, data, IK_REARRANGE_Y);
    const char *from = first_of(plan, data, IK_REARRANGE_X);
    for (int64_t i = 0; i < count; i++)
        memmove(to + offset_of(y, 0, y->ndim, i) * size, from + offset_of(x, 0, x->ndim, i) * size, (size_t)size);
    return IK_SUCCESS;
}
