/* rms_norm of rows that some threads or a block hold in registers: x is read once, by 16 bytes per thread
 * (held_rows.h). */
/* launch
 * launch_held_rows(entry="rms_norm")
 */
#include "held_rows.h"

IK_ENTRY(rms_norm)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.d, row = ROW;
    held_row held;
    held.read(x + p.x.offset + ik_offset_within(p.x, 0, last, row), row < p.rows ? d : 0);
    ik_sum sum = ik_sum_none();
    held.each([&](ik_c &v) { sum = ik_sum_add(sum, v * v); });
    sum = row_sum(sum, scratch);
    const ik_c factor = IK_FN(rsqrt)(ik_sum_value(sum) / (ik_c)d + p.attr_eps);
    held.each([&](ik_c &v) { v *= factor; });
#ifdef IK_HAS_w
    held.with(w + p.w.offset, [](ik_c &v, ik_c by) { v *= by; });
#endif
    held.write(y + p.y.offset + ik_offset_within(p.y, 0, last, row));
}
