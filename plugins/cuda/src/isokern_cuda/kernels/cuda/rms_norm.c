/* rms_norm of rows that some threads or a block hold in registers: x is read once, by 16 bytes a thread (held_rows.h). */
/* launch
 * let(d=y.shape[-1], takes=16 // y.dtype.itemsize, rows=y.numel // max(1, y.shape[-1]), given=[t for t in (y, x, w) if t is not None])
 * refuse(when=y.numel == 0 or any([t.strides[-1] != 1 for t in given]), reason="rows do not lie along memory")
 * refuse(when=d % takes != 0 or any([n % takes != 0 for t in given for n in (t.offset, *t.strides[:-1])]), reason="a row does not begin and end at 16 bytes")
 * let(lanes=min(256, device.group, 1 << (d // takes - 1).bit_length()), packs=ceil_div(d // takes, lanes))
 * refuse(when=packs * takes > 64 or packs > 16, reason="a block cannot hold a row")
 * let(threads=lanes if lanes > 32 else min(256, device.group))
 * rms_norm(groups=ceil_div(rows * lanes, threads), local=threads, rows=rows, d=d, LANES=lanes, EACH=takes, PER=1 << (packs - 1).bit_length())
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
