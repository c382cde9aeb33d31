/* reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min: y[k] = op over r of x[k, r], the kept dims k before the
 * reduced dims r.
 *
 * The work is divided by reduction_dims.h; the parts of an output are joined in order. The loops are in reduce_typed.h,
 * for float, double and int64_t (U64 with its top bit flipped). */
#ifndef IK_T
#include "reduction_dims.h"
#include "runs.h"
#include "isokern_cast.h"
#include "operators/reduce_max.h"
#include "operators/reduce_mean.h"
#include "operators/reduce_min.h"
#include "operators/reduce_prod.h"

/* A tile of WIDTH outputs is wide, so that it reads whole pages: a thread that reads 4 KB of each row waits for
 * each. */
enum { WIDTH = 4 * IK_TILE, NARROW = IK_TILE, BRIEF = 8, FLUSH = 8 };

/* A float result is high + low; low is 0 but for a sum. */
typedef union value {
    struct {
        double high, low;
    } f;
    int64_t i;
} value;

typedef struct job {
    ik_reduction dims;
    char *y;
    const char *x;
    int32_t dtype, what;
    bool integer, direct; /* direct: x has the compute type */
    bool runs; /* each output is the result of one run of x, all of them equally far apart */
    double divisor; /* of a sum: 1, or for a mean the number of elements */
    int64_t last; /* of an extreme of integers: the last value that the type has, which no elements give */
    int64_t size, flip;
    value *parts; /* [chunks][outputs] */
    double *scratch; /* [threads][4][span] */
} job;

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
    char *to = j->y + ik_reduction_y(&j->dims, output) * j->size;
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

static const void *fetch(const void *context, const char *from, int64_t step, int64_t n, void *run_scratch)
{
    const job *j = context;
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

#define IK_FILE "reduce.c"
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64 | IK_EACH_I64)
#include "each_type.h"

static void join_parts(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t o = begin; o < end; o++) {
        value v = j->parts[o];
        for (int64_t c = 1; c < j->dims.chunks; c++)
            join(j, &v, j->parts[c * j->dims.outputs + o]);
        store_one(j, o, v);
    }
}

/* Set up everything that follows from the plan; false where there is no output. */
static bool set_up(const ik_plan *plan, job *j)
{
    const ik_tensor *x = &plan->tensors[1];
    *j = (job){ .dtype = x->dtype, .size = ik_itemsize(x->dtype) };
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
    const bool some = ik_reduction_of(plan, WIDTH, NARROW, BRIEF, &j->dims);
    j->divisor = plan->kind == IK_OP_REDUCE_MEAN ? (double)j->dims.length : 1;
    j->runs = !j->integer && j->direct && !j->dims.columns && j->dims.chunks == 1 && j->dims.kept == 1
        && j->dims.reduced == 1 && j->dims.step[1][0] == 1;
    return some;
}

static uint64_t scratch_bytes(const job *j) { return (uint64_t)(4 * j->dims.span * ik_threads()) * sizeof(double); }

IK_WORKSPACE(reduce)
{
    job j;
    if (!set_up(plan, &j))
        return 0;
    return scratch_bytes(&j) + (j.dims.chunks > 1 ? (uint64_t)(j.dims.chunks * j.dims.outputs) * sizeof(value) : 0);
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
    const int64_t outputs = j.dims.outputs, chunks = j.dims.chunks;
    if (j.dims.length == 0) {
        for (int64_t o = 0; o < outputs; o++)
            store_one(&j, o, nothing(&j));
        return IK_SUCCESS;
    }
    if (j.integer)
        ik_reduction_run(&j.dims, j.size, rows_i64, columns_i64, &j);
    else if (j.dtype == IK_F64)
        ik_reduction_run(&j.dims, j.size, rows_f64, columns_f64, &j);
    else
        ik_reduction_run(&j.dims, j.size, rows_f32, columns_f32, &j);
    if (chunks > 1)
        ik_parallel_for(outputs, IK_THREAD_BYTES / (chunks * (int64_t)sizeof(value)), join_parts, &j);
    return IK_SUCCESS;
}

#else
#include "reduce_typed.h"
#endif
