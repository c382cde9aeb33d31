/* Elementwise rows whose last dim is dense, or one element for all, in every tensor: an item takes a run of 8,192 elements.
 *
 * 16 M elements on PoCL (2 cores, AVX-512), against an item an element: add 2 to 3 times, tanh 4 times, sin 15 times, pow 20 times, a
 * broadcast row 20 times; in F16 20 times (add) and 3 times (tanh). */
/* launch
 * tensors(y, a, b, c)
 * let(d=max(1, y.shape[-1]), steps=[0 if t is None else t.strides[-1] for t in (y, a, b, c)])
 * refuse(when=d < 16, reason="the last dim is shorter than 16")
 * refuse(when=steps[0] != 1 or any([s not in (0, 1) for s in steps]), reason="a stride of the last dim is not 0 or 1")
 * let(rows=y.numel // d, taken=max(1, 8192 // d), parts=ceil_div(d, 8192), large=y.numel * y.dtype.itemsize >= 2097152)
 * elementwise(groups=ceil_div(rows, taken) * parts, local=1, rows=rows, taken=taken, parts=parts, stream=large, STEP_A=steps[1], STEP_B=steps[2], STEP_C=steps[3])
 */
#include "isokern_int.h"
#include "isokern_math.h"
#include "pointwise.h"

IK_ENTRY(elementwise)(IK_PARAMS)
{
    ik_pointwise(IK_ARGUMENTS);
}
