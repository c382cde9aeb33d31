/* reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min: y[k] = op over r of x[k, r], the kept dims k before the
 * reduced dims r.
 *
 * Along memory ("rows") an output is the result of runs of x; across it ("columns") a row of accumulators meets one row
 * of x after the other. Long reductions with few outputs are cut into chunks, whose number depends on the shapes alone,
 * and joined in order: the result does not depend on the number of threads. The loops are in reduce_typed.h, for float,
 * double and int64_t (U64 with its top bit flipped). */
#ifndef IK_T
#include "runs.h"
#include "isokern_cast.h"
#include "operators/reduce_max.h"
#include "operators/reduce_mean.h"
#include "operators/reduce_min.h"
#include "operators/reduce_prod.h"

/* A tile of WIDTH outputs is wide, so that it reads whole pages: a thread that reads 4 KB of each row waits for
 * each. */
enum {
    WIDTH = 4 * IK_TILE,
    NARROW = IK_TILE,
    FEW = 64,
    ROW_CHUNK = 1 << 15,
    COLUMN_CHUNK = 1 << 16,
    COLUMN_ROWS = 256,
    FLUSH = 8
};

/* A float result is high + low; low is 0 but for a sum. */
typedef union value {
    struct {
        double high, low;
    } f;
    int64_t i;
} value;

typedef struct job {
    char *y;
    const char *x;
    int32_t dtype, what, kept, reduced;
    bool integer, columns, direct; /* direct: x has the compute type */
    double divisor; /* of a sum: 1, or for a mean the number of elements */
    int64_t last; /* of an extreme of integers: the last value that the type has, which no elements give */
    int64_t size, flip, outputs, length; /* length: elements for each output */
    int64_t shape[2][IK_MAX_RANK], step[2][IK_MAX_RANK], to[IK_MAX_RANK]; /* [0] kept, [1] reduced */
    int64_t columns_dim, column_step, column_to, group; /* the last kept dim; rows of x that are one run in memory */
    int64_t tiles, chunks, per_chunk, span; /* span: accumulators of a tile */
    value *parts; /* [chunks][outputs] */
    double *scratch; /* [threads][4][span] */
} job;

static int64_t offset_of(int32_t dims, const int64_t *shape, const int64_t *step, int64_t index)
{
    int64_t offset = 0;
    for (int32_t i = dims - 1; i >= 0; i--) {
        offset += index % shape[i] * step[i];
        index /= shape[i];
    }
    return offset;
}

static inline float times_f32(float a, float b) { return a * b; }
static inline double times_f64(double a, double b) { return a * b; }
static inline int64_t times_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static void join(const job *j, value *into, value part)
{
    if (j->integer && j->what == IK_SUM) {
        into->i += part.i;
    } else if (j->integer && j->what == IK_PRODUCT) {
        into->i = times_i64(into->i, part.i);
    } else if (j->integer) {
        into->i = j->what == IK_MAX ? ik_maximum_i64(into->i, part.i) : ik_minimum_i64(into->i, part.i);
    } else if (j->what == IK_SUM) {
        ik_add_double(&into->f.high, &into->f.low, part.f.high, true);
        into->f.low += part.f.low;
    } else if (j->what == IK_PRODUCT) {
        into->f.high *= part.f.high;
    } else {
        into->f.high =
            j->what == IK_MAX ? ik_maximum_f64(into->f.high, part.f.high) : ik_minimum_f64(into->f.high, part.f.high);
    }
}

static value nothing(const job *j)
{
    value v = { .f = { 0, 0 } };
    if (j->integer && (j->what == IK_SUM || j->what == IK_PRODUCT))
        v.i = j->what == IK_PRODUCT;
    else if (j->integer)
        v.i = j->last;
    else if (j->what == IK_PRODUCT)
        v.f.high = 1;
    else if (j->what != IK_SUM)
        v.f.high = j->what == IK_MAX ? -__builtin_inf() : __builtin_inf();
    return v;
}

static void store_one(const job *j, int64_t output, value v)
{
    char *to = j->y + offset_of(j->kept, j->shape[0], j->to, output) * ik_itemsize(j->dtype);
    double f = ik_join_double(v.f.high, v.f.low) / j->divisor;
    float narrow = (float)f;
    v.i ^= j->flip;
    if (j->integer)
        ik_store_i64(j->dtype, &v.i, to, 1, 1);
    else if (j->dtype == IK_F64)
        ik_store_f64(&f, to, 1, 1);
    else
        ik_store_f32(j->dtype, &narrow, to, 1, 1);
}

