/* Keys of elements: unsigned integers of the same order, in which NaN is the largest and -0 equals 0.
 *
 * They are made of bits alone, so the launch gives x as `bits(x)`, and one program serves all dtypes that share a form
 * and a size. A launch of floats defines INFINITE, the bits of infinity; one of signed integers, SIGNED. */
#ifndef IK_KEYS_H
#define IK_KEYS_H
#include "simt.h"

#if IK_SIZE_x == 8
typedef ik_u64 ik_key;
#else
typedef ik_u32 ik_key;
#endif
#define IK_TOP ((ik_key)1 << (8 * IK_SIZE_x - 1))
#define IK_LAST_KEY (IK_TOP + (IK_TOP - 1))

static IK_INLINE ik_key ik_key_of(ik_key u)
{
#if defined(INFINITE)
    const ik_key size = u & (IK_TOP - 1);
    return size > (ik_key)INFINITE ? IK_LAST_KEY : size == 0 ? IK_TOP : u & IK_TOP ? IK_LAST_KEY - u : u | IK_TOP;
#elif defined(SIGNED)
    return u ^ IK_TOP;
#else
    return u;
#endif
}

/* The number of places, in a run ordered by falling keys, whose keys are above this one or, where `equal`, not below
 * it. */
static IK_INLINE ik_index ik_places_before(
    IK_GLOBAL const ik_key *keys, IK_GLOBAL const ik_i64 *places, ik_index count, ik_key key, int equal)
{
    ik_index low = 0, high = count;
    while (low < high) {
        const ik_index middle = low + (high - low) / 2;
        if (keys[places[middle]] > key || (equal && keys[places[middle]] == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where place number i of n goes when each run is merged with the next one: to its place in its own run plus its place
 * in the other one. Equal keys stay in order. */
static IK_INLINE ik_index ik_merged_place(
    IK_GLOBAL const ik_key *keys, IK_GLOBAL const ik_i64 *places, ik_index n, ik_index run, ik_index i)
{
    const ik_index left = i / run / 2 * 2 * run, middle = n - left > run ? left + run : n,
                   right = n - middle > run ? middle + run : n;
    const ik_key key = keys[places[i]];
    return i < middle ? i + ik_places_before(keys, places + middle, right - middle, key, 0)
                      : i - middle + left + ik_places_before(keys, places + left, middle - left, key, 1);
}
#endif
