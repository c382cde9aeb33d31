/* random_bits: words of Philox4x32-10, an item a block of four words. */
/* launch
 * let(n=y.numel)
 * random_bits(items=ceil_div(n, 4), n=n)
 */
#include "isokern_philox.h"
#include "simt.h"

IK_ENTRY(random_bits)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_u64 key = seed[p.seed.offset], first = seed[p.seed.offset + p.seed.strides[0]];
    const ik_words w = ik_philox_block(first + (ik_u64)IK_ITEM, key);
    const ik_u32 words[4] = { w.w0, w.w1, w.w2, w.w3 };
    const ik_index at = IK_ITEM * 4;
    for (int i = 0; i < 4; i++)
        if (i < p.n - at)
            y[ik_offset(p.y, at + i)] = words[i];
}
