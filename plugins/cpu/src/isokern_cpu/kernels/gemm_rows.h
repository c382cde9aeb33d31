/* Products of a few rows, where reading b is the work: each element of b is read once, in the order it lies. For one float type; after
 * gemm_epilogue.h, with the same IK_T and IK_OF; needs IK_OF(widen), a vector of any dtype as the type's.
 *
 * Columns of b contiguous in k (a weight stored by output): dot products of 4 columns with up to 4 rows of a at once.
 * Rows of b contiguous: sums of a run of columns stay in the level-1 cache while 4 rows of b are added at a time. */

enum { IK_OF(run) = 1024 / (sizeof(IK_T) / 4) };

/* The sum of each vector's lanes, by halves. */
static void IK_OF(fold)(int rows, int cols, IK_T (*lanes)[4][IK_OF(lanes)], IK_T *sums, int64_t sums_row)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            IK_T *x = lanes[r][c];
            for (int w = IK_OF(lanes) / 2; w > 0; w /= 2)
                for (int i = 0; i < w; i++)
                    x[i] += x[i + w];
            sums[r * sums_row + c] = x[0];
        }
}

/* sums[r, c] = Σ_p a[r, p] b[p, c] for `rows` × `cols`; both contiguous in p. */
static inline __attribute__((always_inline)) void IK_OF(dots)(const int rows, const int cols, const int32_t dtype, int64_t k, const IK_T *a, int64_t a_row,
                                                              const char *b, int64_t b_col, IK_T *sums, int64_t sums_row)
{
    enum { LANES = IK_OF(lanes) };
    const int64_t size = ik_itemsize(dtype);
    IK_OF(vector) sum[4][4], x[4];
    IK_T rest_a[LANES], rest_b[LANES];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            sum[r][c] = (IK_OF(vector)){ 0 };
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            x[c] = IK_OF(widen)(dtype, b + (c * b_col + p) * size);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            IK_OF(vector) w = *(const IK_OF(loose) *)(a + r * a_row + p);
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++)
                sum[r][c] = IK_OF(fma)(w, x[c], sum[r][c]);
        }
    }
    if (p < k) { /* the rest, filled up with zeros */
        memset(rest_a, 0, sizeof rest_a);
        memset(rest_b, 0, sizeof rest_b);
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            IK_OF(load)(dtype, b + (c * b_col + p) * size, 1, k - p, rest_b);
            x[c] = *(const IK_OF(loose) *)rest_b;
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            memcpy(rest_a, a + r * a_row + p, (size_t)(k - p) * sizeof *a);
            IK_OF(vector) w = *(const IK_OF(loose) *)rest_a;
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++)
                sum[r][c] = IK_OF(fma)(w, x[c], sum[r][c]);
        }
    }
    IK_T lanes[4][4][LANES];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            *(IK_OF(loose) *)lanes[r][c] = sum[r][c];
    IK_OF(fold)(rows, cols, lanes, sums, sums_row);
}

static inline __attribute__((always_inline)) void IK_OF(dots_of)(const int32_t dtype, int64_t rows, int64_t cols, int64_t k, const IK_T *a, int64_t a_row,
                                                                 const char *b, int64_t b_col, IK_T *sums, int64_t sums_row)
{
    int64_t wide = cols == 4 ? 4 : 1, tall = rows == 4 ? 4 : 1; /* fewer than 4 are taken one by one: each size is code of its own */
    for (int64_t r = 0; r < rows; r += tall)
        for (int64_t c = 0; c < cols; c += wide) {
            const IK_T *x = a + r * a_row;
            const char *y = b + c * b_col * ik_itemsize(dtype);
            IK_T *to = sums + r * sums_row + c;
            if (tall == 4 && wide == 4)
                IK_OF(dots)(4, 4, dtype, k, x, a_row, y, b_col, to, sums_row);
            else if (tall == 4)
                IK_OF(dots)(4, 1, dtype, k, x, a_row, y, b_col, to, sums_row);
            else if (wide == 4)
                IK_OF(dots)(1, 4, dtype, k, x, a_row, y, b_col, to, sums_row);
            else
                IK_OF(dots)(1, 1, dtype, k, x, a_row, y, b_col, to, sums_row);
        }
}

/* Columns first .. first + cols from dot products. */
static void IK_OF(dot_columns)(const ik_product *g, int64_t first, int64_t cols, IK_T *sums)
{
    const IK_T *a = (const IK_T *)(const void *)g->a.at; /* its type and contiguous by now */
    const int64_t a_row = g->a.row;
    for (int64_t j = 0; j < cols; j += 4)
        for (int64_t r = 0; r < g->m; r += 4) {
            int64_t rows = ik_min(4, g->m - r), count = ik_min(4, cols - j);
            const char *b = ik_element(&g->b, 0, first + j);
            IK_T *to = sums + r * IK_OF(run) + j;
            const IK_T *from = a + r * a_row;
            if (sizeof(IK_T) == 4 && g->b.dtype == IK_F16)
                IK_OF(dots_of)(IK_F16, rows, count, g->k, from, a_row, b, g->b.col, to, IK_OF(run));
            else if (sizeof(IK_T) == 4 && g->b.dtype == IK_BF16)
                IK_OF(dots_of)(IK_BF16, rows, count, g->k, from, a_row, b, g->b.col, to, IK_OF(run));
            else
                IK_OF(dots_of)(sizeof(IK_T) == 8 ? IK_F64 : IK_F32, rows, count, g->k, from, a_row, b, g->b.col, to, IK_OF(run));
        }
}

