/* Elements of tensors by a linear index. */
#include <stddef.h>
#include <string.h>

#include "isokern_dtypes.h"
#include "isokern_native.h"

static inline int64_t count_elements(const ik_tensor *t, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t d = from; d < to; d++)
        n *= t->shape[d];
    return n;
}

/* The offset, in elements, of element `index` of dims [from, to) in row-major order. */
static inline int64_t offset_of(const ik_tensor *t, int32_t from, int32_t to, int64_t index)
{
    int64_t offset = 0;
    for (int32_t d = to - 1; d >= from; d--) {
        offset += index % t->shape[d] * t->strides[d];
        index /= t->shape[d];
    }
    return offset;
}

/* Where element 0 of tensor i lies. */
static inline char *first_of(const ik_plan *plan, void *const *data, uint32_t i)
{ return (char *)data[i] + ik_bytes(plan->tensors[i].dtype, plan->tensors[i].offset); }

/* Why a plan is declined: null where all of its tensors are F32, or absent. */
static inline const char *only_f32(const ik_plan *plan)
{
    for (uint32_t i = 0; i < plan->tensor_count; i++)
        if (plan->tensors[i].dtype != IK_F32 && plan->tensors[i].dtype != IK_NONE)
            return "a dtype other than F32";
    return NULL;
}
