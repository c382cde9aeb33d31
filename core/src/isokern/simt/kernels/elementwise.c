/* Every elementwise operator: one item per element. The plan supplies the operator's scalar expression as IK_ROW. */
/* launch
 * tensors(y, a, b, c)
 * elementwise(items=y.numel)
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

IK_ENTRY(elementwise)(IK_PARAMS)
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
    for (ik_index d = p.y.ndim - 1; d > 0; d--) {
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
    to += i * p.y.strides[0]; /* here i is the index in the first dim, so no division is needed */
    ai += i * p.a.strides[0];
#ifdef IK_HAS_b
    bi += i * p.b.strides[0];
#endif
#ifdef IK_HAS_c
    ci += i * p.c.strides[0];
#endif
    const ik_c av = (ik_c)IK_LOAD(a, ai);
#ifdef IK_HAS_b
    const ik_c bv = (ik_c)IK_LOAD(b, bi);
#endif
#ifdef IK_HAS_c
    const ik_c cv = (ik_c)IK_LOAD(c, ci);
#endif
    IK_STORE(y, to, APPLY);
}
