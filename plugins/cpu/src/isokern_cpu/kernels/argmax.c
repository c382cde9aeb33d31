/* argmax along the last dim: y = the first i with x[i] NaN, or else the first i with x[i] largest.
 *
 * Along memory a run's largest element is found first, and its index only where it beats what came before. Across
 * memory a row of best values and indices meets one row of x after the other. Where long rows are few, they are cut
 * into chunks, whose number depends on the shapes alone, and joined in order. This file includes itself, for float,
 * double and int64_t (U64 with its top bit flipped). */
#ifndef IK_T
#include "runs.h"
#include "operators/argmax.h"

enum { PIECE = 4 * IK_TILE, CHUNK = 1 << 15, FEW = 64 };

typedef struct best {
    double f;
    int64_t i, at;
} best;

typedef struct job {
    const ik_tensor *ty, *tx;
    const char *x;
    int64_t *y;
    /* from, to: steps of x and y along the dim that columns are taken from. */
    int64_t rows, d, size, flip, chunks, from, to;
    /* Number of columns: size of the last row dim; 0 where runs go along memory. */
    int64_t width;
    bool integer;
    best *parts; /* [rows][chunks] */
} job;

static inline __attribute__((always_inline)) const void *fetch(
    const job *j, const char *from, int64_t step, int64_t n, void *scratch)
{
    if (!j->integer)
        return ik_fetch(j->tx->dtype, from, step, n, scratch);
    int64_t *values = scratch;
    ik_load_i64(j->tx->dtype, from, step, n, values);
    for (int64_t i = 0; i < n && j->flip != 0; i++)
        values[i] ^= j->flip;
    return values;
}

static int64_t largest_i64(int64_t n, const int64_t *x)
{
    int64_t max = INT64_MIN;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static inline __attribute__((always_inline)) bool nan_f32(float x) { return x != x; }
static inline __attribute__((always_inline)) bool nan_f64(double x) { return x != x; }
static inline __attribute__((always_inline)) bool nan_i64(int64_t x) { return (void)x, false; }
static float largest_f32(int64_t n, const float *x) { return ik_extreme_of_f32(IK_MAX, n, x); }
static double largest_f64(int64_t n, const double *x) { return ik_extreme_of_f64(IK_MAX, n, x); }

#define IK_FILE "argmax.c"
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64 | IK_EACH_I64)
#include "each_type.h"

static bool set_up(const ik_plan *plan, job *j)
{
    const ik_tensor *x = &plan->tensors[IK_ARGMAX_X], *y = &plan->tensors[IK_ARGMAX_Y];
    int32_t last = x->ndim - 1;
    *j = (job){ .ty = y,
        .tx = x,
        .size = ik_itemsize(x->dtype),
        .d = x->shape[last],
        .chunks = 1,
        .integer = ik_is_integer(x->dtype) };
    j->flip = x->dtype == IK_U64 ? INT64_MIN : 0;
    j->rows = j->d == 0 ? 0 : ik_numel(x) / j->d;
    if (j->rows == 0)
        return false;
    int64_t along = x->strides[last], across = x->strides[last - 1];
    if ((j->d < 8 || (along != 1 && across == 1)) && x->shape[last - 1] >= 8) {
        j->width = x->shape[last - 1];
        j->from = across;
        j->to = y->strides[last - 1];
    } else if (j->rows < FEW) {
        j->chunks = ik_ceil_div(j->d, CHUNK);
    }
    return true;
}

IK_WORKSPACE(argmax)
{
    job j;
    return set_up(plan, &j) && j.chunks > 1 ? (uint64_t)(j.rows * j.chunks) * sizeof(best) : 0;
}

