/* pad of a dense y: a thread writes 16 bytes, whatever they consist of. Where these are elements of x at an address
 * aligned to 16 bytes, it reads them at once; else one by one, issuing all loads before it waits.
 *
 * A group of the portable kernel writes one element per thread at a time, and loads the next one of x only after it has
 * stored that. */
#include "packs.h"
#include "move.h"
#include "padded.h"

IK_ENTRY(pad_packs)(IK_PARAMS)
{
    const ik_index i = IK_ITEM * EACH, left = (ik_index)p.numel - i;
    if (left <= 0)
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_index n = p.y.shape[last], length = p.x.shape[last], step = p.x.strides[last],
                   low = (ik_index)p.low.v[last];
    ik_index line = i / n, k = i - line * n - low; /* along x: the border is before 0 and from `length` on */
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
