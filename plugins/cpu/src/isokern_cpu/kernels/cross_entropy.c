/* cross_entropy: weight[t] * (ln sum over c of exp(x[i, c]) - x[i, t]) of each label t, or the sum or mean of these;
 * a task is a row, which is read once, in its own type.
 *
 * Made of other operators, x of 16 bits is cast first: the whole takes two thirds of that time or less. This file
 * includes itself, for float and for double. */
#ifndef IK_T
#include "log_sums.h"
#include "operators/cross_entropy.h"
#include "operators/gather.h"

/* The loss of a label, and what it weighs. */
typedef struct term {
    double loss, weight;
} term;

typedef struct job {
    const ik_tensor *tx, *ttarget, *tweight;
    const char *x, *target, *weight; /* weight: null where there is none */
    int64_t ignored, size;
    term *terms;
} job;

static double value_at(int32_t dtype, const char *at)
{
    double wide;
    float narrow;
    if (dtype == IK_F64) {
        ik_load_f64(at, 1, 1, &wide);
        return wide;
    }
    ik_load_f32(dtype, at, 1, 1, &narrow);
    return (double)narrow;
}

static int64_t label_of(const job *j, int64_t row)
{ return ik_index_at(j->ttarget->dtype, j->target, row * j->ttarget->strides[0]); }

#define IK_FILE "cross_entropy.c"
#include "each_type.h"

IK_SUPPORTED(cross_entropy)
{
    const ik_cross_entropy_attrs *attrs = plan->attrs;
    if (!ik_classes_are_dense(&plan->tensors[IK_CROSS_ENTROPY_X]))
        return "classes that do not lie along memory";
    return attrs->label_smoothing == 0 ? NULL : "labels that are smoothed";
}

IK_WORKSPACE(cross_entropy) { return (uint64_t)plan->tensors[IK_CROSS_ENTROPY_X].shape[0] * sizeof(term); }

IK_KERNEL(cross_entropy)
{
    IK_UNUSED;
    const ik_cross_entropy_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors, *ty = &t[IK_CROSS_ENTROPY_Y];
    const bool weighted = ik_present(plan, IK_CROSS_ENTROPY_WEIGHT);
    const job j = { .tx = &t[IK_CROSS_ENTROPY_X],
        .ttarget = &t[IK_CROSS_ENTROPY_TARGET],
        .tweight = weighted ? &t[IK_CROSS_ENTROPY_WEIGHT] : NULL,
        .x = ik_ptr(plan, data, IK_CROSS_ENTROPY_X),
        .target = ik_ptr(plan, data, IK_CROSS_ENTROPY_TARGET),
        .weight = weighted ? ik_ptr(plan, data, IK_CROSS_ENTROPY_WEIGHT) : NULL,
        .ignored = attrs->ignore_index,
        .size = ik_itemsize(ty->dtype),
        .terms = workspace };
    const int64_t rows = j.tx->shape[0], classes = j.tx->shape[1];
    if (rows > 0)
        ik_parallel_for(rows, 1 + IK_THREAD_BYTES / (1 + classes * j.size), ty->dtype == IK_F64 ? run_f64 : run_f32,
            (void *)(uintptr_t)&j);
    char *y = ik_ptr(plan, data, IK_CROSS_ENTROPY_Y);
    double loss = 0, rest = 0, weight = 0, weight_rest = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (attrs->reduction == IK_CROSS_ENTROPY_NONE)
            ik_store_one(ty, y + i * ty->strides[0] * j.size, j.terms[i].loss);
        ik_add_double(&loss, &rest, j.terms[i].loss, true);
        ik_add_double(&weight, &weight_rest, j.terms[i].weight, true);
    }
    loss = ik_join_double(loss, rest), weight = ik_join_double(weight, weight_rest);
    if (attrs->reduction != IK_CROSS_ENTROPY_NONE)
        ik_store_one(ty, y, attrs->reduction == IK_CROSS_ENTROPY_MEAN ? loss / weight : loss);
    for (int64_t i = 0; i < rows; i++) { /* as the gather of weights reports it */
        const int64_t label = label_of(&j, i);
        if ((label < 0 || label >= classes) && label != j.ignored)
            return ik_bad_value_of(IK_OP_GATHER, i, label < 0 ? label - classes : label);
    }
    return IK_SUCCESS;
}

#else

/* Rows begin .. end. */
static void IK_OF(run)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t classes = j->tx->shape[1];
    IK_T scratch[IK_CHUNK] IK_ALIGNED;
    for (int64_t row = begin; row < end; row++) {
        const int64_t label = label_of(j, row);
        const bool counts = label >= 0 && label < classes && label != j->ignored;
        const char *x = j->x + row * j->tx->strides[0] * j->size;
        term made = { 0, counts };
        if (counts && j->weight != NULL)
            made.weight = value_at(j->tweight->dtype, j->weight + label * j->tweight->strides[0] * j->size);
        if (made.weight != 0)
            made.loss =
                (IK_OF(ik_log_sum)(j->tx->dtype, x, classes, scratch) - value_at(j->tx->dtype, x + label * j->size))
                * made.weight;
        j->terms[row] = made;
    }
}

#endif
