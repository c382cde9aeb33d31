/* Elementwise rows of dense tensors, or one element for all: a thread takes 16 bytes of the widest tensor, in one load and one store each. */
/* launch
 * tensors(y, a, b, c)
 * let(given=[t for t in (y, a, b, c) if t is not None])
 * refuse(when=y.ndim != 1 or any([t.strides[0] not in (0, 1) for t in given]), reason="a tensor is neither dense nor one element for all")
 * let(takes=16 // max([t.dtype.itemsize for t in given]), steps=[0 if t is None else t.strides[0] for t in (y, a, b, c)])
 * refuse(when=any([t.offset % takes != 0 and t.strides[0] == 1 for t in given]), reason="an offset is no multiple of what a thread takes")
 * elementwise(items=ceil_div(y.numel, takes), numel=y.numel, EACH=takes, STEP_A=steps[1], STEP_B=steps[2], STEP_C=steps[3])
 */
#include "packs.h"
#include "isokern_int.h"
#include "isokern_math.h"

/* EACH elements from `at` on; of one element for all, that one. */
template <int STEP, class T>
static IK_INLINE pack<T> taken(const T *x, ik_index offset, ik_index at)
{
    if (STEP == 1)
        return get(x + offset + at);
    pack<T> same;
    for (int i = 0; i < EACH; i++)
        same.v[i] = x[offset];
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
    const int count = p.numel - at < EACH ? (int)(p.numel - at) : EACH;
    if (count == EACH) {
        const auto as = taken<STEP_A>(a, p.a.offset, at);
#ifdef IK_HAS_b
        const auto bs = taken<STEP_B>(b, p.b.offset, at);
#endif
#ifdef IK_HAS_c
        const auto cs = taken<STEP_C>(c, p.c.offset, at);
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
        put(y + p.y.offset + at, made);
        return;
    }
    for (ik_index i = at; i < at + count; i++) {
        const ik_c av = (ik_c)IK_LOAD(a, p.a.offset + i * STEP_A);
#ifdef IK_HAS_b
        const ik_c bv = (ik_c)IK_LOAD(b, p.b.offset + i * STEP_B);
#endif
#ifdef IK_HAS_c
        const ik_c cv = (ik_c)IK_LOAD(c, p.c.offset + i * STEP_C);
#endif
        IK_STORE(y, p.y.offset + i, APPLY);
    }
}
