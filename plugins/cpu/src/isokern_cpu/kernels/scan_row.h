/* Running sums, products, extremes and linear steps, for scan.c: y[t] = y[t - 1] + x[t], y[t - 1] * x[t], max(x[t],
 * y[t - 1]) or min, or a[t] * y[t - 1] + x[t]. A step waits for the one before it, so that several rows at once take no
 * longer than one: a few that are walked along in memory, or a tile of them with rows as lanes. This file includes
 * itself, for float, double, and for integers of 64 bits, whose sign only extremes heed. */
#ifndef IK_T
#ifndef IK_SCAN_ROW_H
#define IK_SCAN_ROW_H
#include "scan_extremes.h"

/* What a step is; how many rows are walked along together: more, of lengths that are powers of two, would not fit in a
 * set of the cache; and bytes of each row that are made at once, and bytes between the rows of a buffer for them. */
enum { ANY, SUMS, PRODUCTS, LINEAR, MAXIMA, MINIMA, ROWS = 8, CHUNK = 1024, ROW_PITCH = CHUNK + 64 };

/* Rows of x, and of a where steps are linear, with steps in elements. */
typedef struct run_of_rows {
    const char *x[ROWS], *a[ROWS];
    int64_t step_x, step_a;
} run_of_rows;

/* Lines of a tile: x, a where steps are linear, and y; pitches in elements. */
typedef struct lines_of_rows {
    const char *x, *a;
    char *y;
    int64_t pitch_x, pitch_a, pitch_y;
} lines_of_rows;

#define IK_FILE "scan_row.h"
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64 | IK_EACH_I64 | IK_EACH_U64)
#include "each_type.h"

/* Walk along rows in the compute type, to rows ROW_PITCH bytes apart, with steps of 1 or -1; `state` has a value for
 * each row. */
static void accumulate(int32_t compute, int64_t rows, int32_t kind, bool exclusive, const run_of_rows *f, char *to,
    int64_t step, int64_t count, char *state)
{
    const bool extremes = kind == MAXIMA || kind == MINIMA;
    if (compute == IK_F32 && extremes)
        accumulate_extremes_f32(IK_F32, rows, kind, f, to, step, count, state);
    else if (compute == IK_F64 && extremes)
        accumulate_extremes_f64(IK_F64, rows, kind, f, to, step, count, state);
    else if (compute == IK_I64 && extremes)
        accumulate_extremes_i64(IK_I64, rows, kind, f, to, step, count, state);
    else if (extremes)
        accumulate_extremes_u64(IK_U64, rows, kind, f, to, step, count, state);
    else if (compute == IK_F32)
        accumulate_rows_f32(rows, kind, exclusive, f, to, step, count, state);
    else if (compute == IK_F64)
        accumulate_rows_f64(rows, kind, exclusive, f, to, step, count, state);
    else
        accumulate_rows_u64(rows, kind, exclusive, f, to, step, count, state);
}

/* Step over `count` lines of n lanes; `state` has the line before the first, and then the last. */
static void step_lines(
    int32_t compute, int64_t n, int32_t kind, bool exclusive, const lines_of_rows *f, int64_t count, void *state)
{
    const bool extremes = kind == MAXIMA || kind == MINIMA;
    if (compute == IK_F32 && extremes)
        step_extremes_f32(n, kind, f, count, state);
    else if (compute == IK_F64 && extremes)
        step_extremes_f64(n, kind, f, count, state);
    else if (compute == IK_I64 && extremes)
        step_extremes_i64(n, kind, f, count, state);
    else if (extremes)
        step_extremes_u64(n, kind, f, count, state);
    else if (compute == IK_F32)
        step_kind_f32(n, kind, exclusive, f, count, state);
    else if (compute == IK_F64)
        step_kind_f64(n, kind, exclusive, f, count, state);
    else
        step_kind_u64(n, kind, exclusive, f, count, state);
}
#endif

#else

typedef IK_T IK_OF(four_steps) __attribute__((vector_size(4 * sizeof(IK_T)), aligned(sizeof(IK_T)), may_alias));

/* Whether a number is NaN is whether it differs from itself, for which compilers warn where it is an integer. */
static inline __attribute__((always_inline)) bool IK_OF(differ)(IK_T a, IK_T b) { return a != b; }

/* An extreme that is NaN stays: NaN is taken from x, and no comparison with it takes another. */
static inline __attribute__((always_inline)) IK_T IK_OF(step_from)(
    const int32_t kind, IK_T before, const IK_T *x, const IK_T *a)
{
    if (kind == MAXIMA || kind == MINIMA) {
        const IK_T further = (kind == MAXIMA ? *x > before : *x < before) ? *x : before;
        return IK_OF(differ)(*x, *x) ? *x : further;
    }
    return kind == PRODUCTS ? before * *x : kind == SUMS ? before + *x : *a * before + *x;
}

