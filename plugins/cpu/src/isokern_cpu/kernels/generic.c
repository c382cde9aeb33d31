/* Loop nests with a body: y[k] = body(x[k]), or combine(init[k], body(x[k, r]) over all r), the kept dims k before the
 * reduced dims r. Inputs and y may have a dtype each.
 *
 * nest.h has the loops over tiles. The lanes of a reduction's tiles are outputs, or terms where outputs are few or far
 * apart. Long reductions with few outputs are cut into chunks, whose number depends on the shapes alone, so that the
 * result does not depend on the number of threads. Sums of products of floats that are matrix products go to
 * contract.h. */
#ifndef IK_T
#include "contract.h"
#include "tiles.h"

#if IK_IN_PART(0)
#include "nest.h"

enum {
    MIN_LANES = 16,            /* with fewer outputs, lanes are terms */
    MIN_SPANS = 16,            /* with fewer spans of outputs, terms are cut into chunks */
    MIN_CHUNK_VALUES = 1 << 15 /* values of the body in a chunk */
};

/* Without a reduction: compute outputs begin .. end. */
static void map(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_lanes y = ik_lanes_of(&j->plan->tensors[0], j->compute, 0, j->kept);
    frame f;
    open_frame(&f, j);
    for (int64_t at = begin; at < end; at += j->width) {
        int64_t n = ik_min(j->width, end - at);
        for (int32_t i = 0; i < j->inputs; i++)
            select_lanes(&f.x[i], at, n);
        fetch_inputs(&f, j->x, n);
        for (int32_t i = 0; i < j->inputs; i++) /* fetch the next tiles while the steps run over these */
            if (f.x[i].in_place && f.x[i].lanes.dense)
                ik_prefetch((const char *)f.place[i] + n * j->size, ik_min(n, end - at - n) * j->size);
        char *place = ik_lanes_in_place(&y, j->y, at, n);
        const void *made = ik_evaluate(&j->steps, n, f.place, place != NULL && !j->stream ? place : f.out);
        if (made == place)
            continue;
        if (j->stream && place != NULL) {
            ik_stream_copy(place, made, n * j->size);
        } else if (j->stream && y.dense) {
            ik_store_mixed(j->compute, y.dtype, made, f.acc, 1, n);
            ik_stream_copy(j->y + at * y.size, f.acc, n * y.size);
        } else {
            store_lanes(&y, j->y, at, n, made);
        }
    }
    if (j->stream)
        ik_stream_fence();
}

/* Combine the results of outputs at .. at + n with init, and write them to y. */
static void finish(frame *f, int64_t at, int64_t n)
{
    const job *j = f->j;
    const ik_lanes y = ik_lanes_of(&j->plan->tensors[0], j->compute, 0, j->kept),
                   init = ik_lanes_of(&j->plan->tensors[1], j->compute, 0, j->kept);
    load_lanes(&init, j->init, at, n, f->out);
    if (j->float_sums) {
        for (int64_t i = 0; i < n; i++) {
            double high = f->high[i], low = f->low[i];
            ik_add_double(&high, &low, value_of(j, f->out + i * j->size), true);
            high = ik_join_double(high, low);
            if (j->compute == IK_F32)
                ((float *)(void *)f->out)[i] = (float)high;
            else
                ((double *)(void *)f->out)[i] = high;
        }
    } else if (j->terms > 0) {
        const void *in[3] = { f->results, f->out };
        ik_run_tile(j->compute, j->combine_code, n, in, f->out);
    }
    store_lanes(&y, j->y, at, n, f->out);
}

/* Where a chunk's results for outputs `at` and after are; the low parts of sums are numbered after all high ones. */
static char *partial_at(const job *j, int64_t chunk, int64_t at, int64_t size)
{ return j->partial + chunk * j->outputs * (int64_t)sizeof(double) + at * size; }

/* Run tasks begin .. end, numbered span * chunks + chunk. */
static void reduce(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    frame f;
    open_frame(&f, j);
    for (int64_t task = begin; task < end; task++) {
        int64_t chunk = task % j->chunks, at = task / j->chunks * j->span, n = ik_min(j->span, j->outputs - at);
        int64_t from = chunk * j->chunk_terms, count = ik_min(j->chunk_terms, j->terms - from);
        clear_sums(&f, n);
        if (count > 0)
            (j->lanes_are_terms ? accumulate_lines : accumulate_columns)(&f, at, n, from, count);
        if (j->chunks == 1) {
            finish(&f, at, n);
        } else if (j->float_sums) {
            memcpy(partial_at(j, chunk, at, sizeof *f.high), f.high, (size_t)n * sizeof *f.high);
            memcpy(partial_at(j, j->chunks + chunk, at, sizeof *f.low), f.low, (size_t)n * sizeof *f.low);
        } else {
            memcpy(partial_at(j, chunk, at, j->size), f.results, (size_t)(n * j->size));
        }
    }
}

