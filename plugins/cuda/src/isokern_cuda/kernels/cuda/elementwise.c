/* Elementwise operators on tensors that are contiguous, or repeat one element along the last dim: a thread takes 16
 * bytes of the widest tensor, in one load and one store each, and computes the offsets once. */
/* launch
 * tensors(y, a, b, c)
 * let(takes=whole_pack([y, a, b, c]), numel=y.numel, step_a=0 if a is None else a.strides[-1])
 * let(step_b=0 if b is None else b.strides[-1], step_c=0 if c is None else c.strides[-1])
 * refuse(when=numel == 0 or y.strides[-1] != 1 or not takes, reason="a tensor does not lie along memory by packs")
 * let(items=ceil_div(numel, takes))
 * elementwise(items=items, numel=numel, EACH=takes, STEP_A=step_a, STEP_B=step_b, STEP_C=step_c)
 */
#include "packs.h"
#include "isokern_int.h"
#include "isokern_math.h"

/* EACH elements from `at` on; where one element is repeated, that one. */
template<int STEP, class T> static IK_INLINE pack<T> take(const T *x, ik_index at)
{
    if (STEP == 1)
        return get(x + at);
    pack<T> same;
    for (int i = 0; i < EACH; i++)
        same.v[i] = x[at];
    return same;
}

#if defined(IK_HAS_c)
#define APPLY IK_ROW(av, bv, cv)
#elif defined(IK_HAS_b)
#define APPLY IK_ROW(av, bv)
#else
#define APPLY IK_ROW(av)
#endif

IK_ENTRY(elementwise)(IK_PARAMS)
{
    const ik_index at = IK_ITEM * EACH;
    if (at >= p.numel)
        return;
    ik_index to = p.y.offset, ai = p.a.offset;
#ifdef IK_HAS_b
    ik_index bi = p.b.offset;
#endif
#ifdef IK_HAS_c
    ik_index ci = p.c.offset;
#endif
    for (ik_index d = p.y.ndim - 1, i = at; d >= 0; d--) {
        const ik_index rest = d > 0 ? i / p.y.shape[d] : 0, k = i - rest * p.y.shape[d];
        to += k * p.y.strides[d];
        ai += k * p.a.strides[d];
#ifdef IK_HAS_b
        bi += k * p.b.strides[d];
#endif
#ifdef IK_HAS_c
        ci += k * p.c.strides[d];
#endif
        i = rest;
    }
    const int count = p.numel - at < EACH ? (int)(p.numel - at) : EACH;
    if (count == EACH) {
        const auto as = take<STEP_A>(a, ai);
#ifdef IK_HAS_b
        const auto bs = take<STEP_B>(b, bi);
#endif
#ifdef IK_HAS_c
        const auto cs = take<STEP_C>(c, ci);
#endif
        auto made = pack_of(y);
        for (int i = 0; i < EACH; i++) {
            const ik_c av = LOAD_OF(a, as, i);
#ifdef IK_HAS_b
            const ik_c bv = LOAD_OF(b, bs, i);
#endif
#ifdef IK_HAS_c
            const ik_c cv = LOAD_OF(c, cs, i);
#endif
            STORE_OF(y, made, i, APPLY);
        }
        put(y + to, made);
        return;
    }
    for (ik_index i = 0; i < count; i++) {
        const ik_c av = (ik_c)IK_LOAD(a, ai + i * STEP_A);
#ifdef IK_HAS_b
        const ik_c bv = (ik_c)IK_LOAD(b, bi + i * STEP_B);
#endif
#ifdef IK_HAS_c
        const ik_c cv = (ik_c)IK_LOAD(c, ci + i * STEP_C);
#endif
        IK_STORE(y, to + i, APPLY);
    }
}
