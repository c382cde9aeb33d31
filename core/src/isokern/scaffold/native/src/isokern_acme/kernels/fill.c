/* fill: one value everywhere, converted as cast does. */
#include "elements.h"
#include "isokern_cast.h"
#include "operators/fill.h"

IK_KERNEL(fill)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_FILL_Y];
    const ik_fill_attrs *attrs = plan->attrs;
    const int64_t size = ik_itemsize(y->dtype), count = count_elements(y, 0, y->ndim);
    char *to = first_of(plan, data, IK_FILL_Y);
    uint64_t value;
    ik_convert_sum(attrs->value, attrs->offset, y->dtype, &value);
    for (int64_t i = 0; i < count; i++)
        memcpy(to + offset_of(y, 0, y->ndim, i) * size, &value, (size_t)size);
    return IK_SUCCESS;
}