/* Combine the chunks of outputs begin .. end, in their order. */
static void join_chunks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    frame f;
    open_frame(&f, j);
    f.results = f.acc;
    for (int64_t at = begin; at < end; at += j->width) {
        int64_t n = ik_min(j->width, end - at);
        clear_sums(&f, n);
        for (int64_t chunk = 0; chunk < j->chunks; chunk++) {
            if (j->float_sums) {
                const double *high = (const double *)(const void *)partial_at(j, chunk, at, sizeof *high),
                             *low = (const double *)(const void *)partial_at(j, j->chunks + chunk, at, sizeof *low);
                for (int64_t i = 0; i < n; i++) {
                    ik_add_double(&f.high[i], &f.low[i], high[i], true);
                    f.low[i] += low[i];
                }
            } else if (chunk == 0) {
                memcpy(f.acc, partial_at(j, 0, at, j->size), (size_t)(n * j->size));
            } else {
                const void *in[3] = { f.acc, partial_at(j, chunk, at, j->size) };
                ik_run_tile(j->compute, j->combine_code, n, in, f.acc);
            }
        }
        finish(&f, at, n);
    }
}

/* The body, and how its values combine, by the operator. */
static const ik_program *body_of(const ik_plan *plan, int32_t *combine)
{
    if (plan->kind == IK_OP_GENERIC) {
        const ik_generic_attrs *attrs = plan->attrs;
        *combine = (int32_t)attrs->combine;
        return &attrs->body;
    }
    for (size_t i = 0; i < sizeof ik_nests / sizeof *ik_nests; i++)
        if (ik_nests[i].kind == plan->kind) {
            *combine = ik_nests[i].combine;
            return &ik_nests[i].body;
        }
    return NULL;
}

/* Number of inputs whose lanes along a dim are neither contiguous nor all the same element. */
static int64_t count_strided(const job *j, int32_t dim)
{
    int64_t count = 0;
    for (int32_t i = 0; i < j->inputs; i++) {
        int64_t step = input_of(j, i)->strides[dim];
        count += step != 0 && step != 1;
    }
    return count;
}

/* Choose what lanes are, the width of tiles, and the tasks of a reduction. */
static void choose_blocking(job *j)
{
    const int64_t tiles = j->inputs + j->steps.constants + j->steps.depth + j->steps.kept + 2;
    j->width = ik_min(TILE_BYTES, LIVE_BYTES / tiles / 64 * 64) / j->size;
    if (j->reduced > 0 && j->kept > 0) {
        const int64_t along = count_strided(j, j->kept + j->reduced - 1), across = count_strided(j, j->kept - 1);
        j->lanes_are_terms = j->terms >= 4 * MIN_LANES ? along < across || j->outputs < MIN_LANES : j->outputs == 1;
    } else {
        j->lanes_are_terms = j->reduced > 0;
    }
    j->span = !j->lanes_are_terms ? j->width : j->outputs < 4 * LINES ? 1 : LINES;
    j->spans = ik_ceil_div(j->outputs, j->span);
    int64_t chunks = 1;
    if (j->spans > 0 && j->spans < MIN_SPANS)
        chunks = ik_max(1, ik_min(4 * MIN_SPANS / j->spans, j->terms * ik_min(j->outputs, j->span) / MIN_CHUNK_VALUES));
    j->chunk_terms = ik_ceil_div(j->terms, chunks);
    j->chunks = j->chunk_terms > 0 ? ik_ceil_div(j->terms, j->chunk_terms) : 1;
}

