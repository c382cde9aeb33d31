/* The loops of a contraction for one float type; include after contract.h and gemm_tile.h, with the same IK_T and
 * IK_OF.
 *
 *     for each block of rows × columns of an element of the batch     a task
 *         for each block of terms
 *             pack b: terms × columns, in panels of panel_width columns
 *             for each IK_TILE_ROWS rows
 *                 pack a: rows × terms
 *                 for each panel: sums[rows, panel] += a × b          a tile (gemm_tile.h), in registers
 *             after a group of blocks: high + low += sums             F64, without loss
 *         y = init + sums */

/* Pack the elements at outer[o] + inner[i] of a tensor: to[o * step + i]. */
static void IK_OF(pack)(int32_t dtype, const char *from, const int64_t *outer, int64_t n, const int64_t *inner,
    int64_t count, IK_T *to, int64_t step)
{
    const int64_t size = ik_itemsize(dtype);
    ik_run run[IK_TERM_BLOCK];
    int64_t runs = ik_find_runs(inner, count, run);
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

/* Write a block of y: init + sums, or init + high + low where `groups` were added. */
static void IK_OF(finish)(const ik_contraction *c, const ik_contraction_block *at, bool groups, const IK_T *sums,
    const double *high, const double *low)
{
    const ik_tensor *y = c->y.t, *init = c->init.t;
    char *to = ik_batch_at(c, &c->y, at->batch);
    const char *from = ik_batch_at(c, &c->init, at->batch);
    int64_t rows_y[IK_ROW_BLOCK], rows_init[IK_ROW_BLOCK], cols_y[IK_COL_BLOCK], cols_init[IK_COL_BLOCK];
    ik_run run_y[IK_COL_BLOCK], run_init[IK_COL_BLOCK];
    ik_list_offsets(c, IK_ROWS_OF_A, y, at->row, at->rows, rows_y);
    ik_list_offsets(c, IK_ROWS_OF_A, init, at->row, at->rows, rows_init);
    ik_list_offsets(c, IK_COLS_OF_B, y, at->col, at->cols, cols_y);
    ik_list_offsets(c, IK_COLS_OF_B, init, at->col, at->cols, cols_init);
    const int64_t runs_y = ik_find_runs(cols_y, at->cols, run_y), size = ik_itemsize(y->dtype),
                  runs_init = ik_find_runs(cols_init, at->cols, run_init);
    for (int64_t i = 0; i < at->rows; i++, sums += c->block_cols, high += c->block_cols, low += c->block_cols) {
        IK_T made[IK_COL_BLOCK];
        for (int64_t r = 0; r < runs_init; r++)
            IK_OF(load)(init->dtype, from + (rows_init[i] + run_init[r].offset) * size, run_init[r].step,
                run_init[r].count, made + run_init[r].first);
        if (groups)
            for (int64_t j = 0; j < at->cols; j++)
                made[j] = (IK_T)ik_join_double(high[j] + (double)made[j], low[j]);
        else
            for (int64_t j = 0; j < at->cols; j++)
                made[j] += sums[j];
        for (int64_t r = 0; r < runs_y; r++)
            IK_OF(store)(y->dtype, made + run_y[r].first, to + (rows_y[i] + run_y[r].offset) * size, run_y[r].step,
                run_y[r].count);
    }
}

static void IK_OF(contract)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_contraction *c = context;
    const int64_t panel_width = IK_OF(panel_width), terms = c->size[IK_TERMS];
    const int64_t block_size = c->block_rows * c->block_cols;
    const int32_t dtype_a = c->a.t->dtype, dtype_b = c->b.t->dtype;
    const bool a_along_rows = ik_lies_along(c, c->a.t, IK_ROWS_OF_A, IK_TERMS),
               b_along_terms = ik_lies_along(c, c->b.t, IK_TERMS, IK_COLS_OF_B),
               groups = terms > IK_GROUP * IK_TERM_BLOCK;
    double *high = (double *)(void *)(c->workspace + worker * c->slice_bytes), *low = high + block_size;
    IK_T *sums = (IK_T *)(void *)(low + block_size), *packed_b = sums + block_size,
         *packed_a = packed_b + IK_TERM_BLOCK * c->block_cols;
    int64_t rows_a[IK_ROW_BLOCK], cols_b[IK_COL_BLOCK], terms_a[IK_TERM_BLOCK], terms_b[IK_TERM_BLOCK];
    for (int64_t task = begin; task < end; task++) {
        const ik_contraction_block at = ik_contraction_block_at(c, task);
        const char *a = ik_batch_at(c, &c->a, at.batch), *b = ik_batch_at(c, &c->b, at.batch);
        ik_list_offsets(c, IK_ROWS_OF_A, c->a.t, at.row, at.rows, rows_a);
        ik_list_offsets(c, IK_COLS_OF_B, c->b.t, at.col, at.cols, cols_b);
        if (groups)
            memset(high, 0, (size_t)(2 * block_size) * sizeof *high);
        for (int64_t term = 0, in_group = 0; term < terms;
            term += IK_TERM_BLOCK, in_group = (in_group + 1) % IK_GROUP) {
            ik_tile t = { .k = ik_min(IK_TERM_BLOCK, terms - term),
                .a = packed_a,
                .a_row = a_along_rows ? 1 : IK_PANEL_ROW,
                .a_step = a_along_rows ? IK_PANEL_COL : 1,
                .b_step = panel_width,
                .from_row = c->block_cols,
                .to_row = c->block_cols };
            ik_list_offsets(c, IK_TERMS, c->a.t, term, t.k, terms_a);
            ik_list_offsets(c, IK_TERMS, c->b.t, term, t.k, terms_b);
            for (int64_t j = 0; j < at.cols; j += panel_width) {
                const int64_t width = ik_min(panel_width, at.cols - j);
                IK_T *panel = packed_b + j * t.k;
                if (width < panel_width)
                    memset(panel, 0, (size_t)(panel_width * t.k) * sizeof *panel);
                if (b_along_terms)
                    IK_OF(pack_transposed)(dtype_b, b, cols_b + j, width, terms_b, t.k, panel, panel_width);
                else
                    IK_OF(pack)(dtype_b, b, terms_b, t.k, cols_b + j, width, panel, panel_width);
            }
            for (int64_t i = 0; i < at.rows; i += IK_TILE_ROWS) {
                const int64_t height = ik_min(IK_TILE_ROWS, at.rows - i);
                if (a_along_rows)
                    IK_OF(pack)(dtype_a, a, terms_a, t.k, rows_a + i, height, packed_a, t.a_step);
                else
                    IK_OF(pack)(dtype_a, a, rows_a + i, height, terms_a, t.k, packed_a, t.a_row);
                for (int64_t j = 0; j < at.cols; j += panel_width) {
                    t.b = packed_b + j * t.k, t.to = sums + i * c->block_cols + j, t.from = in_group == 0 ? NULL : t.to;
                    IK_OF(tile)(height, at.cols - j > IK_OF(lanes) ? 2 : 1, &t);
                }
            }
            if (groups && (in_group == IK_GROUP - 1 || term + t.k == terms))
                for (int64_t i = 0; i < at.rows * c->block_cols; i++)
                    ik_add_double(&high[i], &low[i], (double)sums[i], true);
        }
        IK_OF(finish)(c, &at, groups, sums, high, low);
    }
}
