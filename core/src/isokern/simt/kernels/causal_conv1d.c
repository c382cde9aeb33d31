/* causal_conv1d: y[b, c, l] = activation(bias[c] + Σ_i w[c, i] * z[b, c, l + i]), z being the state and then x, an item
 * an element; and the last elements of z as the new state.
 *
 * Against a concat, a convolution and a slice, one position takes a quarter of the time (PoCL). Devices that are
 * processors compute long rows faster by the convolution, so these are declined there. */
/* launch
 * refuse(when=device.group == 1 and y.shape[2] >= 16, reason="rows are too long for groups of one item")
 * causal_conv1d(when=y.numel > 0, items=y.numel)
 * causal_conv1d_state(when=new_state.numel > 0, items=new_state.numel, length=y.shape[2])
 */
#include "simt.h"
#include "isokern_math.h"

IK_ENTRY(causal_conv1d)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index length = p.y.shape[2], line = IK_ITEM / length, l = IK_ITEM - line * length;
    const ik_index b = line / p.y.shape[1], c = line - b * p.y.shape[1], k = p.w.shape[1];
    const ik_index filter = p.w.offset + c * p.w.strides[0];
    const ik_index from = p.x.offset + b * p.x.strides[0] + c * p.x.strides[1];
    ik_c sum = 0;
#ifdef IK_HAS_bias
    sum = IK_LOAD(bias, p.bias.offset + c * p.bias.strides[0]);
#endif
    for (ik_index i = 0; i < k; i++) {
        const ik_index at = l + i - (k - 1);
        ik_c value = 0;
        if (at >= 0)
            value = IK_LOAD(x, from + at * p.x.strides[2]);
#ifdef IK_HAS_state
        else
            value = IK_LOAD(
                state, p.state.offset + b * p.state.strides[0] + c * p.state.strides[1] + (l + i) * p.state.strides[2]);
#endif
        sum += IK_LOAD(w, filter + i * p.w.strides[1]) * value;
    }
    IK_STORE(y, p.y.offset + b * p.y.strides[0] + c * p.y.strides[1] + l * p.y.strides[2], IK_ROW_activation(sum));
}

IK_ENTRY(causal_conv1d_state)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index before = p.new_state.shape[2], line = IK_ITEM / before, i = IK_ITEM - line * before;
    const ik_index b = line / p.new_state.shape[1], c = line - b * p.new_state.shape[1], at = p.length + i - before;
    IK_ELEMENT(new_state) value = 0;
    if (at >= 0)
        value = x[p.x.offset + b * p.x.strides[0] + c * p.x.strides[1] + at * p.x.strides[2]];
#ifdef IK_HAS_state
    else
        value = state[p.state.offset + b * p.state.strides[0] + c * p.state.strides[1]
            + (p.length + i) * p.state.strides[2]];
#endif
    new_state[p.new_state.offset + b * p.new_state.strides[0] + c * p.new_state.strides[1]
        + i * p.new_state.strides[2]] = value;
}
