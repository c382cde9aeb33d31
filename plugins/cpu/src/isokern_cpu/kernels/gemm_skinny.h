/* Skinny products with few rows, where reading b dominates: each element of b is read once, in memory order. For one
 * float type; include after gemm_dots.h and gemm_epilogue.h, with the same IK_T and IK_OF.
 *
 * Columns of b contiguous in k (a weight stored by output): dot products of 4 columns with up to 4 rows of a at once.
 * Rows of b contiguous: the sums of a run of columns stay in the level-1 cache while 4 rows of b are added at a
 * time. Panels of 16 bits: the sums of a panel stay in registers. */

enum { IK_OF(run) = 1024 / (sizeof(IK_T) / 4) };

/* Compute columns first .. first + cols from dot products. */
static void IK_OF(dot_columns)(const ik_gemm_args *g, int64_t first, int64_t cols, IK_T *sums)
{
    const IK_T *a = (const IK_T *)(const void *)g->a.at; /* of the compute type and contiguous here */
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
            else if (sizeof(IK_T) == 4 && g->b.dtype == IK_F8E4M3FN)
                IK_OF(dots_of)(IK_F8E4M3FN, rows, count, g->k, from, a_row, b, g->b.col, to, IK_OF(run));
            else if (sizeof(IK_T) == 4 && g->b.dtype == IK_F8E5M2)
                IK_OF(dots_of)(IK_F8E5M2, rows, count, g->k, from, a_row, b, g->b.col, to, IK_OF(run));
            else
                IK_OF(dots_of)(
                    sizeof(IK_T) == 8 ? IK_F64 : IK_F32, rows, count, g->k, from, a_row, b, g->b.col, to, IK_OF(run));
        }
}

/* Compute columns first .. first + cols from scaled rows of b. */
static void IK_OF(add_columns)(const ik_gemm_args *g, int64_t first, int64_t cols, IK_T *sums)
{
    const IK_T *a = (const IK_T *)(const void *)g->a.at; /* of the compute type and contiguous here */
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
            else if (g->b.dtype == IK_F8E4M3FN)
                IK_OF(add_rows)(IK_F8E4M3FN, whole, a + r * g->a.row + p, x, sums + r * IK_OF(run));
            else if (g->b.dtype == IK_F8E5M2)
                IK_OF(add_rows)(IK_F8E5M2, whole, a + r * g->a.row + p, x, sums + r * IK_OF(run));
            else
                IK_OF(add_rows)(
                    sizeof(IK_T) == 8 ? IK_F64 : IK_F32, whole, a + r * g->a.row + p, x, sums + r * IK_OF(run));
    }
    IK_T rest[IK_OF(run)];
    for (int64_t p = 0; p < g->k; p++) { /* the last columns, and the last rows */
        int64_t from = p < fours ? whole : 0;
        if (from == cols)
            continue;
        IK_OF(load)(g->b.dtype, ik_element(&g->b, p, first) + from * size, 1, cols - from, rest);
        for (int64_t r = 0; r < g->m; r++)
            for (int64_t j = from; j < cols; j++)
                sums[r * IK_OF(run) + j] =
                    IK_OF(multiply_add)(a[r * g->a.row + p], rest[j - from], sums[r * IK_OF(run) + j]);
    }
}

/* Compute columns first .. first + cols from narrow panels; `first` begins one. */
static void IK_OF(add_panels)(const ik_gemm_args *g, int64_t first, int64_t cols, IK_T *sums)
{
    const IK_T *a = (const IK_T *)(const void *)g->a.at; /* of the compute type and contiguous here */
    for (int64_t j = 0; sizeof(IK_T) == 4 && j < cols; j += g->narrow_width) {
        const char *b = g->b.at + (first + j) * g->k * (int64_t)sizeof(uint16_t);
        if (g->b.dtype == IK_F16)
            IK_OF(panel_sums_of)(IK_F16, g->m, g->k, a, g->a.row, b, sums + j, IK_OF(run));
        else
            IK_OF(panel_sums_of)(IK_BF16, g->m, g->k, a, g->a.row, b, sums + j, IK_OF(run));
    }
}

/* Compute groups of columns, counted through the batch. */
static void IK_OF(skinny_rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_gemm_args *whole = context;
    const int64_t groups = ik_ceil_div(whole->n, whole->group);
    IK_T sums[IK_SKINNY_ROWS * IK_OF(run)], *copy = (IK_T *)(void *)(whole->workspace + worker * whole->slice_bytes);
    while (begin < end) {
        ik_gemm_args g = ik_of_batch(whole, begin / groups);
        int64_t first = g.group * (begin % groups), last = ik_min(g.n, g.group * (end - begin / groups * groups));
        begin += ik_ceil_div(last - first, g.group);
        if (!g.a_in_place) {
            for (int64_t r = 0; r < g.m; r++)
                IK_OF(load)(g.a.dtype, ik_element(&g.a, r, 0), g.a.col, g.k, copy + r * g.k);
            g.a.at = (char *)copy, g.a.row = g.k;
        }
        for (; first < last; first += IK_OF(run)) {
            int64_t cols = ik_min(IK_OF(run), last - first);
            if (g.narrow_width > 0)
                IK_OF(add_panels)(&g, first, cols, sums);
            else if (g.b.row == 1)
                IK_OF(dot_columns)(&g, first, cols, sums);
            else
                IK_OF(add_columns)(&g, first, cols, sums);
            for (int64_t r = 0; r < g.m; r++)
                IK_OF(finish)(&g, r, first, cols, sums + r * IK_OF(run));
        }
    }
}
