/* Host: how a loop nest is planned for generic.xpu: its loops, its body's instructions, and how its work is split.
 *
 * The text that describes a nest to the cores is [sizes of the loops][strides of y, init and each input][instructions];
 * inputs that the body does not name are left out. Outputs are split into chunks, one for a task of a core. Where
 * nothing is reduced, one of the outputs' loops may be walked as terms, so that y and an input that is transposed to it
 * are both copied by runs. Where there are few chunks of many terms, the terms are split into parts. */
#ifndef IK_XPU_NEST_PLAN_H
#define IK_XPU_NEST_PLAN_H
#include <cstdlib>

#include "nest_program.h"

#include "loop_nests.h"

enum {
    IK_GIVEN = 36, /* words of a text that are kernel parameters; earlier launches store the rest */
    /* Cores of the largest device, for which there should be enough tasks; not of this device, so that the split does
     * not depend on it. */
    IK_NEST_SPREAD = 768,
    IK_NEST_PART = 1024, /* terms of a part, at least */
    IK_NEST_PARTS = 64, /* parts, at most */
};

struct ik_piece {
    long long words[IK_GIVEN];
};

struct ik_nest_plan {
    ik_job job;
    int compute; /* the compute type: F32, I64 or U64 */
    int input[IK_PROGRAM_INPUTS]; /* for each input of the job, the plan's input */
    long long text[IK_NEST_TEXT];
};

static inline __host__ __device__ int ik_text_words(const ik_job &j) { return j.ndim * (1 + 2 + j.inputs) + j.words; }

static inline uint64_t ik_round_to_line(long long bytes)
{ return static_cast<uint64_t>((bytes + IK_LINE - 1) / IK_LINE * IK_LINE); }

/* Sections of the workspace: the rest of the text, and the sums of parts. */
static inline uint64_t ik_rest_bytes(const ik_job &j)
{ return ik_round_to_line(8 * ik_max(0, ik_text_words(j) - IK_GIVEN)); }
static inline uint64_t ik_parts_bytes(const ik_nest_plan &n)
{
    return n.job.combine != IK_GENERIC_NONE && n.job.parts > 1
        ? static_cast<uint64_t>(n.job.parts * n.job.total * (n.compute == IK_F32 ? 16 : 8))
        : 0;
}

/* The order of dims [from, to) of a tensor as IK_OUTS_DENSE and IK_OUTS_STILL. */
static inline int ik_order_of(const long long *shape, const long long *strides, int from, int to)
{
    bool dense = true, still = true;
    long long expected = 1;
    for (int d = to - 1; d >= from; d--) {
        dense &= shape[d] == 1 || strides[d] == expected;
        still &= shape[d] == 1 || strides[d] == 0;
        expected *= shape[d];
    }
    return dense * IK_OUTS_DENSE | still * IK_OUTS_STILL;
}

/* A tensor along the loops of one kind: the stride of the last loop, and how many elements are that far apart. */
struct ik_along {
    double run;
    long long stride;
};

static inline ik_along ik_along_of(const ik_nest_plan &n, int tensor, bool outs)
{
    const ik_job &j = n.job;
    const int order = outs ? j.order[tensor] : j.order[tensor] / IK_TERMS_DENSE, last = (outs ? j.kept : j.ndim) - 1;
    if (order & (IK_OUTS_DENSE | IK_OUTS_STILL))
        return { 1e18, order & IK_OUTS_STILL ? 0 : 1 };
    return { static_cast<double>(n.text[last]), n.text[j.ndim * (1 + tensor) + last] };
}

/* Copies per element to fetch tiles of `lines` by `m` elements. */
static inline double ik_copies(const ik_nest_plan &n, bool across, double lines, double m)
{
    double sum = 0.2 / m; /* short lines are slow to compute, too */
    for (int i = 0; i < n.job.inputs; i++) {
        const ik_along a = ik_along_of(n, 2 + i, !across), b = ik_along_of(n, 2 + i, across);
        const double rows = a.run < lines ? a.run : lines, cols = b.run < m ? b.run : m;
        const long long bytes = b.stride * ik_itemsize(n.job.dtype[2 + i]);
        if (b.stride == 1)
            sum += 1 / (a.stride == 0 ? rows * cols : cols);
        else if (b.stride == 0)
            sum += 1 / (a.stride == 0 || a.stride == 1 ? rows * cols : cols);
        else if (a.stride == 0 || a.stride == 1)
            sum += 1 / rows;
        else
            sum += bytes >= -IK_LINE / 2 && bytes <= IK_LINE / 2 ? 1 / cols : 1;
    }
    return sum;
}

