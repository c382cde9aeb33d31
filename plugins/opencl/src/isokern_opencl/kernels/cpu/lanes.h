/* Lanes of a loop nest, for generic.c: up to IK_TILE elements of each input, and the body over them in loops that the
 * compiler vectorises.
 *
 * A launch defines the distance between lanes: for input k, bits 2k and 2k + 1 of STEPS are 0, 1 or 2, or 3 where the
 * distance is the input's stride along the loop of the lanes. With LISTED, lanes span several loops, and their offsets
 * are listed. Inputs of F16, those of the bits in HALVES, are widened in loops of their own; all others are converted
 * to the compute type as they are read. */
#ifndef IK_LANES_H
#define IK_LANES_H
#include "runs.h"

enum { AT_x0, AT_x1, AT_x2, AT_x3, AT_x4, AT_x5, AT_x6, AT_x7, AT_init };
#define CODE(x) (STEPS >> 2 * AT_##x & 3)

/* The offset of lane i from the first lane. */
#if LISTED
#define LANE(x) list_##x[i]
#define SCRATCH(x) ik_index list_##x[IK_TILE];
#else
#define LANE(x) (i * (CODE(x) < 3 ? CODE(x) : p.x.strides[lanes]))
#define SCRATCH(x)
#endif

/* Widen n F16 elements from `from` on, `step` apart or as listed. */
static IK_INLINE void ik_widen_lanes(
    IK_GLOBAL const ik_f16 *from, ik_index step, const ik_index *list, int n, float *to)
{
    if (list == 0 && (step == 0 || step == 1))
        ik_widen_f16(from, to, step ? n : 1);
    else
        for (int i = 0; i < n; i++)
            to[i] = ik_f16_to_f32(from[list != 0 ? list[i] : i * step]);
}

/* Storage for an input's lanes, what is done before the body where the first lane is at in_x, and the value of lane
 * i. */
#define IS_HALF(x) (HALVES >> AT_##x & 1)
#define STORAGE(x) SCRATCH(x) float wide_##x[IS_HALF(x) ? IK_TILE : 1] IK_ALIGNED;
#if LISTED
#define STEP_AND_LIST(x) 0, list_##x
#define WIDE(x) wide_##x[i]
#else
#define STEP_AND_LIST(x) CODE(x) < 3 ? CODE(x) : p.x.strides[lanes], 0
#define WIDE(x) wide_##x[CODE(x) ? i : 0]
#endif
#define FETCH(x) \
    if (IS_HALF(x)) \
        ik_widen_lanes((IK_GLOBAL const ik_f16 *)x + in_##x, STEP_AND_LIST(x), n, wide_##x);
#define VALUE(x) const ik_c value_##x = IS_HALF(x) ? (ik_c)WIDE(x) : (ik_c)IK_LOAD(x, in_##x + LANE(x));

/* The offset of element i of `count` loops, in row-major order. */
static IK_INLINE ik_index ik_along(const ik_index *shape, const ik_index *strides, int count, ik_index i)
{
    ik_index at = 0;
    for (int loop = count - 1; loop > 0; loop--) {
        const ik_index rest = i / shape[loop];
        at += (i - rest * shape[loop]) * strides[loop];
        i = rest;
    }
    return count > 0 ? at + i * strides[0] : 0;
}

/* List the offsets of n elements of these loops from number `first` on, relative to the first. */
static IK_INLINE void ik_list(
    const ik_index *shape, const ik_index *strides, int count, ik_index first, int n, ik_index *list)
{
    ik_index index[8], at = 0;
    for (int loop = count - 1; loop >= 0; loop--) {
        index[loop] = first % shape[loop];
        first /= shape[loop];
    }
    for (int i = 0; i < n; i++) {
        list[i] = at;
        for (int loop = count - 1; loop >= 0; loop--) { /* odometer */
            at += strides[loop];
            if (++index[loop] < shape[loop])
                break;
            at -= shape[loop] * strides[loop];
            index[loop] = 0;
        }
    }
}

/* By tensor: the offset of the first of an output's lanes, the list of all of them, and where those of the current term
 * begin. */
#define FROM(x) \
    const ik_index at_##x = \
        p.x.offset + ik_along(p.y.shape, p.x.strides, where.loops, where.outer) + where.column * p.x.strides[lanes];
#if LISTED
#define LISTS(x) ik_list(p.y.shape, p.x.strides, where.loops, where.first, n, list_##x);
#else
#define LISTS(x)
#endif
#define IN(x) ik_index in_##x = at_##x;

/* Lanes that are outputs: the number of the first, how many there are, and the position of the first as element `outer`
 * of `loops` loops and then `column`. */
typedef struct {
    ik_index first, outer, column;
    int loops, n;
} ik_place;

static IK_INLINE ik_place ik_place_of(IK_RECORD(ik_tensor) y, int kept, ik_index outputs, ik_index tile)
{
    ik_place at;
#if LISTED
    at.first = at.outer = tile * IK_TILE;
    at.column = 0;
    at.loops = kept;
    at.n = (int)min((ik_index)IK_TILE, outputs - at.first);
#else
    const ik_index width = y.shape[kept - 1], parts = (width + IK_TILE - 1) / IK_TILE;
    at.outer = tile / parts;
    at.column = (tile - at.outer * parts) * IK_TILE;
    at.first = at.outer * width + at.column;
    at.loops = kept - 1;
    at.n = (int)min((ik_index)IK_TILE, width - at.column);
#endif
    return at;
}

/* Store n results to y from `to` on, `step` apart or as listed. */
static IK_INLINE void ik_store(
    ik_tile *tile, int n, IK_GLOBAL IK_ELEMENT(y) * to, ik_index step, const ik_index *list, int stream)
{
    if (list == 0 && step == 1) {
        ik_tile_store(tile, 0, n, to, stream && (size_t)to % IK_LINE == 0);
        return;
    }
#if IK_IS_F16(y)
    ik_narrow_f16(tile->wide, tile->u.e, n);
#endif
    for (int i = 0; i < n; i++)
        to[list != 0 ? list[i] : i * step] = tile->u.e[i];
}

#if LISTED
#define STORE(stream) ik_store(&tile, n, y + at_y, 0, list_y, 0)
#else
#define STORE(stream) ik_store(&tile, n, y + at_y, DENSE ? 1 : p.y.strides[lanes], 0, stream)
#endif
#endif
