/* Template of pool2d.c: one output row of a pooling window in compute type `IK_T` (IK_OF adds the type's suffix
 * to the functions).
 *
 * y[j] = combine over ky, kx of x[row(ky)][first + j * step + kx * spread]: first down the columns (whole rows of x,
 * vectorised), then along the row. */

/* The larger of a and b; NaN where either is. */
static inline __attribute__((always_inline)) IK_T IK_OF(larger)(IK_T a, IK_T b)
{
    IK_T m = a > b ? a : b; /* b where either is NaN */
    return a != a ? a : m;
}

static inline __attribute__((always_inline)) IK_T IK_OF(combine)(bool largest, IK_T a, IK_T b)
{ return largest ? IK_OF(larger)(a, b) : a + b; }

/* The same of three: compilers make many more instructions of a chain of `larger` than of one look for NaN. */
static inline __attribute__((always_inline)) IK_T IK_OF(combine_three)(bool largest, IK_T a, IK_T b, IK_T c)
{
    if (!largest)
        return a + b + c;
    IK_T pair = a > b ? a : b, m = pair > c ? pair : c;
    return __builtin_isunordered(a, b) | (c != c) ? (IK_T)__builtin_nan("") : m; /* gcc: faster than without c */
}

/* column[i] = combine over the window's rows of x[row][from + i], i < n. */
static inline __attribute__((always_inline)) void IK_OF(columns)(bool largest, const pool *p, const char *plane,
    int64_t row, int64_t rows, int64_t row_step, int64_t from, int64_t n, IK_T *column)
{
    const int64_t size = ik_itemsize(p->x->dtype), along = p->x->strides[3], down = row_step * p->x->strides[2];
    const char *at = plane + (row * p->x->strides[2] + from * along) * size;
    if (p->x->dtype != (sizeof(IK_T) == 8 ? IK_F64 : IK_F32) || along != 1) {
        IK_T loaded[COLUMNS];
        IK_OF(load)(p->x->dtype, at, along, n, column);
        for (int64_t i = 1; i < rows; i++) {
            IK_OF(load)(p->x->dtype, at + i * down * size, along, n, loaded);
            IK_VECTORISE for (int64_t k = 0; k < n; k++)
                column[k] = IK_OF(combine)(largest, column[k], loaded[k]);
        }
        return;
    }
    const IK_T *x = (const IK_T *)(const void *)at;
    int64_t i = rows < 3 ? rows : 3;
    if (rows == 1) {
        memcpy(column, x, (size_t)n * sizeof *x);
    } else if (rows == 2) {
        const IK_T *second = x + down;
        IK_VECTORISE for (int64_t k = 0; k < n; k++)
            column[k] = IK_OF(combine)(largest, x[k], second[k]);
    } else {
        const IK_T *second = x + down, *third = second + down;
        IK_VECTORISE for (int64_t k = 0; k < n; k++)
            column[k] = IK_OF(combine_three)(largest, x[k], second[k], third[k]);
    }
    for (; i + 1 < rows; i += 2) {
        const IK_T *line = x + i * down, *next = line + down;
        IK_VECTORISE for (int64_t k = 0; k < n; k++)
            column[k] = IK_OF(combine_three)(largest, column[k], line[k], next[k]);
    }
    if (i < rows) {
        const IK_T *line = x + i * down;
        IK_VECTORISE for (int64_t k = 0; k < n; k++)
            column[k] = IK_OF(combine)(largest, column[k], line[k]);
    }
}

/* y[j] = combine(v[j * step + k * spread]) for k < taps, j < n; every part but the first is combined with y[j] too. A
 * constant step and spread let it vectorise. */