/* The plan's tensor that is an input of the body; the one after its inputs is init. */
static inline uint32_t ik_tensor_of_input(const ik_plan *plan, int input)
{
    const uint32_t at = static_cast<uint32_t>(IK_GENERIC_X + input);
    return at == plan->tensor_count ? IK_GENERIC_INIT : at;
}

/* Set the job's loops: the plan's first `kept` loops are the outputs', except the transposed one, if any (else -1). */
static inline void ik_set_loops(ik_nest_plan *n, const ik_plan *plan, int kept, int transposed, const long long *code)
{
    ik_job &j = n->job;
    int from[IK_NEST_DIMS], dims = 0; /* the plan's dim of each loop; -1 for a loop that was added */
    for (int d = 0; d < kept; d++)
        if (d != transposed)
            from[dims++] = d;
    if (dims == 0)
        from[dims++] = -1;
    j.kept = (unsigned char)dims;
    if (transposed >= 0 || kept == plan->tensors[0].ndim)
        from[dims++] = transposed;
    for (int d = kept; d < plan->tensors[0].ndim; d++)
        from[dims++] = d;
    j.ndim = (unsigned char)dims;
    j.total = j.length = 1;
    for (int d = 0; d < dims; d++) {
        n->text[d] = from[d] < 0 ? 1 : plan->tensors[0].shape[from[d]];
        (d < j.kept ? j.total : j.length) *= n->text[d];
    }
    for (int t = 0; t < 2 + j.inputs; t++) {
        const ik_tensor *tensor = &plan->tensors[t < 2 ? t : ik_tensor_of_input(plan, n->input[t - 2])];
        long long *strides = n->text + dims * (1 + t);
        for (int d = 0; d < dims; d++)
            strides[d] = from[d] < 0 || tensor->dtype == IK_NONE ? 0 : tensor->strides[from[d]];
        j.dtype[t] = (unsigned char)tensor->dtype;
        j.order[t] = (unsigned char)(ik_order_of(n->text, strides, 0, j.kept)
            | ik_order_of(n->text, strides, j.kept, dims) * IK_TERMS_DENSE);
    }
    memcpy(n->text + ik_text_words(j) - j.words, code, j.words * sizeof *code);
}

/* Copies per element to store runs of up to n elements of y. */
static inline double ik_store_copies(const ik_nest_plan &n, double elements)
{
    const ik_along y = ik_along_of(n, 0, true);
    return 1 / (y.stride != 1 ? 1 : y.run < elements ? y.run : elements);
}

/* Split outputs of one term each; cores share them in grains. `lines`: outputs of a task, in whole lines. */
static inline double ik_split_outputs(ik_nest_plan *n, long long lines)
{
    ik_job &j = n->job;
    j.grain = ik_grain_of(j.total, ik_itemsize(j.dtype[0]), IK_NEST_SPREAD);
    j.outs = j.chunk = j.space >= j.grain ? j.space / j.grain * j.grain : j.space;
    j.part = j.terms = 1;
    const double m = (double)ik_max(1, ik_min(j.outs, ik_min(j.total, lines)));
    return ik_copies(*n, true, 1, m) + ik_store_copies(*n, m);
}

/* Split outputs of which one loop is walked as terms: tiles are about square. `each`: outputs of a task. */
static inline double ik_split_transposed(ik_nest_plan *n, long long each)
{
    ik_job &j = n->job;
    const int square = j.space >= 256 ? 16 : 8,
              grain = ik_grain_of(j.total * j.length, ik_itemsize(j.dtype[0]), IK_NEST_SPREAD);
    j.outs = j.chunk =
        (int)ik_min(ik_max(square, j.space / ik_min(j.length, square)), ik_max(1, ik_ceil_div(each, grain) * grain));
    const long long chunks = ik_ceil_div(j.total, j.chunk),
                    maximum = ik_min(j.space / j.chunk, ik_max(1, j.length * chunks / IK_NEST_SPREAD));
    j.part = j.terms = (int)ik_max(1, ik_min(j.length, maximum));
    j.parts = (int)ik_ceil_div(j.length, j.part);
    return ik_copies(*n, true, j.terms, (double)ik_min(j.outs, j.total)) + ik_store_copies(*n, j.outs);
}

