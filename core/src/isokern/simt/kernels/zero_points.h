/* The rests of the zero points of matmul_integer: what is left of them where SHIFT_A and SHIFT_B have been subtracted
 * from the numbers of a and b; SIGNED_A and SIGNED_B say that those are I8. */
#ifndef IK_ZERO_POINTS_H
#define IK_ZERO_POINTS_H
#include "simt.h"

#define IK_ZERO(zero, at, has_sign) (has_sign ? (ik_i32)(ik_i8)(zero)[at] : (ik_i32)(zero)[at])

#ifdef IK_HAS_a_zero
#define IK_REST_A(row) \
    ((ik_u32)(IK_ZERO(a_zero, p.a_zero.offset + (row) * p.a_zero.strides[p.a_zero.ndim - 2], SIGNED_A) - (SHIFT_A)))
#else
#define IK_REST_A(row) ((ik_u32)(-(SHIFT_A)))
#endif
#ifdef IK_HAS_b_zero
#define IK_REST_B(col) ((ik_u32)(IK_ZERO(b_zero, p.b_zero.offset + (col) * p.b_zero.strides[0], SIGNED_B) - (SHIFT_B)))
#else
#define IK_REST_B(col) ((ik_u32)(-(SHIFT_B)))
#endif
#endif
