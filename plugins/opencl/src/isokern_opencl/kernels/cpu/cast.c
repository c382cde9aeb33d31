/* cast between F32, F16 and BF16 whose last dim is dense, or one element for all: an item takes a run of 8,192 elements.
 *
 * 16 M elements on PoCL (2 cores, AVX-512), against lines of 4,096 in one item: 1.2 to 1.3 times, by streaming stores and conversions that are
 * instructions. */
/* launch
 * tensors(y, a)
 * let(d=max(1, y.shape[-1]), step=a.strides[-1])
 * refuse(when=any([t.dtype.compute.name != "F32" for t in (y, a)]), reason="only F32, F16 and BF16 go by tiles")
 * refuse(when=y.dtype == a.dtype, reason="nothing to convert")
 * refuse(when=d < 16, reason="the last dim is shorter than 16")
 * refuse(when=y.strides[-1] != 1 or step not in (0, 1), reason="a stride of the last dim is not 0 or 1")
 * let(rows=y.numel // d, taken=max(1, 8192 // d), parts=ceil_div(d, 8192), large=y.numel * y.dtype.itemsize >= 2097152)
 * cast(groups=ceil_div(rows, taken) * parts, local=1, rows=rows, taken=taken, parts=parts, stream=large, STEP_A=step)
 */
#define IK_ROW(a) (a)
#include "pointwise.h"

IK_ENTRY(cast)(IK_PARAMS)
{
    ik_pointwise(IK_ARGUMENTS);
}
