/* The element types that the kernels take: those that isokern_convert.h converts, and the block types. */
#include "convert.h"

const char *ik_dtype_missing(int32_t dtype)
{
    switch (dtype) {
#define IK_CASE(code, ...) case code:
        IK_SMALL_FLOATS(IK_CASE)
        IK_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    case IK_F32:
    case IK_F64:
    case IK_BOOL: return NULL;
    default: return ik_is_blocks(dtype) ? NULL : "the kernels have no conversion for it";
    }
}
