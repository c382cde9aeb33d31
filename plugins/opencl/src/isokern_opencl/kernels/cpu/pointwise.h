/* y = IK_ROW(a, b, c) where the last dim of every tensor is dense, or repeats one element: items take runs of IK_RUN
 * elements.
 *
 * A launch divides rows into runs, with `taken` rows to an item where they are short; `stream` is set where y is large;
 * STEP_A, STEP_B and STEP_C are the last strides: 0 or 1. */
#ifndef IK_POINTWISE_H
#define IK_POINTWISE_H
#include "runs.h"

/* Element i of the tile of an input that begins at x_at. */
#if IK_IS_F16(a)
#define A (ik_c) a_wide[i * STEP_A]
#else
#define A (ik_c) IK_LOAD(a, a_at + i * STEP_A)
#endif
#if IK_IS_F16(b)
#define B (ik_c) b_wide[i * STEP_B]
#else
#define B (ik_c) IK_LOAD(b, b_at + i * STEP_B)
#endif

#if defined(IK_HAS_c) /* only where(a, b, c), whose a is BOOL */
#if IK_IS_F16(c)
#define C (ik_c) c_wide[i * STEP_C]
#else
#define C (ik_c) IK_LOAD(c, c_at + i * STEP_C)
#endif
#endif

/* A constant that is read from memory, so that the page of the program's constants is mapped. Compilers turn `c ? 1 :
 * 0` into a load of the constant 1 under the mask of c; until an element is true such loads do not map the page, and
 * each takes a processor 100 times as long. */
__constant const int ik_mapped = 1;

/* Compute the runs that belong to the item's group number. */
static IK_INLINE void ik_pointwise(IK_PASSED)
{
    (void)*(volatile __constant const int *)&ik_mapped;
    const ik_index d = p.y.shape[(int)p.y.ndim - 1], parts = p.parts, taken = p.taken, rows = p.rows;
    const ik_index begin = IK_GROUP_ID % parts * IK_RUN, end = d - begin < IK_RUN ? d : begin + IK_RUN;
    const ik_index first = IK_GROUP_ID / parts * taken, last = rows - first < taken ? rows : first + taken;
    ik_tile tile IK_ALIGNED;
#if IK_IS_F16(a)
    float a_wide[IK_TILE] IK_ALIGNED;
#endif
#if IK_IS_F16(b)
    float b_wide[IK_TILE] IK_ALIGNED;
#endif
#if IK_IS_F16(c)
    float c_wide[IK_TILE] IK_ALIGNED;
#endif
    for (ik_index row = first; row < last; row++) {
        IK_GLOBAL IK_ELEMENT(y) *to = y + ik_offset(p.y, row * d);
        const ik_index a_row = ik_offset(p.a, row * d);
#ifdef IK_HAS_b
        const ik_index b_row = ik_offset(p.b, row * d);
#endif
#ifdef IK_HAS_c
        const ik_index c_row = ik_offset(p.c, row * d);
#endif
        int n;
        for (ik_index at = begin; at < end; at += n) {
            const int skip = ik_tile_skip(to + at);
            n = end - at < IK_TILE - skip ? (int)(end - at) : IK_TILE - skip;
            const ik_index a_at = a_row + at * STEP_A;
#if IK_IS_F16(a)
            ik_widen_f16(a + a_at, a_wide, STEP_A ? n : 1);
#endif
#ifdef IK_HAS_b
            const ik_index b_at = b_row + at * STEP_B;
#if IK_IS_F16(b)
            ik_widen_f16(b + b_at, b_wide, STEP_B ? n : 1);
#endif
#endif
#ifdef IK_HAS_c
            const ik_index c_at = c_row + at * STEP_C;
#if IK_IS_F16(c)
            ik_widen_f16(c + c_at, c_wide, STEP_C ? n : 1);
#endif
#endif
            int far = 1;
#ifdef IK_ROW_NEAR /* rows with one input */
            far = 0;
            IK_VECTORISE for (int i = 0; i < n; i++)
                far |= IK_ROW_FAR(A);
            IK_VECTORISE for (int i = 0; i < (far ? 0 : n); i++)
                IK_TO_TILE(tile, skip + i, IK_ROW_NEAR(A));
#endif
            IK_VECTORISE for (int i = 0; i < (far ? n : 0); i++) {
                const ik_c av = A;
#if defined(IK_HAS_c)
                const ik_c bv = B, cv = C;
                IK_TO_TILE(tile, skip + i, IK_ROW(av, bv, cv));
#elif defined(IK_HAS_b)
                const ik_c bv = B;
                IK_TO_TILE(tile, skip + i, IK_ROW(av, bv));
#else
                IK_TO_TILE(tile, skip + i, IK_ROW(av));
#endif
            }
            ik_tile_store(&tile, skip, n, to + at, (int)p.stream);
        }
    }
}
#endif
