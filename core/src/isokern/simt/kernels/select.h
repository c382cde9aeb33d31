/* Selection of the largest elements of a row by keys, unsigned integers in the order of the elements, which the
 * workspace holds. One work-group per row.
 *
 * A file first defines ik_key, ik_measure, and weight_of(key, ik_measure), the count of an element. */
#ifndef IK_SELECT_H
#define IK_SELECT_H
#include "simt.h"

#define IK_KEY_BITS (8 * (int)sizeof(ik_key))
#if IK_GROUP == 1
enum { DIGIT = 8 };
#else
enum { DIGIT = 3 };
#endif
enum { BINS = 1 << DIGIT };

/* Maps floats to keys of the same order; -0 and 0, which are equal, get one key. NaN comes last, as the largest key. */
static IK_INLINE ik_u32 ik_key_of_float(float v)
{
    const ik_u32 u = ik_bits(v == 0.0f ? 0.0f : v);
    return v != v ? UINT32_MAX : u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The sum over the items before this one, and over all items; `scratch` holds two values per item. */
typedef struct {
    ik_u64 before, all;
} ik_running;

static IK_INLINE ik_running ik_group_running(ik_u64 value, IK_LOCAL ik_u64 *scratch)
{
#if IK_GROUP == 1
    const ik_running made = { 0, value };
#else
    const int id = IK_LOCAL_ID;
    int from = 0;
    scratch[id] = value;
    for (int apart = 1; apart < IK_GROUP; apart *= 2) {
        IK_BARRIER();
        scratch[IK_GROUP - from + id] = scratch[from + id] + (id >= apart ? scratch[from + id - apart] : 0);
        from = IK_GROUP - from;
    }
    IK_BARRIER();
    const ik_running made = { scratch[from + id] - value, scratch[from + IK_GROUP - 1] };
    IK_BARRIER();
#endif
    return made;
}

/* The largest value of the group. */
static IK_INLINE ik_u64 ik_group_max(ik_u64 value, IK_LOCAL ik_u64 *scratch)
{
#if IK_GROUP > 1
    const int id = IK_LOCAL_ID;
    scratch[id] = value;
    for (int apart = IK_GROUP / 2; apart > 0; apart /= 2) {
        IK_BARRIER();
        if (id < apart && scratch[id + apart] > scratch[id])
            scratch[id] = scratch[id + apart];
    }
    IK_BARRIER();
    value = scratch[0];
    IK_BARRIER();
#endif
    return value;
}

/* The least t such that the elements with keys above t count less than `target` in total, and that total. */
typedef struct {
    ik_key key;
    ik_u64 before;
} ik_threshold;

/* Find the threshold digit by digit: `bins` holds the counts of the elements of each digit, BINS values per item, with
 * the values of one bin adjacent. */
static IK_INLINE ik_threshold ik_group_threshold(
    IK_GLOBAL const ik_key *keys, ik_index n, IK_RECORD(ik_measure) m, ik_u64 target, IK_LOCAL ik_u64 *bins)
{
    ik_threshold found = { 0, 0 };
    const int id = IK_LOCAL_ID;
    for (int shift = (IK_KEY_BITS - 1) / DIGIT * DIGIT; shift >= 0; shift -= DIGIT) {
        for (int b = 0; b < BINS; b++)
            bins[b * IK_GROUP + id] = 0;
        for (ik_index i = id; i < n; i += IK_GROUP) {
            const ik_key key = keys[i];
            if (shift + DIGIT >= IK_KEY_BITS || (key >> (shift + DIGIT)) == (found.key >> (shift + DIGIT)))
                bins[((int)(key >> shift) & (BINS - 1)) * IK_GROUP + id] += weight_of(key, m);
        }
        for (int apart = IK_GROUP / 2; apart > 0; apart /= 2) {
            IK_BARRIER();
            if (id < apart)
                for (int b = 0; b < BINS; b++)
                    bins[b * IK_GROUP + id] += bins[b * IK_GROUP + id + apart];
        }
#if IK_GROUP > 1
        IK_BARRIER();
#endif
        int digit = BINS - 1;
        for (; digit > 0 && found.before + bins[digit * IK_GROUP] < target; digit--)
            found.before += bins[digit * IK_GROUP];
        found.key |= (ik_key)digit << shift;
#if IK_GROUP > 1
        IK_BARRIER();
#endif
    }
    return found;
}

/* Collect the places of the elements above the threshold, and of the first `ties` of those at it, in order. Places have
 * 64 bits, as ik_index differs between entries. Each item scans one run. */
static IK_INLINE void ik_group_collect(IK_GLOBAL const ik_key *keys, ik_index n, ik_key at, ik_u64 ties,
    IK_GLOBAL ik_i64 *places, IK_LOCAL ik_u64 *scratch)
{
    const ik_index length = (n + IK_GROUP - 1) / IK_GROUP, begin = IK_LOCAL_ID * length,
                   end = begin + length < n ? begin + length : n;
    ik_u64 above = 0, equal = 0;
    for (ik_index i = begin; i < end; i++) {
        above += keys[i] > at;
        equal += keys[i] == at;
    }
    above = ik_group_running(above, scratch).before;
    equal = ik_group_running(equal, scratch).before;
    for (ik_index i = begin; i < end; i++) {
        const ik_key key = keys[i];
        if (key > at || (key == at && equal < ties))
            places[above + (equal < ties ? equal : ties)] = i;
        above += key > at;
        equal += key == at;
    }
}
#endif