/* Split outputs and their terms, with tiles whose lines are outputs or terms, whichever takes fewer copies. */
static inline double ik_split_reduction(ik_nest_plan *n, long long each, long long lines)
{
    ik_job &j = n->job;
    const int maximum = (int)ik_min(IK_NEST_OUTS, j.space);
    /* Lines of outputs. */
    const int columns = (int)ik_min(
        j.length >= IK_NEST_BLOCK ? ik_max(16, ik_min(maximum, j.space / IK_NEST_BLOCK / 16 * 16)) : maximum,
        ik_max(1, lines));
    const int terms = (int)ik_max(1, ik_min(j.length, j.space / columns));
    /* Lines of terms. */
    const bool whole = each >= IK_LINE / ik_itemsize(j.dtype[0]);
    const int along = (int)ik_max(1, ik_min(j.length, j.space)),
              chunk = (int)ik_min(maximum, ik_max(1, !whole && along >= IK_LINE ? each : lines));
    const int outs = (int)ik_max(1, ik_min(chunk, j.space / along));
    const double copies[] = { ik_copies(*n, false, outs, along),
        ik_copies(*n, true, terms, (double)ik_min(columns, j.total)) };
    j.across = copies[1] <= copies[0];
    j.chunk = j.across ? columns : chunk;
    j.outs = j.across ? columns : outs;
    j.terms = j.across ? (int)(terms > IK_NEST_BLOCK ? terms / IK_NEST_BLOCK * IK_NEST_BLOCK : terms) : along;
    const long long tasks = ik_ceil_div(j.total, j.chunk);
    if (tasks > 0 && tasks < IK_NEST_SPREAD / 2 && j.length >= 2 * IK_NEST_PART) {
        const long long parts =
            ik_min(IK_NEST_PARTS, ik_min(j.length / IK_NEST_PART, ik_ceil_div(IK_NEST_SPREAD, tasks)));
        j.part = ik_ceil_div(ik_ceil_div(j.length, parts), IK_LINE) * IK_LINE;
        j.parts = (int)ik_ceil_div(j.length, j.part);
    }
    return copies[j.across];
}

/* Split outputs and terms; returns the copies per element. */
static inline double ik_split(ik_nest_plan *n)
{
    ik_job &j = n->job;
    const int value = n->compute == IK_F32 ? 4 : 8, line = IK_LINE / ik_itemsize(j.dtype[0]);
    long long width = value;
    for (int t = 0; t < 2 + j.inputs; t++)
        width = ik_max(width, ik_itemsize(j.dtype[t]));
    const long long each = ik_ceil_div(j.total, IK_NEST_SPREAD), lines = ik_ceil_div(each, line) * line;
    j.space = static_cast<int>(IK_SLOT_BYTES / (j.slots * width) / 16 * 16);
    j.pitch = static_cast<int>(j.space * width / value);
    j.parts = j.across = 1;
    j.part = j.length;
    j.grain = 0;
    if (j.combine != IK_GENERIC_NONE)
        return ik_split_reduction(n, each, lines);
    return j.length <= 1 ? ik_split_outputs(n, lines) : ik_split_transposed(n, each);
}

static inline ik_nest_plan ik_nest_plan_of(const ik_plan *plan)
{
    ik_nest_plan n = {};
    ik_job &j = n.job;
    const ik_tensor *y = &plan->tensors[IK_GENERIC_Y];
    const ik_program *body = nullptr;
    n.compute = ik_nest_compute(plan);
    if (plan->kind == IK_OP_GENERIC) {
        const auto *attrs = static_cast<const ik_generic_attrs *>(plan->attrs);
        body = &attrs->body;
        j.combine = static_cast<unsigned char>(attrs->combine);
    }
    for (const ik_nest &nest : ik_nests)
        if (nest.kind == plan->kind) {
            body = &nest.body;
            j.combine = static_cast<unsigned char>(nest.combine);
        }
    long long code[IK_NEST_WORDS];
    ik_set_program(j, n.compute, *body, n.input, code);
    int kept = 0;
    while (kept < y->ndim && y->strides[kept] != 0)
        kept++;
    ik_set_loops(&n, plan, kept, -1, code);
    double copies = ik_split(&n);
    for (int d = 0; d < kept && j.combine == IK_GENERIC_NONE; d++) {
        ik_nest_plan other = n;
        ik_set_loops(&other, plan, kept, d, code);
        const double needed = ik_split(&other);
        if (needed < copies) {
            copies = needed;
            n = other;
        }
    }
    return n;
}
#endif