/* Set up everything that follows from the plan; returns null, or why there is no kernel. */
static const char *set_up(const ik_plan *plan, job *j)
{
    *j = (job){ .plan = plan, .inputs = (int32_t)plan->tensor_count - 2, .outputs = 1, .terms = 1 };
    const ik_program *body = body_of(plan, &j->combine);
    const ik_tensor *y = &plan->tensors[0], *init = &plan->tensors[1], *x = &plan->tensors[2];
    if (j->combine == IK_GENERIC_NONE && init->dtype != IK_NONE) /* the body reads it */
        j->inputs++;
    if (body == NULL || j->inputs < 1 || j->inputs > IK_PROGRAM_INPUTS || y->ndim < 1)
        return "a loop nest of a kind that is not known, or without one to eight inputs and a loop";
    if (j->combine != IK_GENERIC_NONE && init->dtype == IK_NONE)
        return "a combine without init";
    j->compute = ik_nest_compute(plan);
    j->size = ik_width(j->compute);
    const char *reason = ik_steps_of(body, j->compute, j->inputs, &j->steps);
    if (reason != NULL)
        return reason;
    for (int32_t d = 0; d < y->ndim; d++) {
        bool kept = y->strides[d] != 0;
        *(kept ? &j->outputs : &j->terms) *= y->shape[d];
        *(kept ? &j->kept : &j->reduced) += 1;
    }
    j->float_sums = j->combine == IK_GENERIC_SUM && (j->compute == IK_F32 || j->compute == IK_F64);
    j->combine_code = j->combine == IK_GENERIC_SUM ? IK_CODE_ADD
        : j->combine == IK_GENERIC_PRODUCT         ? IK_CODE_MUL
        : j->combine == IK_GENERIC_MAXIMUM         ? IK_CODE_FN_MAXIMUM
                                                   : IK_CODE_FN_MINIMUM;
    bool product = body->count == 3 && body->v[2] == IK_CODE_MUL && j->inputs == 2 && body->v[0] != body->v[1]
        && x[0].dtype == x[1].dtype && ik_is_float(x[0].dtype) && ik_is_float(y->dtype)
        && ik_compute_of(x[0].dtype) == j->compute;
    if (j->float_sums && product)
        j->contracts = ik_set_up_contraction(plan, j->kept, 2 * IK_VECTOR / j->size, j->size, &j->contraction);
    choose_blocking(j);
    return NULL;
}

IK_SUPPORTED(generic)
{
    job j;
    return set_up(plan, &j);
}

IK_WORKSPACE(generic)
{
    job j;
    if (set_up(plan, &j) != NULL)
        return 0;
    if (j.contracts)
        return (uint64_t)(j.contraction.slice_bytes * ik_threads());
    if (j.chunks == 1)
        return 0;
    return (uint64_t)(2 * j.chunks * j.outputs) * sizeof(double);
}

IK_KERNEL(generic)
{
    IK_UNUSED;
    job j;
    const char *reason = set_up(plan, &j);
    if (reason != NULL)
        return ik_fail(IK_NOT_IMPLEMENTED, reason);
    j.y = ik_ptr(plan, data, 0);
    j.init = ik_ptr(plan, data, 1);
    for (int32_t i = 0; i < j.inputs; i++)
        j.x[i] = ik_ptr(plan, data, (uint32_t)(input_of(&j, i) - plan->tensors));
    j.partial = workspace;
    if (j.combine == IK_GENERIC_NONE) {
        const int64_t size = ik_itemsize(plan->tensors[0].dtype); /* a tile has no space for wider elements */
        j.stream = j.outputs * size >= IK_STREAM_BYTES && size <= j.size;
        ik_parallel_for(j.outputs, IK_THREAD_BYTES / j.size, map, &j);
        return IK_SUCCESS;
    }
    if (j.contracts) {
        ik_contraction *c = &j.contraction;
        c->y.data = j.y, c->init.data = ik_ptr(plan, data, 1);
        c->a.data = ik_ptr(plan, data, (uint32_t)(c->a.t - plan->tensors));
        c->b.data = ik_ptr(plan, data, (uint32_t)(c->b.t - plan->tensors));
        c->workspace = workspace;
        ik_parallel_for(ik_contraction_tasks(c), ik_contraction_grain(c),
            j.compute == IK_F32 ? IK_PART_NAME(generic_f32).contract : IK_PART_NAME(generic_f64).contract, c);
        return IK_SUCCESS;
    }
    int64_t work = ik_min(j.span, j.outputs) * j.chunk_terms * j.size * (1 + j.steps.count);
    ik_parallel_for(j.spans * j.chunks, 1 + IK_THREAD_BYTES / (1 + work), reduce, &j);
    if (j.chunks > 1)
        ik_parallel_for(j.outputs, 1 + IK_THREAD_BYTES / (j.chunks * (int64_t)sizeof(double)), join_chunks, &j);
    return IK_SUCCESS;
}
#endif

#define IK_FILE "generic.c"
#include "each_type.h"

#else
#include "gemm_tile.h"
#include "contract_typed.h"
const ik_nest_loops IK_SHARED(IK_OF(generic)) = { IK_OF(run), IK_OF(contract) };
#endif