/* The rows r < `rows` of x and a, steps in elements; `state` has the value before each row, and then the last. Four
 * steps of a row are stored at once, since stores to eight rows in turn take as many cycles. */
static inline __attribute__((always_inline)) void IK_OF(walk_rows)(const int32_t rows, const int32_t kind,
    const bool exclusive, const run_of_rows *f, IK_T *y, int64_t step, int64_t n, IK_T *state)
{
    const int64_t pitch = ROW_PITCH / (int64_t)sizeof *y, step_x = f->step_x, step_a = f->step_a;
    const bool dense = step == 1 && step_x == 1 && (kind != LINEAR || step_a == 1);
    const IK_T *x[ROWS], *a[ROWS];
    IK_T value[ROWS];
    for (int32_t r = 0; r < rows; r++) {
        x[r] = (const IK_T *)(const void *)f->x[r], a[r] = (const IK_T *)(const void *)f->a[r];
        value[r] = state[r];
    }
    int64_t t = 0;
    for (; dense && t + 4 <= n; t += 4, y += 4) {
#pragma GCC unroll 8
        for (int32_t r = 0; r < rows; r++) {
            IK_T made[4];
#pragma GCC unroll 4
            for (int32_t i = 0; i < 4; i++) {
                const IK_T before = value[r];
                value[r] = IK_OF(step_from)(kind, before, x[r] + t + i, a[r] + t + i);
                made[i] = exclusive ? before : value[r];
            }
            *(IK_OF(four_steps) *)(y + r * pitch) = (IK_OF(four_steps)){ made[0], made[1], made[2], made[3] };
        }
    }
    for (; t < n; t++, y += step) {
#pragma GCC unroll 8
        for (int32_t r = 0; r < rows; r++) {
            const IK_T before = value[r];
            value[r] = IK_OF(step_from)(kind, before, x[r] + t * step_x, a[r] + t * step_a);
            y[r * pitch] = exclusive ? before : value[r];
        }
    }
    memcpy(state, value, (size_t)rows * sizeof *state);
}

static inline __attribute__((always_inline)) void IK_OF(walk_kind)(const int32_t rows, int32_t kind, bool exclusive,
    const run_of_rows *f, IK_T *y, int64_t step, int64_t n, IK_T *state)
{
    if (kind == SUMS && exclusive)
        IK_OF(walk_rows)(rows, SUMS, true, f, y, step, n, state);
    else if (kind == SUMS)
        IK_OF(walk_rows)(rows, SUMS, false, f, y, step, n, state);
    else if (kind == PRODUCTS && exclusive)
        IK_OF(walk_rows)(rows, PRODUCTS, true, f, y, step, n, state);
    else if (kind == PRODUCTS)
        IK_OF(walk_rows)(rows, PRODUCTS, false, f, y, step, n, state);
    else if (exclusive)
        IK_OF(walk_rows)(rows, LINEAR, true, f, y, step, n, state);
    else
        IK_OF(walk_rows)(rows, LINEAR, false, f, y, step, n, state);
}

/* Walk along up to ROWS rows. */
static __attribute__((unused)) void IK_OF(accumulate_rows)(
    int64_t rows, int32_t kind, bool exclusive, const run_of_rows *f, void *to, int64_t step, int64_t n, void *state)
{
    if (rows == ROWS) {
        IK_OF(walk_kind)(ROWS, kind, exclusive, f, to, step, n, state);
        return;
    }
    run_of_rows part = *f;
    for (int64_t r = 0, count; r < rows; r += count) {
        IK_T *y = (IK_T *)(void *)((char *)to + r * ROW_PITCH), *before = (IK_T *)state + r;
        count = rows - r >= 4 ? 4 : 1;
        memcpy(part.x, f->x + r, (size_t)count * sizeof *part.x);
        memcpy(part.a, f->a + r, (size_t)count * sizeof *part.a);
        if (count == 4)
            IK_OF(walk_kind)(4, kind, exclusive, &part, y, step, n, before);
        else
            IK_OF(walk_kind)(1, kind, exclusive, &part, y, step, n, before);
    }
}

