/* generic, batch_matmul, conv_2d_nchw_fchw, pooling_nchw_sum, pooling_nchw_max: y[k] = body(x0[k], x1[k], ...), or
 * init[k] combined with the body over r of (x0[k, r], x1[k, r], ...), with the kept loops k before the reduced ones r,
 * along which y's strides are 0. One item per output; one work-group per output where outputs are few, or are not
 * adjacent in memory. The body may read init where nothing is combined.
 *
 * The plan supplies the body, and IK_EACH_INPUT(X), X(x0) X(x1) ..., applies a macro to each input that it has. Where
 * outputs are few, each is computed in parts, which the workspace holds as [part][output] and a second launch joins in
 * order. */
#include "generic.h"

/* The offset of a tensor's element at the loops so far, and one more step of a loop. */
#define FROM(x) ik_index at_##x = p.x.offset;
#define STEP(x) at_##x += at * p.x.strides[loop];
#define VALUE(x) const ik_c value_##x = (ik_c)IK_LOAD(x, at_##x);

/* What is done to the tensors of one output. */
#if defined(PARTS)
#define EACH(X) IK_EACH_INPUT(X)
#elif defined(IK_HAS_init) && !defined(IK_COMBINE_none)
#define EACH(X) IK_EACH_INPUT(X) X(init) X(y)
#else
#define EACH(X) IK_EACH_INPUT(X) X(y)
#endif

IK_ENTRY(generic_map)(IK_PARAMS)
{
    ik_index at = IK_ITEM;
    if (at >= p.items)
        return;
    EACH(FROM)
    int loop = (int)p.y.ndim - 1;
    for (; loop > 0; loop--) {
        const ik_index rest = at / p.y.shape[loop];
        at -= rest * p.y.shape[loop];
        EACH(STEP)
        at = rest;
    }
    EACH(STEP) /* what is left is the index in the first loop */
    IK_EACH_INPUT(VALUE)
    PUT(y, at_y, IK_BODY);
}

#define HERE(x) ik_index in_##x = at_##x + at * p.x.strides[last];
#define MOVE(x) in_##x += at * p.x.strides[loop];
#define NEXT(x) in_##x += IK_LANES * p.x.strides[last];
#define TERM(x) const ik_c value_##x = (ik_c)IK_LOAD(x, in_##x);

IK_ENTRY(generic_reduce)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const ik_index part = IK_TASK / p.outputs, output = IK_TASK - part * p.outputs;
    const ik_index begin = part * p.length, end = begin + p.length < p.d ? begin + p.length : p.d;
    const int kept = (int)p.kept, last = (int)p.y.ndim - 1;
    const ik_index inner = kept <= last ? p.y.shape[last] : 1;
    ik_index left = output;
    EACH(FROM)
    for (int loop = kept - 1; loop >= 0; loop--) {
        const ik_index rest = left / p.y.shape[loop], at = left - rest * p.y.shape[loop];
        EACH(STEP)
        left = rest;
    }
    ik_fold f = ik_fold_none();
    for (ik_index i = begin + IK_LANE; i < end;) { /* the rest of the last loop needs no division */
        ik_index outer = i / inner, at = i - outer * inner;
        const ik_index stop = inner - at < end - i ? i + inner - at : end;
        IK_EACH_INPUT(HERE)
        for (int loop = last - 1; loop >= kept; loop--) {
            const ik_index rest = outer / p.y.shape[loop];
            at = outer - rest * p.y.shape[loop];
            IK_EACH_INPUT(MOVE)
            outer = rest;
        }
        for (; i < stop; i += IK_LANES) {
            IK_EACH_INPUT(TERM)
            f = ik_fold_add(f, IK_BODY);
            IK_EACH_INPUT(NEXT)
        }
    }
    f = ik_fold_group(f, scratch);
    if (IK_LANE == 0)
#ifdef PARTS
        ((IK_GLOBAL ik_fold *)workspace)[IK_TASK] = f;
#else
        PUT(y, at_y, ik_fold_value(ik_fold_add(f, (ik_c)IK_LOAD(init, at_init)), 1));
#endif
}
