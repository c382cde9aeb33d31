/* selective_scan: h = e^(s a) h + s b u and y = (Σ c h + d u) silu(z), with steps s; an item a channel of a sequence,
 * with its state in registers.
 *
 * The steps come in tiles. For one number of the state after the other, everything but the recurrence itself is a loop
 * over a tile, which compilers of processors vectorise. */
#include "simt.h"

#include "isokern_math.h"

#if UNIT
#define STEP(x) 1
#else
#define STEP(x) p.x.strides[2]
#endif
#define ROW(x) (p.x.offset + sequence * p.x.strides[0] + channel * p.x.strides[1])

IK_ENTRY(selective_scan)(IK_PARAMS)
{
    const ik_index row = IK_ITEM;
    if (row >= p.items)
        return;
    const ik_index channels = p.u.shape[1], length = p.u.shape[2], sequence = row / channels,
                   channel = row - sequence * channels;
    ik_c h[HELD], a_own[HELD], steps[TILE], given[TILE], out[TILE], factors[TILE], terms[TILE];
    for (int i = 0; i < STATE; i++) {
        a_own[i] = IK_LOAD(a, p.a.offset + channel * p.a.strides[0] + i * p.a.strides[1]);
#ifdef IK_HAS_init
        h[i] = IK_LOAD(init, ROW(init) + i * p.init.strides[2]);
#else
        h[i] = 0;
#endif
    }
#ifdef IK_HAS_bias
    const ik_c shift = IK_LOAD(bias, p.bias.offset + channel * p.bias.strides[0]);
#endif
#ifdef IK_HAS_d
    const ik_c direct = IK_LOAD(d, p.d.offset + channel * p.d.strides[0]);
#endif
    for (ik_index at = 0; at < length; at += TILE) {
        const int count = length - at < TILE ? (int)(length - at) : TILE;
        for (int t = 0; t < count; t++) {
            ik_c step = IK_LOAD(delta, ROW(delta) + (at + t) * STEP(delta));
#ifdef IK_HAS_bias
            step += shift;
#endif
            steps[t] =
                p.attr_delta_softplus ? IK_FN(maximum)(step, 0) + IK_FN(log1p)(IK_FN(exp)(-IK_FN(abs)(step))) : step;
            given[t] = IK_LOAD(u, ROW(u) + (at + t) * STEP(u));
            out[t] = 0;
        }
        for (int i = 0; i < STATE; i++) {
            const ik_index from_b = p.b.offset + sequence * p.b.strides[0] + i * p.b.strides[1] + at * STEP(b),
                           from_c = p.c.offset + sequence * p.c.strides[0] + i * p.c.strides[1] + at * STEP(c);
            const ik_c own = a_own[i];
            for (int t = 0; t < count; t++) {
                factors[t] = IK_FN(exp)(steps[t] * own);
                terms[t] = steps[t] * IK_LOAD(b, from_b + t * STEP(b)) * given[t];
            }
            ik_c now = h[i];
            for (int t = 0; t < count; t++) {
                now = factors[t] * now + terms[t];
                terms[t] = now;
            }
            h[i] = now;
            for (int t = 0; t < count; t++)
                out[t] += terms[t] * IK_LOAD(c, from_c + t * STEP(c));
        }
        for (int t = 0; t < count; t++) {
            ik_c sum = out[t];
#ifdef IK_HAS_d
            sum += direct * given[t];
#endif
#ifdef IK_HAS_z
            const ik_c gate = IK_LOAD(z, ROW(z) + (at + t) * STEP(z)), small = IK_FN(exp)(-IK_FN(abs)(gate));
            sum *= gate < -10000 ? (ik_c)-0.0f : gate * (gate >= 0 ? (ik_c)1 : small) / (1 + small);
#endif
            IK_STORE(y, ROW(y) + (at + t) * STEP(y), sum);
        }
    }
    for (int i = 0; i < STATE; i++)
        IK_STORE(last, ROW(last) + i * p.last.strides[2], h[i]);
}
