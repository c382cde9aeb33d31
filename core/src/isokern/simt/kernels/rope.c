/* rope: rotate pairs of the first `dims` elements of each head by position times frequency; the other elements are
 * copied.
 *
 * An item rotates one pair, or copies one other element, of some heads of a position: it computes the angle, cosine and
 * sine once for these. */
/* launch
 * let(d=y.shape[-1], heads=y.shape[-2], dims=attrs.dims or d, pairs=dims // 2, wide=pairs + d - dims)
 * let(places=y.numel // max(1, d * heads))
 * let(taken=max(1, min(heads, places * wide * heads // (2048 * device.units))), shares=ceil_div(heads, taken))
 * let(items=places * shares * wide, steps=y.shape[-3])
 * rope(when=y.numel > 0, items=items, pairs=pairs, wide=wide, shares=shares, taken=taken, steps=steps)
 */
#include "simt.h"
#include "isokern_math.h"

IK_ENTRY(rope)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index wide = (ik_index)p.wide, shares = (ik_index)p.shares, pairs = (ik_index)p.pairs;
    const ik_index line = IK_ITEM / wide, place = line / shares, first = (line - place * shares) * (ik_index)p.taken,
                   i = IK_ITEM - line * wide;
    const int last = (int)p.y.ndim - 1;
    const ik_index heads = p.y.shape[last - 1], end = first + p.taken < heads ? first + (ik_index)p.taken : heads;
    const ik_index to = p.y.offset + ik_offset_within(p.y, 0, last - 1, place),
                   from = p.x.offset + ik_offset_within(p.x, 0, last - 1, place);
    const ik_index y_head = p.y.strides[last - 1], x_head = p.x.strides[last - 1];
    if (i >= pairs) {
        const ik_index e = i + pairs;
        for (ik_index h = first; h < end; h++)
            IK_STORE(y, to + h * y_head + e * p.y.strides[last], IK_LOAD(x, from + h * x_head + e * p.x.strides[last]));
        return;
    }
#ifdef IK_HAS_positions
    const ik_c position = (ik_c)positions[p.positions.offset + ik_offset_within(p.positions, 0, last - 1, place)];
#else
    const ik_index step = place - place / (ik_index)p.steps * (ik_index)p.steps;
    const ik_c position = (ik_c)(p.attr_start_pos + step);
#endif
#ifdef IK_HAS_freqs
    const ik_c angle = position * IK_LOAD(freqs, p.freqs.offset + i * p.freqs.strides[0]);
#else
    const ik_c angle = position * IK_FN(pow)(p.attr_theta, -((ik_c)i / (ik_c)pairs));
#endif
    const ik_c cosine = p.attr_magnitude * IK_FN(cos)(angle), sine = p.attr_magnitude * IK_FN(sin)(angle);
    const ik_index a = p.attr_pairing == 0 ? 2 * i : i, b = p.attr_pairing == 0 ? a + 1 : i + pairs;
    for (ik_index h = first; h < end; h++) {
        const ik_c u = IK_LOAD(x, from + h * x_head + a * p.x.strides[last]),
                   v = IK_LOAD(x, from + h * x_head + b * p.x.strides[last]);
        IK_STORE(y, to + h * y_head + a * p.y.strides[last], u * cosine - v * sine);
        IK_STORE(y, to + h * y_head + b * p.y.strides[last], u * sine + v * cosine);
    }
}
