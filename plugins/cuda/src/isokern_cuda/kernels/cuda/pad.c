/* pad of a dense y: a thread writes 16 bytes, whatever they are of. Where these are elements of x that begin at 16 bytes, it reads them so; else
 * one by one, all before it waits.
 *
 * A portable group writes an element a thread at a time, and asks for the next one of x when that has been written. */
/* launch
 * let(order=[d for _, d in sorted([(-abs(s), d) for d, s in enumerate(y.strides)])], value=converted(attrs.value, y.dtype))
 * let(y=bits(y.permute(order)), x=bits(x.permute(order)), low=[attrs.low[d] for d in order])
 * let(takes=16 // y.dtype.itemsize)
 * refuse(when=y.ndim == 0 or y.numel == 0 or not y.is_contiguous or y.offset % takes != 0, reason="y is not dense from 16 bytes on")
 * pad_packs(items=ceil_div(y.numel, takes), EACH=takes, numel=y.numel, value=value, low=low)
 */
#include "packs.h"
#include "move.h"
#include "padded.h"

IK_ENTRY(pad_packs)(IK_PARAMS)
{
    const ik_index i = IK_ITEM * EACH, left = (ik_index)p.numel - i;
    if (left <= 0)
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_index n = p.y.shape[last], length = p.x.shape[last], step = p.x.strides[last], low = (ik_index)p.low.v[last];
    ik_index line = i / n, k = i - line * n - low; /* along x: before 0 and from `length` on lies the border */
    padded at = place_of(p.y, p.x, p.low, last, line);
    if (step == 1 && at.inside && k >= 0 && k + EACH <= length && (at.x + k) % EACH == 0) {
        put(y + p.y.offset + i, get(x + at.x + k));
        return;
    }
    auto made = pack_of(y);
#pragma unroll
    for (int e = 0; e < EACH; e++, k++) {
        if (k == n - low) {
            k = -low;
            at = place_of(p.y, p.x, p.low, last, ++line);
        }
        made.v[e] = e < left && at.inside && k >= 0 && k < length ? x[at.x + k * step] : (IK_ELEMENT(y))p.value;
    }
    if (left >= EACH)
        put(y + p.y.offset + i, made);
    else
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (e < left)
                y[p.y.offset + i + e] = made.v[e];
}