static const void *fetch(const job *j, const char *from, int64_t step, int64_t n, void *run_scratch)
{
    if (step == 1 && j->direct)
        return from;
    if (!j->integer)
        return ik_fetch(j->dtype, from, step, n, run_scratch);
    int64_t *values = run_scratch;
    ik_load_i64(j->dtype, from, step, n, values);
    for (int64_t i = 0; i < n && j->flip != 0; i++)
        values[i] ^= j->flip;
    return values;
}

static value run_of_i64(int32_t what, int64_t n, const int64_t *x)
{
    int64_t sum = 0, product = 1, max = INT64_MIN, min = INT64_MAX;
    if (what == IK_SUM)
        for (int64_t i = 0; i < n; i++)
            sum += x[i];
    else if (what == IK_PRODUCT)
        for (int64_t i = 0; i < n; i++)
            product = times_i64(product, x[i]);
    else if (what == IK_MAX)
        for (int64_t i = 0; i < n; i++)
            max = x[i] > max ? x[i] : max;
    else
        for (int64_t i = 0; i < n; i++)
            min = x[i] < min ? x[i] : min;
    return (value){ .i = what == IK_SUM ? sum : what == IK_PRODUCT ? product : what == IK_MAX ? max : min };
}

static value run_of_f32(int32_t what, int64_t n, const float *x)
{
    if (what == IK_PRODUCT)
        return (value){ .f = { ik_product_of_f32(n, x), 0 } };
    double f = what == IK_SUM
        ? ik_sum_of_f32(IK_SUM, n, x, 0)
        : (double)(what == IK_MAX ? ik_extreme_of_f32(IK_MAX, n, x) : ik_extreme_of_f32(IK_MIN, n, x));
    return (value){ .f = { f, 0 } };
}

static value run_of_f64(int32_t what, int64_t n, const double *x)
{
    if (what == IK_PRODUCT)
        return (value){ .f = { ik_product_of_f64(n, x), 0 } };
    double f = what == IK_SUM ? ik_sum_of_f64(IK_SUM, n, x, 0)
        : what == IK_MAX      ? ik_extreme_of_f64(IK_MAX, n, x)
                              : ik_extreme_of_f64(IK_MIN, n, x);
    return (value){ .f = { f, 0 } };
}

/* A position in the reduced dims. */
typedef struct place {
    int64_t index[IK_MAX_RANK], offset;
} place;

static place place_at(const job *j, int64_t at)
{
    place p = { .offset = 0 };
    for (int32_t i = j->reduced - 1; i >= 0; i--) {
        p.index[i] = at % j->shape[1][i];
        at /= j->shape[1][i];
        p.offset += p.index[i] * j->step[1][i];
    }
    return p;
}

/* The number of elements left in the innermost dim. */
static int64_t run_left(const job *j, const place *p) { return j->shape[1][j->reduced - 1] - p->index[j->reduced - 1]; }

/* Advance by n elements, at most to the end of the innermost dim. */
static void advance(const job *j, place *p, int64_t n)
{
    int32_t i = j->reduced - 1;
    p->index[i] += n;
    p->offset += n * j->step[1][i];
    for (; i > 0 && p->index[i] == j->shape[1][i]; i--) {
        p->offset += j->step[1][i - 1] - p->index[i] * j->step[1][i];
        p->index[i] = 0;
        p->index[i - 1]++;
    }
}

#define IK_FILE "reduce.c"
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64 | IK_EACH_I64)
#include "each_type.h"

static void join_parts(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t o = begin; o < end; o++) {
        value v = j->parts[o];
        for (int64_t c = 1; c < j->chunks; c++)
            join(j, &v, j->parts[c * j->outputs + o]);
        store_one(j, o, v);
    }
}

