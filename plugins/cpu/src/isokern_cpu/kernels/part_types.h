/* Generated functions of every type, for a kernel in three parts, for integers, F32 and F64: a part leaves out the
 * types of the others. */
#ifndef IK_PART_TYPES_H
#define IK_PART_TYPES_H
#include "kernel.h"

#if !IK_IN_PART(0)
#define IK_NO_I64
#define IK_NO_U32
#define IK_NO_U64
#endif
#if !IK_IN_PART(1)
#define IK_NO_F32
#endif
#if !IK_IN_PART(2)
#define IK_NO_F64
#endif

#endif
