/* weighted_gather: y[a, o, b] = Σ_t weights[o, t] * x[a, indices[o, t], b], an item an element.
 *
 * A negative index counts from the end. An element of weight 0 does not count, and an index out of range adds nothing;
 * gather's entries report the first such index. */
#include "simt.h"
#include "gather.h"

IK_ENTRY(weighted_gather)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index width = p.y.shape[2], height = p.y.shape[1], line = IK_ITEM / width, b = IK_ITEM - line * width;
    const ik_index a = line / height, o = line - a * height, terms = p.indices.shape[1];
    const ik_index from = p.x.offset + a * p.x.strides[0] + b * p.x.strides[2];
    const ik_index index = p.indices.offset + o * p.indices.strides[0],
                   factor = p.weights.offset + o * p.weights.strides[0];
    ik_c sum = 0;
    for (ik_index t = 0; t < terms; t++) {
        const ik_index row = row_of(indices[index + t * p.indices.strides[1]], p.rows);
        const ik_c weight = IK_LOAD(weights, factor + t * p.weights.strides[1]);
        if (row >= 0 && weight != 0)
            sum += weight * IK_LOAD(x, from + row * p.x.strides[1]);
    }
    IK_STORE(y, p.y.offset + a * p.y.strides[0] + o * p.y.strides[1] + b * p.y.strides[2], sum);
}
