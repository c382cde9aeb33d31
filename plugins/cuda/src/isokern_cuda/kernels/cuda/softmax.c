/* softmax and log_softmax of rows that some threads or a block hold in registers: x is read once, by 16 bytes per
 * thread (held_rows.h). */
/* launch
 * launch_held_rows(entry="softmax")
 */
#include "held_rows.h"

IK_ENTRY(softmax)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.d, row = ROW;
    held_row held;
    held.read(x + p.x.offset + ik_offset_within(p.x, 0, last, row), row < p.rows ? d : 0);
    ik_c row_max = IK_LOWEST;
    ik_sum sum = ik_sum_none();
    held.each([&](ik_c &v) { row_max = IK_FN(maximum)(row_max, v); });
    row_max = row_maximum(row_max, scratch);
#ifdef IK_OP_log_softmax
    held.each([&](ik_c &v) {
        v -= row_max;
        sum = ik_sum_add(sum, IK_FN(exp)(v));
    });
    const ik_c less = IK_FN(log)(ik_sum_value(row_sum(sum, scratch)));
    held.each([&](ik_c &v) { v -= less; });
#else
    held.each([&](ik_c &v) {
        v = IK_FN(exp)(v - row_max);
        sum = ik_sum_add(sum, v);
    });
    const ik_c share = 1 / ik_sum_value(row_sum(sum, scratch));
    held.each([&](ik_c &v) { v *= share; });
#endif
    held.write(y + p.y.offset + ik_offset_within(p.y, 0, last, row));
}
