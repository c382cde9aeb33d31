/* weighted_gather: y[a, o, b] = Σ_t weights[o, t] * x[a, indices[o, t], b]: along lines of b, whose rows are the same
 * for all items, or of o, else an item an element. Dims and strides are those of the tensors as the launch orders them:
 * the last dim of y is the line.
 *
 * A negative index counts from the end. An element of weight 0 does not count, and an index out of range adds nothing;
 * gather's entries report the first such index. */
#include "simt.h"
#include "gather.h"

enum {
    HELD = 4,
    CHUNK = 32
}; /* terms whose rows and weights are held; elements of a line that an item adds up at once */

/* Where term t of row o of y reads its index and its weight. */
#define INDEX(o, t) (p.indices.offset + (o) * p.indices.strides[0] + (t) * p.indices.strides[1])
#define WEIGHT(o, t) (p.weights.offset + (o) * p.weights.strides[0] + (t) * p.weights.strides[1])

IK_ENTRY(weighted_gather_rows)(IK_PARAMS)
{
    const ik_piece at = ik_piece_of(p.y.shape[2], IK_GROUP_ID);
    const ik_index a = at.line / p.y.shape[1], o = at.line - a * p.y.shape[1], terms = p.indices.shape[1];
    const ik_index from = p.x.offset + a * p.x.strides[0], x_step = p.x.strides[2], y_step = p.y.strides[2];
    const ik_index to = p.y.offset + a * p.y.strides[0] + o * p.y.strides[1];
    if (terms <= HELD) {
        ik_index place[HELD]; /* -1 where a term does not count */
        ik_c weight[HELD];
        for (int t = 0; t < HELD; t++) {
            place[t] = -1;
            weight[t] = 0;
            if (t < terms) {
                const ik_index row = row_of(indices[INDEX(o, t)], p.rows);
                weight[t] = IK_LOAD(weights, WEIGHT(o, t));
                if (row >= 0 && weight[t] != 0)
                    place[t] = from + row * p.x.strides[1];
            }
        }
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP) {
            ik_c sum = 0;
            for (int t = 0; t < HELD; t++)
                if (place[t] >= 0)
                    sum += weight[t] * IK_LOAD(x, place[t] + i * x_step);
            IK_STORE(y, to + i * y_step, sum);
        }
        return;
    }
    for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP) {
        ik_c sum = 0;
        for (ik_index t = 0; t < terms; t++) {
            const ik_index row = row_of(indices[INDEX(o, t)], p.rows);
            const ik_c factor = IK_LOAD(weights, WEIGHT(o, t));
            if (row >= 0 && factor != 0)
                sum += factor * IK_LOAD(x, from + row * p.x.strides[1] + i * x_step);
        }
        IK_STORE(y, to + i * y_step, sum);
    }
}

/* Several lines by one item, where groups have no more. */
IK_ENTRY(weighted_gather_lines)(IK_PARAMS)
{
    const ik_index width = p.y.shape[2], terms = p.indices.shape[1], first = IK_GROUP_ID * (ik_index)p.taken,
                   end = p.lines - first < p.taken ? (ik_index)p.lines : first + (ik_index)p.taken;
    const ik_index x_step = p.x.strides[2], y_step = p.y.strides[2];
    for (ik_index line = first; line < end; line++) {
        const ik_index a = line / p.y.shape[1], o = line - a * p.y.shape[1];
        const ik_index from = p.x.offset + a * p.x.strides[0];
        const ik_index to = p.y.offset + a * p.y.strides[0] + o * p.y.strides[1];
        for (ik_index i = 0; i < width; i += CHUNK) {
            const int n = width - i < CHUNK ? (int)(width - i) : CHUNK;
            ik_c sum[CHUNK];
            for (int k = 0; k < CHUNK; k++)
                sum[k] = 0;
            for (ik_index t = 0; t < terms; t++) {
                const ik_index row = row_of(indices[INDEX(o, t)], p.rows),
                               at = from + row * p.x.strides[1] + i * x_step;
                const ik_c factor = IK_LOAD(weights, WEIGHT(o, t));
                if (row < 0 || factor == 0)
                    continue;
                if (n == CHUNK && x_step == 1)
                    for (int k = 0; k < CHUNK; k++)
                        sum[k] += factor * IK_LOAD(x, at + k);
                else
                    for (int k = 0; k < n; k++)
                        sum[k] += factor * IK_LOAD(x, at + k * x_step);
            }
            for (int k = 0; k < n; k++)
                IK_STORE(y, to + (i + k) * y_step, sum[k]);
        }
    }
}

#ifdef IK_HAS_weights /* not in gather's entries */
/* The sum of one element, from its column of x. */
static IK_INLINE ik_c sum_of(IK_RECORD(ik_args) p, IK_GLOBAL const IK_ELEMENT(x) * x,
    IK_GLOBAL const IK_ELEMENT(indices) * indices, IK_GLOBAL const IK_ELEMENT(weights) * weights, ik_index from,
    ik_index step, ik_index o)
{
    ik_c sum = 0;
    for (ik_index t = 0; t < p.indices.shape[1]; t++) {
        const ik_index row = row_of(indices[INDEX(o, t)], p.rows);
        const ik_c factor = IK_LOAD(weights, WEIGHT(o, t));
        if (row >= 0 && factor != 0)
            sum += factor * IK_LOAD(x, from + row * step);
    }
    return sum;
}
#endif

/* y[a, b, o] and x[a, b, n] */
IK_ENTRY(weighted_gather_columns)(IK_PARAMS)
{
    const ik_piece at = ik_piece_of(p.y.shape[2], IK_GROUP_ID);
    const ik_index a = at.line / p.y.shape[1], b = at.line - a * p.y.shape[1];
    const ik_index from = p.x.offset + a * p.x.strides[0] + b * p.x.strides[1];
    const ik_index to = p.y.offset + a * p.y.strides[0] + b * p.y.strides[1];
    for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
        IK_STORE(y, to + i * p.y.strides[2], sum_of(p, x, indices, weights, from, p.x.strides[2], i));
}

IK_ENTRY(weighted_gather_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index line = IK_ITEM / p.y.shape[2], b = IK_ITEM - line * p.y.shape[2], a = line / p.y.shape[1],
                   o = line - a * p.y.shape[1];
    const ik_index from = p.x.offset + a * p.x.strides[0] + b * p.x.strides[2];
    IK_STORE(y, p.y.offset + a * p.y.strides[0] + o * p.y.strides[1] + b * p.y.strides[2],
        sum_of(p, x, indices, weights, from, p.x.strides[1], o));
}