/* Walk along up to ROWS rows, whose extremes are made by vectors where they can be. */
static __attribute__((noinline)) void IK_OF(accumulate_extremes)(
    int32_t compute, int64_t rows, int32_t kind, const run_of_rows *f, char *to, int64_t step, int64_t n, void *state)
{
    run_of_rows part = *f;
    if (!VECTOR_EXTREMES && rows == ROWS && kind == MAXIMA)
        IK_OF(walk_rows)(ROWS, MAXIMA, false, f, (IK_T *)(void *)to, step, n, state);
    else if (!VECTOR_EXTREMES && rows == ROWS)
        IK_OF(walk_rows)(ROWS, MINIMA, false, f, (IK_T *)(void *)to, step, n, state);
    for (int64_t r = 0; r < rows && (VECTOR_EXTREMES || rows < ROWS); r++, to += ROW_PITCH) {
        IK_T *before = (IK_T *)state + r;
        part.x[0] = f->x[r], part.a[0] = f->a[r];
        if (f->step_x == step && scan_extremes(compute, kind == MINIMA, step < 0, f->x[r], to, n, before))
            continue;
        if (kind == MAXIMA)
            IK_OF(walk_rows)(1, MAXIMA, false, &part, (IK_T *)(void *)to, step, n, before);
        else
            IK_OF(walk_rows)(1, MINIMA, false, &part, (IK_T *)(void *)to, step, n, before);
    }
}

typedef IK_T IK_OF(lane_vector) __attribute__((vector_size(IK_VECTOR), aligned(sizeof(IK_T)), may_alias));

static inline __attribute__((always_inline)) IK_OF(lane_vector) IK_OF(step_vector)(
    const int32_t kind, IK_OF(lane_vector) before, IK_OF(lane_vector) x, const IK_OF(lane_vector) * a)
{
    typedef __typeof__(before > x) mask;
    if (kind == MAXIMA || kind == MINIMA) {
        const IK_OF(lane_vector) same = x;
        const mask take = (kind == MAXIMA ? x > before : x < before) | (x != same);
        return (IK_OF(lane_vector))((take & (mask)x) | (~take & (mask)before));
    }
    return kind == PRODUCTS ? before * x : kind == SUMS ? before + x : *a * before + x;
}

/* The values of some lanes stay in registers. */
static inline __attribute__((always_inline)) void IK_OF(step_lanes)(
    const int32_t kind, const bool exclusive, int64_t n, const lines_of_rows *f, int64_t count, IK_T *state)
{
    typedef IK_OF(lane_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_T) };
    const IK_T *x = (const IK_T *)(const void *)f->x, *a = (const IK_T *)(const void *)f->a;
    IK_T *y = (IK_T *)(void *)f->y;
    int64_t k = 0;
    for (; k + 2 * LANES <= n; k += 2 * LANES) {
        vector first = *(const vector *)(state + k), second = *(const vector *)(state + k + LANES);
        for (int64_t t = 0; t < count; t++) {
            const vector *given = (const vector *)(x + t * f->pitch_x + k);
            const vector *factor = kind == LINEAR ? (const vector *)(a + t * f->pitch_a + k) : given;
            vector *to = (vector *)(y + t * f->pitch_y + k);
            const vector before = first, next = second;
            first = IK_OF(step_vector)(kind, first, given[0], factor);
            second = IK_OF(step_vector)(kind, second, given[1], factor + 1);
            to[0] = exclusive ? before : first, to[1] = exclusive ? next : second;
        }
        *(vector *)(state + k) = first, *(vector *)(state + k + LANES) = second;
    }
    for (int64_t t = 0; t < count && k < n; t++) IK_VECTORISE
        for (int64_t i = k; i < n; i++) {
            const IK_T before = state[i];
            state[i] = IK_OF(step_from)(kind, before, x + t * f->pitch_x + i, a + t * f->pitch_a + i);
            y[t * f->pitch_y + i] = exclusive ? before : state[i];
        }
}

static __attribute__((unused)) void IK_OF(step_kind)(
    int64_t n, int32_t kind, bool exclusive, const lines_of_rows *f, int64_t count, void *state)
{
    if (kind == SUMS && exclusive)
        IK_OF(step_lanes)(SUMS, true, n, f, count, state);
    else if (kind == SUMS)
        IK_OF(step_lanes)(SUMS, false, n, f, count, state);
    else if (kind == PRODUCTS && exclusive)
        IK_OF(step_lanes)(PRODUCTS, true, n, f, count, state);
    else if (kind == PRODUCTS)
        IK_OF(step_lanes)(PRODUCTS, false, n, f, count, state);
    else if (exclusive)
        IK_OF(step_lanes)(LINEAR, true, n, f, count, state);
    else
        IK_OF(step_lanes)(LINEAR, false, n, f, count, state);
}

static __attribute__((noinline)) void IK_OF(step_extremes)(
    int64_t n, int32_t kind, const lines_of_rows *f, int64_t count, void *state)
{
    if (kind == MAXIMA)
        IK_OF(step_lanes)(MAXIMA, false, n, f, count, state);
    else
        IK_OF(step_lanes)(MINIMA, false, n, f, count, state);
}
#endif
