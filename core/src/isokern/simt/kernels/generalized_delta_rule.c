/* generalized_delta_rule: S = diag(decay) S + b (a^T S) + k v^T, y = q^T S. The columns of S do not meet: an item a
 * column, which it holds in registers where d is small, else in present_state. */
/* launch
 * let(d=q.shape[3], columns=q.shape[0] * v.shape[2] * v.shape[3], shared=q.shape[2] // max(1, v.shape[2]))
 * generalized_delta_rule(when=d <= 128, items=columns, HELD=max(1, d), shared=shared)
 * generalized_delta_rule(when=d > 128, items=columns, shared=shared)
 */
#include "simt.h"

#ifdef HELD
#define STATE(i) held[i]
#define KEEP(i, x) held[i] = (x)
#else
#define STATE(i) IK_LOAD(present_state, to + (i) * p.present_state.strides[2])
#define KEEP(i, x) IK_STORE(present_state, to + (i) * p.present_state.strides[2], x)
#endif

/* The offset of row (batch, step, head) of a tensor. */
#define ROW(x, head) (p.x.offset + batch * p.x.strides[0] + step * p.x.strides[1] + (head) * p.x.strides[2])

/* y = q^T S, for the heads of q that share S. */
#define READ() \
    for (ik_index query = group * p.shared; query < (group + 1) * p.shared; query++) { \
        const ik_index from = ROW(q, query); \
        ik_c total = 0; \
        for (ik_index i = 0; i < d; i++) \
            total += IK_LOAD(q, from + i * p.q.strides[3]) * STATE(i); \
        IK_STORE(y, ROW(y, query) + column * p.y.strides[3], total); \
    }

IK_ENTRY(generalized_delta_rule)(IK_PARAMS)
{
    const ik_index task = IK_ITEM;
    if (task >= p.items)
        return;
    const ik_index d = p.q.shape[3], g = p.v.shape[2], e = p.v.shape[3], steps = p.q.shape[1];
    const ik_index head = task / e, column = task - head * e, batch = head / g, group = head - batch * g;
    const ik_index past = p.past_state.offset + batch * p.past_state.strides[0] + group * p.past_state.strides[1]
        + column * p.past_state.strides[3];
    const ik_index to = p.present_state.offset + batch * p.present_state.strides[0] + group * p.present_state.strides[1]
        + column * p.present_state.strides[3];
#ifdef HELD
    ik_c held[HELD];
#endif
    for (ik_index i = 0; i < d; i++)
        KEEP(i, IK_LOAD(past_state, past + i * p.past_state.strides[2]));
    for (ik_index step = 0; step < steps; step++) {
        if (p.attr_read_before)
            READ()
        const ik_index at_k = ROW(k, group);
        const ik_c value = IK_LOAD(v, ROW(v, group) + column * p.v.strides[3]);
#ifdef IK_HAS_decay
        const ik_index at_decay = ROW(decay, group);
#endif
#ifdef IK_HAS_a
        const ik_index at_a = ROW(a, group), at_b = ROW(b, group);
        ik_c seen = 0;
        for (ik_index i = 0; i < d; i++)
            seen += IK_LOAD(a, at_a + i * p.a.strides[3]) * STATE(i);
#endif
        for (ik_index i = 0; i < d; i++) {
            ik_c s = STATE(i);
#ifdef IK_HAS_decay
            s *= IK_LOAD(decay, at_decay + i * p.decay.strides[3]);
#endif
#ifdef IK_HAS_a
            s += IK_LOAD(b, at_b + i * p.b.strides[3]) * seen;
#endif
            KEEP(i, s + IK_LOAD(k, at_k + i * p.k.strides[3]) * value);
        }
        if (!p.attr_read_before)
            READ()
    }
#ifdef HELD
    for (ik_index i = 0; i < d; i++)
        IK_STORE(present_state, to + i * p.present_state.strides[2], held[i]);
#endif
}
