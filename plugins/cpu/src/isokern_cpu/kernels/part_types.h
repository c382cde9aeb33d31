/* Generated functions of every type, one part of a kernel for integers, for F32 and for F64: a part leaves out those of the others. */
#ifndef IK_PART_TYPES_H
#define IK_PART_TYPES_H
#include "kernel.h"

#if !IK_IN_PART(0)
#define IK_NO_I64
#define IK_NO_U64
#endif
#if !IK_IN_PART(1)
#define IK_NO_F32
#endif
#if !IK_IN_PART(2)
#define IK_NO_F64
#endif

#endif
