/* A number as an element of an integer type: for the attributes and identities of kernels that compute in long long. */
#ifndef IK_XPU_INTEGER_VALUE_H
#define IK_XPU_INTEGER_VALUE_H
#include "kernel.h"

#include "isokern_cast.h"

/* Host: a number converted to an integer type as cast does, as long long; of U64, its bits. 0 for other types. */
static inline long long ik_integer_of(double value, int dtype)
{
    unsigned long long bits = 0;
    ik_convert_value(value, dtype, &bits);
    switch (dtype) {
#define IK_CASE(code, type) \
    case code: return (type)bits;
        IK_NARROW_INTEGER_TYPES(IK_CASE)
#undef IK_CASE
    case IK_I64:
    case IK_U64: return (long long)bits;
    default: return 0;
    }
}
#endif