IK_KERNEL(argmax)
{
    IK_UNUSED;
    job j;
    if (!set_up(plan, &j))
        return IK_SUCCESS;
    j.x = ik_ptr(plan, data, IK_ARGMAX_X);
    j.y = ik_ptr(plan, data, IK_ARGMAX_Y);
    j.parts = workspace;
    if (j.width > 0) {
        int64_t tiles = ik_ceil_div(j.width, IK_TILE);
        ik_parallel_for(j.rows / j.width * tiles, IK_THREAD_BYTES / (j.d * ik_min(j.width, IK_TILE) * j.size),
            j.integer         ? columns_i64
                : j.size == 8 ? columns_f64
                              : columns_f32,
            &j);
        return IK_SUCCESS;
    }
    ik_parallel_for(j.rows * j.chunks, IK_THREAD_BYTES / (ik_min(j.d, CHUNK) * j.size),
        j.integer         ? rows_i64
            : j.size == 8 ? rows_f64
                          : rows_f32,
        &j);
    for (int64_t row = 0; row < j.rows && j.chunks > 1; row++) {
        const best *part = &j.parts[row * j.chunks];
        for (int64_t c = 1; c < j.chunks; c++) {
            const best *other = &j.parts[row * j.chunks + c];
            if (j.integer ? other->i > part->i : part->f == part->f && !(other->f <= part->f))
                part = other;
        }
        j.y[ik_row_offset(j.ty, row, 1)] = part->at;
    }
    return IK_SUCCESS;
}

#else

/* Run tasks begin .. end, numbered row * chunks + chunk. */
static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    IK_T scratch[PIECE] IK_ALIGNED;
    int64_t step = j->tx->strides[j->tx->ndim - 1];
    for (int64_t task = begin; task < end; task++) {
        int64_t row = task / j->chunks, first = task % j->chunks * CHUNK,
                last = j->chunks == 1 ? j->d : ik_min(j->d, first + CHUNK);
        const char *x = j->x + ik_row_offset(j->tx, row, 1) * j->size;
        IK_T max = 0;
        int64_t place = -1;
        for (int64_t at = first; at < last && !IK_OF(nan)(max); at += PIECE) {
            int64_t n = ik_min(last - at, PIECE), i = 0;
            const IK_T *values = fetch(j, x + at * step * j->size, step, n, scratch);
            IK_T candidate = IK_OF(largest)(n, values);
            if (place >= 0 && candidate <= max)
                continue;
            while (IK_OF(nan)(candidate) ? !IK_OF(nan)(values[i]) : values[i] != candidate)
                i++;
            max = candidate;
            place = at + i;
        }
        if (j->chunks == 1)
            j->y[ik_row_offset(j->ty, row, 1)] = place;
        else
            j->parts[task] = (best){ (double)max, j->integer ? (int64_t)max : 0, place };
    }
}

/* Run tasks begin .. end, numbered outer row * tiles + tile, a tile being at most IK_TILE columns. */
static void IK_OF(columns)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    IK_T scratch[IK_TILE] IK_ALIGNED, max[IK_TILE] IK_ALIGNED;
    int64_t place[IK_TILE] IK_ALIGNED, tiles = ik_ceil_div(j->width, IK_TILE), step = j->tx->strides[j->tx->ndim - 1];
    for (int64_t task = begin; task < end; task++) {
        int64_t first = task % tiles * IK_TILE, row = task / tiles * j->width + first,
                n = ik_min(j->width - first, IK_TILE);
        const char *x = j->x + ik_row_offset(j->tx, row, 1) * j->size;
        memcpy(max, fetch(j, x, j->from, n, scratch), (size_t)n * sizeof *max);
        memset(place, 0, sizeof place);
        for (int64_t i = 1; i < j->d; i++) {
            const IK_T *values = fetch(j, x + i * step * j->size, j->from, n, scratch);
            IK_VECTORISE for (int64_t k = 0; k < n; k++) {
                bool better = (values[k] > max[k]) | (IK_OF(nan)(values[k]) & !IK_OF(nan)(max[k]));
                max[k] = better ? values[k] : max[k];
                place[k] = better ? i : place[k];
            }
        }
        int64_t *y = j->y + ik_row_offset(j->ty, row, 1);
        for (int64_t k = 0; k < n; k++)
            y[k * j->to] = place[k];
    }
}

#endif
