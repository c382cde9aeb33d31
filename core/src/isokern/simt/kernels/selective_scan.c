/* selective_scan: h = e^(s a) h + s b u and y = (Σ c h + d u) silu(z), with steps s; an item a channel of a sequence,
 * with its state in registers. */
#include "simt.h"

#include "isokern_math.h"

#define ROW(x) (p.x.offset + sequence * p.x.strides[0] + channel * p.x.strides[1])

IK_ENTRY(selective_scan)(IK_PARAMS)
{
    const ik_index row = IK_ITEM;
    if (row >= p.items)
        return;
    const ik_index channels = p.u.shape[1], sequence = row / channels, channel = row - sequence * channels;
    const ik_index at_b = p.b.offset + sequence * p.b.strides[0], at_c = p.c.offset + sequence * p.c.strides[0];
    ik_c h[HELD], a_own[HELD];
    for (int i = 0; i < STATE; i++) {
        a_own[i] = IK_LOAD(a, p.a.offset + channel * p.a.strides[0] + i * p.a.strides[1]);
#ifdef IK_HAS_init
        h[i] = IK_LOAD(init, ROW(init) + i * p.init.strides[2]);
#else
        h[i] = 0;
#endif
    }
    for (ik_index t = 0; t < p.u.shape[2]; t++) {
        const ik_c given = IK_LOAD(u, ROW(u) + t * p.u.strides[2]);
        ik_c step = IK_LOAD(delta, ROW(delta) + t * p.delta.strides[2]), sum = 0;
#ifdef IK_HAS_bias
        step += IK_LOAD(bias, p.bias.offset + channel * p.bias.strides[0]);
#endif
        if (p.attr_delta_softplus)
            step = IK_FN(maximum)(step, 0) + IK_FN(log1p)(IK_FN(exp)(-IK_FN(abs)(step)));
        for (int i = 0; i < STATE; i++) {
            const ik_c term = step * IK_LOAD(b, at_b + i * p.b.strides[1] + t * p.b.strides[2]) * given;
            h[i] = IK_FN(exp)(step * a_own[i]) * h[i] + term;
            sum += h[i] * IK_LOAD(c, at_c + i * p.c.strides[1] + t * p.c.strides[2]);
        }
#ifdef IK_HAS_d
        sum += IK_LOAD(d, p.d.offset + channel * p.d.strides[0]) * given;
#endif
#ifdef IK_HAS_z
        const ik_c gate = IK_LOAD(z, ROW(z) + t * p.z.strides[2]), small = IK_FN(exp)(-IK_FN(abs)(gate));
        sum *= gate < -10000 ? (ik_c)-0.0f : gate * (gate >= 0 ? (ik_c)1 : small) / (1 + small);
#endif
        IK_STORE(y, ROW(y) + t * p.y.strides[2], sum);
    }
    for (int i = 0; i < STATE; i++)
        IK_STORE(last, ROW(last) + i * p.last.strides[2], h[i]);
}
