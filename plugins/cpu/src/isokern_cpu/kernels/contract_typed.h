/* The loops of a contraction for one float type; include after contract.h and gemm_tile.h, with the same IK_T and
 * IK_OF. */
/* Pack the elements at outer[o] + inner[i] of a tensor: to[o * step + i]. */
static void IK_OF(pack)(int32_t dtype, const char *from, const int64_t *outer, int64_t n, const int64_t *inner,
    int64_t count, IK_T *to, int64_t step)
{
    const int64_t size = ik_itemsize(dtype);
    ik_run run[IK_TERM_BLOCK];
    int64_t runs = ik_runs(inner, count, run);
    for (int64_t o = 0; o < n; o++)
        for (int64_t r = 0; r < runs; r++)
            IK_OF(load)(dtype, from + (outer[o] + run[r].offset) * size, run[r].step, run[r].count,
                to + o * step + run[r].first);
}

/* Pack the same elements transposed: to[o + i * step]. */
static void IK_OF(pack_transposed)(int32_t dtype, const char *from, const int64_t *outer, int64_t n,
    const int64_t *inner, int64_t count, IK_T *to, int64_t step)
{
    enum { WIDE = 16 };
    IK_T rows[WIDE][IK_TERM_BLOCK];
    for (int64_t o = 0; o < n; o += WIDE) {
        int64_t wide = ik_min(WIDE, n - o);
        IK_OF(pack)(dtype, from, outer + o, wide, inner, count, rows[0], IK_TERM_BLOCK);
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < wide; k++)
                to[i * step + o + k] = rows[k][i];
    }
}

/* Write a block of y: sums + init. */
static void IK_OF(finish)(const ik_contraction *c, int64_t batch, int64_t row, int64_t rows, int64_t col, int64_t cols,
    const IK_T *sums, const double *high, const double *low)
{
    int64_t at_y, at_init, down_y[IK_ROW_BLOCK], down_init[IK_ROW_BLOCK], along_y[IK_COL_BLOCK],
        along_init[IK_COL_BLOCK];
    ik_run run_y[IK_COL_BLOCK], run_init[IK_COL_BLOCK];
    ik_list(c, IK_BATCH, c->y, batch, 1, &at_y);
    ik_list(c, IK_BATCH, c->init, batch, 1, &at_init);
    ik_list(c, IK_ROWS_OF_A, c->y, row, rows, down_y);
    ik_list(c, IK_ROWS_OF_A, c->init, row, rows, down_init);
    ik_list(c, IK_COLS_OF_B, c->y, col, cols, along_y);
    ik_list(c, IK_COLS_OF_B, c->init, col, cols, along_init);
    const int64_t runs_y = ik_runs(along_y, cols, run_y), runs_init = ik_runs(along_init, cols, run_init),
                  size = ik_itemsize(c->y->dtype);
    for (int64_t i = 0; i < rows; i++) {
        IK_T made[IK_COL_BLOCK];
        for (int64_t r = 0; r < runs_init; r++)
            IK_OF(load)(c->init->dtype, c->from_init + (at_init + down_init[i] + run_init[r].offset) * size,
                run_init[r].step, run_init[r].count, made + run_init[r].first);
        for (int64_t j = 0; j < cols && high != NULL; j++) {
            double sum = high[i * c->cols + j] + (double)made[j], rest = low[i * c->cols + j];
            /* Where the sum is not finite, the rest is NaN and is ignored. */
            made[j] = (IK_T)(rest == rest ? sum + rest : sum);
        }
        for (int64_t j = 0; j < cols && high == NULL; j++)
            made[j] += sums[i * c->cols + j];
        for (int64_t r = 0; r < runs_y; r++)
            IK_OF(store)(c->y->dtype, made + run_y[r].first, c->to + (at_y + down_y[i] + run_y[r].offset) * size,
                run_y[r].step, run_y[r].count);
    }
}

