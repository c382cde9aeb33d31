/* cast between F32, F16 and BF16 whose last dim is dense, or repeats one element: an item takes a run of 8,192
 * elements.
 *
 * 16 M elements on PoCL (2 cores, AVX-512), against lines of 4,096 in one item: 1.2 to 1.3 times as fast, by streaming
 * stores and conversion instructions. */
#define IK_ROW(a) (a)
#include "pointwise.h"

IK_ENTRY(cast)(IK_PARAMS) { ik_pointwise(IK_ARGUMENTS); }
