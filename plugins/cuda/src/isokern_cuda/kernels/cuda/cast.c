/* cast of contiguous tensors: a thread takes 16 bytes of the wider type, and as many elements of the other, in one load
 * and one store.
 *
 * A group of the portable kernel converts one element per thread at a time, often of one or two bytes, and loads the
 * next one only after it has stored that. */
#include "packs.h"
#include "conversions.h"
#include "place.h"

IK_ENTRY(cast)(IK_PARAMS)
{
    const ik_index i = IK_ITEM * EACH;
    if (i >= p.numel)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, i);
    if (p.numel - i < EACH) {
        for (int e = 0; e < p.numel - i; e++)
            MAKE(y, at.y + e, GIVEN(x, at.x + e));
        return;
    }
    const auto given = get(x + at.x);
    auto made = pack_of(y);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        MAKE(made.v, e, GIVEN(given.v, e));
    put(y + at.y, made);
}
