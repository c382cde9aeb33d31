/* scan: y[row, t] = body(x0[row, t], …, y[row, t - 1]), an item a row; the value before stays in the compute type.
 *
 * The plan supplies the body of values value_x0, … of the inputs and IK_BEFORE, the value before the step. */
#include "simt.h"

#include "isokern_int.h"
#include "isokern_math.h"

#define FROM(x) ik_index at_##x = p.x.offset;
#define STEP(x) at_##x += at * p.x.strides[dim];
#define VALUE(x) const ik_c value_##x = (ik_c)IK_LOAD(x, at_##x);
#define NEXT(x) at_##x += p.x.strides[last];

#ifdef IK_HAS_init
#define EACH(X) IK_EACH_INPUT(X) X(init) X(y)
#else
#define EACH(X) IK_EACH_INPUT(X) X(y)
#endif

IK_ENTRY(scan)(IK_PARAMS)
{
    ik_index row = IK_ITEM;
    if (row >= p.items)
        return;
    const int last = (int)p.y.ndim - 1;
    EACH(FROM)
    for (int dim = last - 1; dim >= 0; dim--) {
        const ik_index rest = row / p.y.shape[dim], at = row - rest * p.y.shape[dim];
        EACH(STEP)
        row = rest;
    }
#ifdef IK_HAS_init
    ik_c IK_BEFORE = (ik_c)IK_LOAD(init, at_init);
#else
    ik_c IK_BEFORE = p.attr_initial;
#endif
    for (ik_index t = 0; t < p.y.shape[last]; t++) {
        IK_EACH_INPUT(VALUE)
#if EXCLUSIVE
        IK_STORE(y, at_y, IK_BEFORE);
        IK_BEFORE = IK_BODY;
#else
        IK_BEFORE = IK_BODY;
        IK_STORE(y, at_y, IK_BEFORE);
#endif
        EACH(NEXT)
    }
}
