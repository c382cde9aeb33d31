/* Products of a few rows, where reading b is the work: each element of b is read once, in the order it lies. For one float type; after
 * gemm_epilogue.h, with the same IK_T and IK_OF; needs IK_OF(widen), a vector of any dtype as the type's.
 *
 * Columns of b contiguous in k (a weight stored by output): dot products of 4 columns with up to 4 rows of a at once.
 * Rows of b contiguous: sums of a run of columns stay in the level-1 cache while 4 rows of b are added at a time. */

enum { IK_OF(run) = 1024 / (sizeof(IK_T) / 4) };

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
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            IK_T lanes[LANES];
            *(IK_OF(loose) *)lanes = sum[r][c];
            for (int w = LANES / 2; w > 0; w /= 2)
                for (int i = 0; i < w; i++)
                    lanes[i] += lanes[i + w];
            sums[r * sums_row + c] = lanes[0];
        }
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

/* sums[j] += Σ_i w[i] x[i][j], 4 rows of b. */
static void IK_OF(add_rows)(int64_t n, const IK_T *w, const IK_T *const *x, IK_T *restrict sums)
{
    const IK_T *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    IK_VECTORISE
    for (int64_t j = 0; j < n; j++)
        sums[j] = IK_OF(multiply_add)(w3, x3[j], IK_OF(multiply_add)(w2, x2[j], IK_OF(multiply_add)(w1, x1[j], IK_OF(multiply_add)(w0, x0[j], sums[j]))));
}

/* Columns first .. first + cols from scaled rows of b. */
static void IK_OF(add_columns)(const ik_product *g, int64_t first, int64_t cols, IK_T *sums)
{
    const IK_T *a = (const IK_T *)(const void *)g->a.at; /* its type and contiguous by now */
    const int64_t a_row = g->a.row;
    IK_T wide[4][IK_OF(run)];
    for (int64_t r = 0; r < g->m; r++)
        memset(sums + r * IK_OF(run), 0, (size_t)cols * sizeof *sums);
    for (int64_t p = 0; p < g->k; p += 4) {
        const IK_T *x[4] = { 0 };
        int64_t count = ik_min(4, g->k - p);
        for (int64_t i = 0; i < 4; i++) {
            x[i] = i < count ? (const IK_T *)(const void *)ik_element(&g->b, p + i, first) : x[0];
            if (ik_itemsize(g->b.dtype) != sizeof(IK_T)) {
                if (i < count)
                    IK_OF(load)(g->b.dtype, x[i], 1, cols, wide[i]);
                x[i] = wide[i < count ? i : 0];
            }
        }
        for (int64_t r = 0; r < g->m; r++) {
            if (count == 4) {
                IK_OF(add_rows)(cols, a + r * a_row + p, x, sums + r * IK_OF(run));
                continue;
            }
            for (int64_t i = 0; i < count; i++)
                for (int64_t j = 0; j < cols; j++)
                    sums[r * IK_OF(run) + j] = IK_OF(multiply_add)(a[r * a_row + p + i], x[i][j], sums[r * IK_OF(run) + j]);
        }
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