static inline __attribute__((always_inline)) void IK_OF(along)(
    bool largest, bool fresh, int64_t taps, int64_t step, int64_t spread, int64_t n, const IK_T *v, IK_T *y)
{
    if (taps == 2 && fresh) {
        IK_VECTORISE for (int64_t j = 0; j < n; j++)
            y[j] = IK_OF(combine)(largest, v[j * step], v[j * step + spread]);
        return;
    }
    if (taps == 3 && fresh) {
        IK_VECTORISE for (int64_t j = 0; j < n; j++) {
            const IK_T *w = v + j * step;
            y[j] = IK_OF(combine_three)(largest, w[0], w[spread], w[2 * spread]);
        }
        return;
    }
    IK_T part[OUTPUTS]; /* sixteen taps at a time, so that long sums lose less precision */
    for (int64_t first = 0; first < taps; first += 16) {
        const int64_t end = ik_min(taps, first + 16);
        int64_t k = first + (end - first > 1);
        IK_VECTORISE for (int64_t j = 0; j < n; j++) {
            const IK_T *w = v + j * step + first * spread;
            part[j] = end - first > 1 ? IK_OF(combine)(largest, w[0], w[spread]) : w[0];
        }
        for (k++; k + 1 < end; k += 2) {
            IK_VECTORISE for (int64_t j = 0; j < n; j++) {
                const IK_T *w = v + j * step + k * spread;
                part[j] = IK_OF(combine_three)(largest, part[j], w[0], w[spread]);
            }
        }
        if (k < end) {
            IK_VECTORISE for (int64_t j = 0; j < n; j++)
                part[j] = IK_OF(combine)(largest, part[j], v[j * step + k * spread]);
        }
        if (fresh && first == 0)
            memcpy(y, part, (size_t)n * sizeof *y);
        else IK_VECTORISE
            for (int64_t j = 0; j < n; j++)
                y[j] = IK_OF(combine)(largest, y[j], part[j]);
    }
}

static inline __attribute__((always_inline)) void IK_OF(window)(
    bool largest, bool fresh, const pool *p, int64_t taps, int64_t n, const IK_T *v, IK_T *y)
{
    if (p->step[1] == 1 && p->spread[1] == 1)
        IK_OF(along)(largest, fresh, taps, 1, 1, n, v, y);
    else if (p->step[1] == 2 && p->spread[1] == 1)
        IK_OF(along)(largest, fresh, taps, 2, 1, n, v, y);
    else
        IK_OF(along)(largest, fresh, taps, p->step[1], p->spread[1], n, v, y);
}

/* The sum of n elements, in 16 interleaved partial sums. */
static inline IK_T IK_OF(sum)(int64_t n, const IK_T *v)
{
    IK_T part[16] = { 0 };
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int64_t k = 0; k < 16; k++)
            part[k] += v[i + k];
    for (int64_t k = 0; i + k < n; k++)
        part[k] += v[i + k];
    for (int64_t half = 8; half > 0; half /= 2)
        for (int64_t k = 0; k < half; k++)
            part[k] += part[k + half];
    return part[0];
}

/* The columns of the windows of row oy, at `need` places from `from` on; `rows` of the windows' rows lie inside x. They
 * are in `column`, or where they lie in memory. */
static inline __attribute__((always_inline)) const IK_T *IK_OF(gather)(bool largest, const pool *p, const char *plane,
    int64_t oy, int64_t from, int64_t need, bool in_place, int64_t *rows, IK_T *column)
{
    const int64_t top = oy * p->step[0] - p->pad[0], width = p->x->shape[3];
    int64_t first;
    *rows = inside(top, p->spread[0], p->kernel[0], p->x->shape[2], &first);
    const int64_t row = top + first * p->spread[0], low = ik_min(need, ik_max(0, -from)),
                  high = *rows == 0 ? low : ik_max(low, ik_min(need, width - from));
    if (in_place && *rows == 1 && high - low == need)
        return (const IK_T *)(const void *)(plane + (row * p->x->strides[2] + from) * (int64_t)sizeof(IK_T));
    for (int64_t i = 0; i < low; i++)
        column[i] = largest ? -(IK_T)__builtin_inf() : 0;
    for (int64_t i = high; i < need; i++)
        column[i] = largest ? -(IK_T)__builtin_inf() : 0;
    if (high > low)
        IK_OF(columns)(largest, p, plane, row, *rows, p->spread[0], from + low, high - low, column + low);
    return column;
}

