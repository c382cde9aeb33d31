/* Includes IK_FILE, the file that includes this one, once for each of its IK_TYPES (F32 and F64 where it has no such
 * list), with IK_T as the type and IK_OF(name) as the name with the type's suffix. A part of a kernel has the types
 * that part_types.h leaves it. */
#include "part_types.h"
#define IK_EACH_F32 1
#define IK_EACH_F64 2
#define IK_EACH_I64 4
#define IK_EACH_U32 8
#define IK_EACH_U64 16
#ifndef IK_TYPES
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64)
#endif

#if IK_TYPES & IK_EACH_F32 && !defined(IK_NO_F32)
#define IK_T float
#define IK_OF(name) name##_f32
#include IK_FILE
#undef IK_T
#undef IK_OF
#endif
#if IK_TYPES & IK_EACH_F64 && !defined(IK_NO_F64)
#define IK_T double
#define IK_OF(name) name##_f64
#include IK_FILE
#undef IK_T
#undef IK_OF
#endif
#if IK_TYPES & IK_EACH_I64 && !defined(IK_NO_I64)
#define IK_T int64_t
#define IK_OF(name) name##_i64
#include IK_FILE
#undef IK_T
#undef IK_OF
#endif
#if IK_TYPES & IK_EACH_U32 && !defined(IK_NO_U32)
#define IK_T uint32_t
#define IK_OF(name) name##_u32
#include IK_FILE
#undef IK_T
#undef IK_OF
#endif
#if IK_TYPES & IK_EACH_U64 && !defined(IK_NO_U64)
#define IK_T uint64_t
#define IK_OF(name) name##_u64
#include IK_FILE
#undef IK_T
#undef IK_OF
#endif
#undef IK_FILE
#undef IK_TYPES
