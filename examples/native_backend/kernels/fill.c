/* fill: one value everywhere. */
#include "tensors.h"

#include "operators/fill.h"

IK_SUPPORTED(fill) { return only_f32(plan); }

IK_KERNEL(fill)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_FILL_Y];
    const ik_fill_attrs *attrs = plan->attrs;
    float *to = (float *)first_of(plan, data, IK_FILL_Y);
    for (int64_t i = 0; i < count_elements(y, 0, y->ndim); i++)
        to[offset_of(y, 0, y->ndim, i)] = (float)attrs->value;
    return IK_SUCCESS;
}