/* Set up everything that follows from the plan; false where there is no output. */
static bool set_up(const ik_plan *plan, job *j)
{
    const ik_tensor *y = &plan->tensors[0], *x = &plan->tensors[1];
    *j = (job){ .dtype = x->dtype, .size = ik_itemsize(x->dtype), .outputs = 1, .length = 1, .group = 1, .chunks = 1 };
    j->integer = ik_is_integer(x->dtype);
    j->what = plan->kind == IK_OP_REDUCE_MAX ? IK_MAX
        : plan->kind == IK_OP_REDUCE_MIN     ? IK_MIN
        : plan->kind == IK_OP_REDUCE_PROD    ? IK_PRODUCT
                                             : IK_SUM;
    j->flip = x->dtype == IK_U64 && (j->what == IK_MAX || j->what == IK_MIN) ? INT64_MIN : 0;
    if (j->integer) {
        uint64_t bits = 0;
        ik_convert_value(j->what == IK_MAX ? -__builtin_inf() : __builtin_inf(), x->dtype, &bits);
        ik_load_i64(x->dtype, &bits, 1, 1, &j->last);
        j->last ^= j->flip;
    }
    j->direct = x->dtype == IK_F32 || (j->size == 8 && j->flip == 0);
    int32_t column = -1; /* the kept dim with the smallest step goes last */
    for (int32_t i = 0; i < x->ndim && y->strides[i] != 0; i++)
        if (column < 0 || x->shape[column] == 1
            || (x->shape[i] > 1 && ik_magnitude(x->strides[i]) < ik_magnitude(x->strides[column])))
            column = i;
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < x->ndim && y->strides[i] != 0; i++)
            if ((i == column) == (pass == 1)) {
                j->shape[0][j->kept] = x->shape[i];
                j->step[0][j->kept] = x->strides[i];
                j->to[j->kept++] = y->strides[i];
                j->outputs *= x->shape[i];
            }
    for (int32_t i = j->kept; i < x->ndim; i++) {
        j->shape[1][j->reduced] = x->shape[i];
        j->step[1][j->reduced++] = x->strides[i];
        j->length *= x->shape[i];
    }
    j->divisor = plan->kind == IK_OP_REDUCE_MEAN ? (double)j->length : 1;
    if (j->reduced == 0)
        j->shape[1][j->reduced++] = 1;
    if (j->outputs == 0)
        return false;
    int64_t run = j->shape[1][j->reduced - 1], along = ik_magnitude(j->step[1][j->reduced - 1]);
    int64_t width = j->columns_dim = j->kept > 0 ? j->shape[0][j->kept - 1] : 1;
    j->column_step = j->kept > 0 ? j->step[0][j->kept - 1] : 1;
    j->column_to = j->kept > 0 ? j->to[j->kept - 1] : 1;
    if (j->column_step == 1 && width <= NARROW / 2 && j->step[1][j->reduced - 1] == width)
        j->group = ik_max(1, ik_min(NARROW / width, run));
    j->columns = j->outputs > 1 && (along > ik_magnitude(j->column_step) ? width >= 8 || j->group > 1 : run < 8);
    if (j->columns) {
        j->tiles = ik_ceil_div(width, WIDTH);
        j->span = (ik_min(width, WIDTH) * j->group + 7) / 8 * 8;
        int64_t tasks = j->outputs / width * j->tiles, rows = ik_max(COLUMN_CHUNK / ik_min(width, WIDTH), COLUMN_ROWS);
        if (tasks < FEW / 4)
            j->chunks = ik_max(1, ik_min(FEW / tasks, j->length / rows));
    } else if (j->outputs < FEW) {
        j->chunks = ik_max(1, ik_ceil_div(j->length, ROW_CHUNK));
    }
    j->per_chunk = j->columns ? ik_ceil_div(j->length, j->chunks) : j->chunks > 1 ? ROW_CHUNK : j->length;
    return true;
}

static uint64_t scratch_bytes(const job *j) { return (uint64_t)(4 * j->span * ik_threads()) * sizeof(double); }

IK_WORKSPACE(reduce)
{
    job j;
    if (!set_up(plan, &j))
        return 0;
    return scratch_bytes(&j) + (j.chunks > 1 ? (uint64_t)(j.chunks * j.outputs) * sizeof(value) : 0);
}

IK_KERNEL(reduce)
{
    IK_UNUSED;
    job j;
    if (!set_up(plan, &j))
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, 0);
    j.x = ik_ptr(plan, data, 1);
    j.scratch = workspace;
    j.parts = (value *)(void *)((char *)workspace + scratch_bytes(&j));
    if (j.length == 0) {
        for (int64_t o = 0; o < j.outputs; o++)
            store_one(&j, o, nothing(&j));
        return IK_SUCCESS;
    }
    ik_task *task = j.integer ? j.columns ? columns_i64 : rows_i64
        : j.dtype == IK_F64   ? j.columns ? columns_f64 : rows_f64
        : j.columns           ? columns_f32
                              : rows_f32;
    int64_t width = j.columns ? ik_min(j.columns_dim, WIDTH) : 1,
            n = j.chunks * (j.columns ? j.outputs / j.columns_dim * j.tiles : j.outputs);
    ik_parallel_for(n, IK_THREAD_BYTES / (j.per_chunk * width * j.size), task, &j);
    if (j.chunks > 1)
        ik_parallel_for(j.outputs, IK_THREAD_BYTES / (j.chunks * (int64_t)sizeof(value)), join_parts, &j);
    return IK_SUCCESS;
}

#else
#include "reduce_typed.h"
#endif
