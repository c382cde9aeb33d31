/* Every elementwise row: one item an element. The row's expression comes with the plan as IK_ROW; `flat` is all in one dim, dense or one
 * element for all. */
/* launch
 * tensors(y, a, b, c)
 * let(flat=y.ndim == 1 and all([t.strides[0] in (0, 1) for t in (y, a, b, c) if t is not None]))
 * let(steps=[0 if t is None or t.numel == 0 else t.strides[0] for t in (y, a, b, c)])
 * elementwise_flat(when=flat, items=y.numel, STEP_A=steps[1], STEP_B=steps[2], STEP_C=steps[3])
 * elementwise_strided(when=not flat, items=y.numel)
 */
#include "simt.h"
#include "isokern_int.h"
#include "isokern_math.h"

#if defined(IK_HAS_c)
#define APPLY IK_ROW(av, bv, cv)
#elif defined(IK_HAS_b)
#define APPLY IK_ROW(av, bv)
#else
#define APPLY IK_ROW(av)
#endif

IK_ENTRY(elementwise_flat)(IK_PARAMS)
{
    const ik_index i = IK_ITEM;
    if (i >= p.items)
        return;
    const ik_c av = (ik_c)IK_LOAD(a, p.a.offset + i * STEP_A);
#ifdef IK_HAS_b
    const ik_c bv = (ik_c)IK_LOAD(b, p.b.offset + i * STEP_B);
#endif
#ifdef IK_HAS_c
    const ik_c cv = (ik_c)IK_LOAD(c, p.c.offset + i * STEP_C);
#endif
    IK_STORE(y, p.y.offset + i, APPLY);
}

IK_ENTRY(elementwise_strided)(IK_PARAMS)
{
    ik_index i = IK_ITEM;
    if (i >= p.items)
        return;
    ik_index to = p.y.offset, ai = p.a.offset;
#ifdef IK_HAS_b
    ik_index bi = p.b.offset;
#endif
#ifdef IK_HAS_c
    ik_index ci = p.c.offset;
#endif
    for (ik_index d = p.y.ndim - 1; d >= 0; d--) {
        const ik_index rest = i / p.y.shape[d], at = i - rest * p.y.shape[d];
        to += at * p.y.strides[d];
        ai += at * p.a.strides[d];
#ifdef IK_HAS_b
        bi += at * p.b.strides[d];
#endif
#ifdef IK_HAS_c
        ci += at * p.c.strides[d];
#endif
        i = rest;
    }
    const ik_c av = (ik_c)IK_LOAD(a, ai);
#ifdef IK_HAS_b
    const ik_c bv = (ik_c)IK_LOAD(b, bi);
#endif
#ifdef IK_HAS_c
    const ik_c cv = (ik_c)IK_LOAD(c, ci);
#endif
    IK_STORE(y, to, APPLY);
}
