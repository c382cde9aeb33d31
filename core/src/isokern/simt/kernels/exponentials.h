/* Sums of exponentials relative to a maximum, and of parts with different maxima. */
#ifndef IK_EXPONENTIALS_H
#define IK_EXPONENTIALS_H
#include "group.h"

/* Of a part of a row, its maximum and the sum of the exponentials below it. */
typedef struct {
    ik_c max_value;
    ik_sum sum;
} ik_exp_part;

/* Rescale the sum of a part to the maximum of the row. A part that is all -Inf (its sum is NaN) is ignored where other
 * parts are not. */
static IK_INLINE ik_c ik_exp_rescale(ik_c max_value, ik_c sum, ik_c whole)
{ return max_value == whole ? sum : max_value == IK_LOWEST ? 0 : sum * IK_FN(exp)(max_value - whole); }
#endif
