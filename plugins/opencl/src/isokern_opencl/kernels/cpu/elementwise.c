/* Elementwise operators where the last dim of every tensor is dense, or repeats one element: an item takes a run of
 * 8,192 elements.
 *
 * 16 M elements on PoCL (2 cores, AVX-512), against an item per element: add 2 to 3 times as fast, tanh 4 times, sin 15
 * times, pow 20 times, a broadcast row 20 times; in F16 20 times (add) and 3 times (tanh). */
#include "isokern_int.h"
#include "isokern_math.h"
#include "pointwise.h"

IK_ENTRY(elementwise)(IK_PARAMS) { ik_pointwise(IK_ARGUMENTS); }