/* sums[j] += Σ_i w[i] b[i, j] for the 4 rows of b at x[0] .. x[3], j < n, n a multiple of a vector's lanes. */
static inline __attribute__((always_inline)) void IK_OF(add_rows)(const int32_t dtype, int64_t n, const IK_T *w, const char *const *x, IK_T *sums)
{
    const int64_t size = ik_itemsize(dtype);
    IK_OF(vector) zero = { 0 }, w0 = w[0] - zero, w1 = w[1] - zero, w2 = w[2] - zero, w3 = w[3] - zero;
    for (int64_t j = 0; j < n; j += IK_OF(lanes)) {
        IK_OF(vector) s = *(const IK_OF(loose) *)(sums + j);
        s = IK_OF(fma)(w0, IK_OF(widen)(dtype, x[0] + j * size), s);
        s = IK_OF(fma)(w1, IK_OF(widen)(dtype, x[1] + j * size), s);
        s = IK_OF(fma)(w2, IK_OF(widen)(dtype, x[2] + j * size), s);
        *(IK_OF(loose) *)(sums + j) = IK_OF(fma)(w3, IK_OF(widen)(dtype, x[3] + j * size), s);
    }
}

/* Columns first .. first + cols from scaled rows of b. */
static void IK_OF(add_columns)(const ik_product *g, int64_t first, int64_t cols, IK_T *sums)
{
    const IK_T *a = (const IK_T *)(const void *)g->a.at; /* its type and contiguous by now */
    const int64_t whole = cols / IK_OF(lanes) * IK_OF(lanes), fours = g->k / 4 * 4, size = ik_itemsize(g->b.dtype);
    for (int64_t r = 0; r < g->m; r++)
        memset(sums + r * IK_OF(run), 0, (size_t)cols * sizeof *sums);
    for (int64_t p = 0; p < fours && whole > 0; p += 4) {
        const char *x[4];
        for (int64_t i = 0; i < 4; i++)
            x[i] = ik_element(&g->b, p + i, first);
        for (int64_t r = 0; r < g->m; r++)
            if (g->b.dtype == IK_F16)
                IK_OF(add_rows)(IK_F16, whole, a + r * g->a.row + p, x, sums + r * IK_OF(run));
            else if (g->b.dtype == IK_BF16)
                IK_OF(add_rows)(IK_BF16, whole, a + r * g->a.row + p, x, sums + r * IK_OF(run));
            else
                IK_OF(add_rows)(sizeof(IK_T) == 8 ? IK_F64 : IK_F32, whole, a + r * g->a.row + p, x, sums + r * IK_OF(run));
    }
    IK_T rest[IK_OF(run)];
    for (int64_t p = 0; p < g->k; p++) { /* the last columns, and the last rows */
        int64_t from = p < fours ? whole : 0;
        if (from == cols)
            continue;
        IK_OF(load)(g->b.dtype, ik_element(&g->b, p, first) + from * size, 1, cols - from, rest);
        for (int64_t r = 0; r < g->m; r++)
            for (int64_t j = from; j < cols; j++)
                sums[r * IK_OF(run) + j] = IK_OF(multiply_add)(a[r * g->a.row + p], rest[j - from], sums[r * IK_OF(run) + j]);
    }
}

/* Groups of 4 columns, counted through the batch. */
static void IK_OF(few_rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_product *whole = context;
    const int64_t groups = ik_ceil_div(whole->n, 4);
    IK_T sums[IK_FEW_ROWS * IK_OF(run)], *copy = (IK_T *)(void *)(whole->workspace + worker * whole->slice_bytes);
    while (begin < end) {
        ik_product g = ik_of_batch(whole, begin / groups);
        int64_t first = 4 * (begin % groups), last = ik_min(g.n, 4 * (end - begin / groups * groups));
        begin += ik_ceil_div(last - first, 4);
        if (!g.a_in_place) {
            for (int64_t r = 0; r < g.m; r++)
                IK_OF(load)(g.a.dtype, ik_element(&g.a, r, 0), g.a.col, g.k, copy + r * g.k);
            g.a.at = (char *)copy, g.a.row = g.k;
        }
        for (; first < last; first += IK_OF(run)) {
            int64_t cols = ik_min(IK_OF(run), last - first);
            if (g.b.row == 1)
                IK_OF(dot_columns)(&g, first, cols, sums);
            else
                IK_OF(add_columns)(&g, first, cols, sums);
            for (int64_t r = 0; r < g.m; r++)
                IK_OF(finish)(&g, r, first, cols, sums + r * IK_OF(run));
        }
    }
}
