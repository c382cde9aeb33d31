/* fill: one value everywhere, converted as cast does. */
#include "cast.h"
#include "move.h"
#include "operators/fill.h"

IK_KERNEL(fill)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_FILL_Y];
    const ik_fill_attrs *attrs = plan->attrs;
    const int64_t still[IK_MAX_RANK] = { 0 };
    uint64_t bits;
    ik_convert_sum(attrs->value, attrs->offset, y->dtype, &bits);
    const char *value = (const char *)&bits; /* of a little-endian machine: the low bytes are first */
    ik_block block =
        ik_block_of(ik_itemsize(y->dtype), y->ndim, y->shape, ik_ptr(plan, data, IK_FILL_Y), y->strides, value, still);
    ik_move(&block);
    return IK_SUCCESS;
}