/* Divide the sums of n windows, the first of which begins at `left`. */
static inline void IK_OF(divide)(const pool *p, int64_t rows, int64_t left, int64_t n, IK_T *y)
{
    int64_t width = p->x->shape[3], reach = p->spread[1];
    int64_t space = width - 1 - (p->kernel[1] - 1) * reach - left; /* windows begin .. end - 1 lie inside x */
    int64_t begin = left < 0 ? ik_min(n, ik_ceil_div(-left, p->step[1])) : 0, end = n;
    if (p->count_all)
        begin = 0, rows = p->kernel[0];
    else if ((n - 1) * p->step[1] > space)
        end = space < 0 ? begin : ik_max(begin, ik_min(n, space / p->step[1] + 1));
    IK_T whole = (IK_T)(rows * p->kernel[1]);
    IK_VECTORISE for (int64_t j = begin; j < end; j++)
        y[j] /= whole;
    for (int64_t j = begin == 0 ? end : 0; j < n; j = j + 1 == begin ? end : j + 1) {
        int64_t unused, across = inside(left + j * p->step[1], reach, p->kernel[1], width, &unused);
        y[j] /= (IK_T)(rows * across);
    }
}

/* Compute outputs j0 .. j0 + n - 1 of row oy of a plane, for windows of one size. */
static inline __attribute__((always_inline)) void IK_OF(windows)(
    bool largest, const pool *p, const char *plane, int64_t oy, int64_t j0, int64_t n, IK_T *y)
{
    IK_T column[COLUMNS];
    int64_t reach = p->spread[1], left = j0 * p->step[1] - p->pad[1], rows = 0;
    /* span: inputs of one tap; max_taps: taps computed at a time. */
    int64_t span = (n - 1) * p->step[1] + 1, max_taps = p->kernel[1];
    if (span + (max_taps - 1) * reach > COLUMNS)
        max_taps = (COLUMNS - span) / reach + 1;
    for (int64_t k = 0; k < p->kernel[1]; k += max_taps) {
        int64_t taps = ik_min(max_taps, p->kernel[1] - k);
        const IK_T *v = IK_OF(gather)(
            largest, p, plane, oy, left + k * reach, span + (taps - 1) * reach, p->in_place, &rows, column);
        if (!largest && n == 1 && reach == 1)
            y[0] = (k == 0 ? 0 : y[0]) + IK_OF(sum)(taps, v);
        else
            IK_OF(window)(largest, k == 0, p, taps, n, v, y);
    }
    if (!largest)
        IK_OF(divide)(p, rows, left, n, y);
}

/* Prefetch what the windows are first to read that many rows later: rows of x are too short for the hardware to do so.
 * Inlined, since compilers leave out calls of a function that only prefetches. */
static inline __attribute__((always_inline)) void IK_OF(prefetch)(const pool *p, const char *later, int64_t rows)
{
    later += rows * p->step[0] * p->x->strides[2] * ik_itemsize(p->x->dtype);
    for (int64_t i = 0; i < p->prefetch_bytes; i += 64)
        __builtin_prefetch(later + i);
}

/* Compute `count` whole rows from oy on. Columns that were just stored are not ready to be loaded at other places:
 * those of all rows come first. Windows that do not overlap and fill a row are computed as if all rows were one. */