/* Run tasks begin .. end, numbered (batch * row blocks + row block) * column blocks + column block. */
static void IK_OF(contract)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_contraction *c = context;
    const int64_t panel_width = IK_OF(panel_width), terms = c->size[IK_TERMS], item_a = ik_itemsize(c->a->dtype),
                  item_b = ik_itemsize(c->b->dtype);
    const bool down_b = ik_innermost(c, IK_TERMS, c->b) == 1 && ik_innermost(c, IK_COLS_OF_B, c->b) != 1;
    const bool down_a = ik_innermost(c, IK_ROWS_OF_A, c->a) == 1 && ik_innermost(c, IK_TERMS, c->a) != 1;
    char *slice = c->workspace + worker * c->slice_bytes;
    IK_T *packed = (IK_T *)(void *)slice, *panel = (IK_T *)(void *)(slice + c->packed_bytes),
         *sums = (IK_T *)(void *)(slice + c->packed_bytes + c->panel_bytes);
    double *high = (double *)(void *)(slice + c->slice_bytes) - 2 * c->rows * c->cols, *low = high + c->rows * c->cols;
    int64_t at_a, at_b, rows_a[IK_ROW_BLOCK], cols_b[IK_COL_BLOCK], terms_a[IK_TERM_BLOCK], terms_b[IK_TERM_BLOCK];
    for (int64_t task = begin; task < end; task++) {
        int64_t batch = task / c->col_blocks / c->row_blocks, row = task / c->col_blocks % c->row_blocks * c->rows,
                col = task % c->col_blocks * c->cols;
        int64_t rows = ik_min(c->rows, c->size[IK_ROWS_OF_A] - row),
                cols = ik_min(c->cols, c->size[IK_COLS_OF_B] - col);
        const bool groups = terms > IK_GROUP * IK_TERM_BLOCK;
        if (cols <= 0)
            continue;
        ik_list(c, IK_BATCH, c->a, batch, 1, &at_a);
        ik_list(c, IK_BATCH, c->b, batch, 1, &at_b);
        ik_list(c, IK_ROWS_OF_A, c->a, row, rows, rows_a);
        ik_list(c, IK_COLS_OF_B, c->b, col, cols, cols_b);
        if (groups)
            memset(high, 0, (size_t)(2 * c->rows * c->cols) * sizeof *high);
        for (int64_t p = 0, block = 0; p < terms; p += IK_TERM_BLOCK, block = (block + 1) % IK_GROUP) {
            ik_tile t = {
                .k = ik_min(IK_TERM_BLOCK, terms - p), .b_step = panel_width, .from_row = c->cols, .to_row = c->cols
            };
            ik_list(c, IK_TERMS, c->a, p, t.k, terms_a);
            ik_list(c, IK_TERMS, c->b, p, t.k, terms_b);
            for (int64_t j = 0; j < cols; j += panel_width) {
                int64_t width = ik_min(panel_width, cols - j);
                if (width < panel_width)
                    memset(packed + j * t.k, 0, (size_t)(panel_width * t.k) * sizeof *packed);
                if (down_b)
                    IK_OF(pack_transposed)(c->b->dtype, c->from_b + at_b * item_b, cols_b + j, width, terms_b, t.k,
                        packed + j * t.k, panel_width);
                else
                    IK_OF(pack)(c->b->dtype, c->from_b + at_b * item_b, terms_b, t.k, cols_b + j, width,
                        packed + j * t.k, panel_width);
            }
            for (int64_t i = 0; i < rows; i += IK_TILE_ROWS) {
                int64_t height = ik_min(IK_TILE_ROWS, rows - i);
                /* Rows start in different sets of the cache. */
                t.a = panel, t.a_row = down_a ? 1 : IK_TERM_BLOCK + 16, t.a_step = down_a ? 16 : 1;
                if (down_a)
                    IK_OF(pack)(
                        c->a->dtype, c->from_a + at_a * item_a, terms_a, t.k, rows_a + i, height, panel, t.a_step);
                else
                    IK_OF(pack)(
                        c->a->dtype, c->from_a + at_a * item_a, rows_a + i, height, terms_a, t.k, panel, t.a_row);
                for (int64_t j = 0; j < cols; j += panel_width) {
                    t.b = packed + j * t.k, t.to = sums + i * c->cols + j, t.from = block == 0 ? NULL : t.to;
                    IK_OF(tile)(height, cols - j > IK_OF(lanes) ? 2 : 1, &t);
                }
            }
            if (groups && (block == IK_GROUP - 1 || p + t.k == terms))
                for (int64_t i = 0; i < rows * c->cols; i++) {
                    double x = (double)sums[i], sum = high[i] + x, part = sum - high[i];
                    low[i] += (high[i] - (sum - part)) + (x - part);
                    high[i] = sum;
                }
        }
        IK_OF(finish)(c, batch, row, rows, col, cols, sums, groups ? high : NULL, low);
    }
}