static inline __attribute__((always_inline)) void IK_OF(whole_rows)(
    bool largest, const pool *p, const char *plane, int64_t oy, int64_t count, const char *later, IK_T *y)
{
    IK_T column[COLUMNS];
    const IK_T *v[ROWS];
    const int64_t n = p->y->shape[3], need = (n - 1) * p->step[1] + 1 + p->spread[1] * (p->kernel[1] - 1);
    const bool joined = count > 1 && p->pitch == n * p->step[1];
    int64_t rows[ROWS];
    for (int64_t r = 0; r < count; r++) {
        IK_OF(prefetch)(p, later, count - 1 + r);
        v[r] = IK_OF(gather)(
            largest, p, plane, oy + r, -p->pad[1], need, p->in_place && !joined, &rows[r], column + r * p->pitch);
    }
    if (joined)
        IK_OF(window)(largest, true, p, p->kernel[1], count * n, column, y);
    for (int64_t r = 0; r < count; r++) {
        if (!joined)
            IK_OF(window)(largest, true, p, p->kernel[1], n, v[r], y + r * n);
        if (!largest)
            IK_OF(divide)(p, rows[r], -p->pad[1], n, y + r * n);
    }
}

/* Compute outputs j0 .. j0 + n - 1 of row oy of a plane, for bins: output j covers columns j * width / ow to ceil((j +
 * 1) * width / ow). */
static inline void IK_OF(bins)(const pool *p, const char *plane, int64_t oy, int64_t j0, int64_t n, IK_T *y)
{
    IK_T v[COLUMNS];
    int64_t top = bin_begin(oy, p->height, p->y->shape[2]), rows = bin_end(oy, p->height, p->y->shape[2]) - top,
            have = 0, base = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t begin = bin_begin(j0 + j, p->width, p->y->shape[3]), end = bin_end(j0 + j, p->width, p->y->shape[3]);
        y[j] = 0;
        for (int64_t at = begin; at < end;) {
            if (at < base || at >= base + have || (end > base + have && end - begin <= COLUMNS)) {
                base = at;
                have = ik_min(COLUMNS, p->width - at);
                IK_OF(columns)(false, p, plane, top, rows, 1, base, have, v);
            }
            int64_t take = ik_min(end, base + have) - at;
            y[j] += IK_OF(sum)(take, v + (at - base));
            at += take;
        }
        y[j] /= (IK_T)(rows * (end - begin));
    }
}

static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const pool *p = context;
    const ik_tensor *to = p->y, *from = p->x;
    const int64_t size = ik_itemsize(to->dtype), step = to->strides[3];
    const bool direct = to->dtype == (sizeof(IK_T) == 8 ? IK_F64 : IK_F32) && step == 1;
    int64_t oy = begin % to->shape[2], plane = begin / to->shape[2], c = plane % to->shape[1], n = plane / to->shape[1];
    IK_T made[OUTPUTS];
    for (int64_t row = begin, rows; row < end; row += rows) {
        rows = ik_min(p->rows, ik_min(end - row, to->shape[2] - oy));
        const char *x = p->x_data + (n * from->strides[0] + c * from->strides[1]) * size;
        char *out = p->y_data + (n * to->strides[0] + c * to->strides[1] + oy * to->strides[2]) * size;
        const char *later = x + (oy * p->step[0] - p->pad[0] + p->kernel[0]) * from->strides[2] * size;
        if (p->rows == 1)
            IK_OF(prefetch)(p, later, 3);
        int64_t count = rows * to->shape[3];
        for (int64_t j = 0; j < rows * to->shape[3]; j += count) {
            count = p->rows > 1 ? count : ik_min(p->outputs, to->shape[3] - j);
            IK_T *y = direct ? (IK_T *)(void *)(out + j * size) : made;
            if (p->mode == BINS)
                IK_OF(bins)(p, x, oy, j, count, y);
            else if (p->rows > 1 && p->mode == LARGEST)
                IK_OF(whole_rows)(true, p, x, oy, rows, later, y);
            else if (p->rows > 1)
                IK_OF(whole_rows)(false, p, x, oy, rows, later, y);
            else if (p->mode == LARGEST)
                IK_OF(windows)(true, p, x, oy, j, count, y);
            else
                IK_OF(windows)(false, p, x, oy, j, count, y);
            if (!direct)
                IK_OF(store)(to->dtype, y, out + j * step * size, step, count);
        }
        oy += rows;
        if (oy == to->shape[2]) {
            oy = 0;
            if (++c == to->shape[1])
                c = 0, n++;
        }
    }
}
