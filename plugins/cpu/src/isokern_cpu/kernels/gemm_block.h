/* The loops of a matrix product for one element type: blocks of k, panels of rows of a, panels of columns of b, tiles.
 * Include after gemm_tile.h, with the same IK_T and IK_OF; needs IK_OF(pack_a), IK_OF(pack_b), and IK_OF(finish), which
 * writes a row of sums to y. A panel of a has at most IK_OF(panel_rows) rows and, except for the last of a block, a
 * multiple of IK_OF(row_step).
 *
 * A task packs its block of b (level-2 cache) panel by panel, unless b is prepacked, then multiplies one panel of a
 * after the other (level-1 cache) by all panels of b. Tasks share no data. */

/* Compute the last panel of y where y is the accumulator, through a temporary tile, since a whole panel would not
 * fit. */
static void IK_OF(edge)(ik_tile *t, int64_t rows, int64_t cols, IK_T *sums)
{
    const int64_t panel_width = IK_OF(panel_width), y_row = t->to_row;
    const IK_T *from = t->from;
    IK_T *y = t->to;
    for (int64_t i = 0; i < rows && from != NULL; i++)
        memcpy(sums + i * panel_width, from + i * t->from_row, (size_t)cols * sizeof *y);
    t->to = sums, t->from = from == NULL ? NULL : sums;
    t->to_row = t->from_row = panel_width;
    IK_OF(tile)(rows, cols > IK_OF(lanes) ? 2 : 1, t);
    for (int64_t i = 0; i < rows; i++)
        memcpy(y + i * y_row, sums + i * panel_width, (size_t)cols * sizeof *y);
}

static void IK_OF(block)(const ik_gemm_args *g, int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    const int64_t panel_width = IK_OF(panel_width), panels = ik_ceil_div(rows, IK_OF(panel_rows)),
                  step = IK_OF(row_step), steps = ik_ceil_div(rows, step);
    IK_T *packed = (IK_T *)(void *)g->slice, *panel = (IK_T *)(void *)(g->slice + g->packed_bytes);
    IK_T *sums = (IK_T *)(void *)(g->slice + g->packed_bytes + g->panel_bytes);
    const ik_matrix *start = g->from_c ? &g->c : g->from_bias ? &g->bias : NULL;
    ik_tile t;
    for (int64_t block = 0; block < g->k_blocks; block++) {
        int64_t p0 = block * g->max_k, k = ik_min(g->max_k, g->k - p0),
                in_place = g->b_in_place ? cols / panel_width * panel_width : 0;
        t.k = k;
        if (g->b_prepacked)
            in_place = cols;
        else if (g->pack_b != NULL)
            g->pack_b(g, p0, k, col0, cols, (float *)packed);
        else if (cols > in_place)
            IK_OF(pack_b)(g, p0, k, col0 + in_place, cols - in_place, packed);
        for (int64_t i = 0; i < panels; i++) {
            int64_t row = steps * i / panels * step, height = ik_min(rows, steps * (i + 1) / panels * step) - row;
            t.a = ik_element(&g->a, row0 + row, p0), t.a_row = g->a.row, t.a_step = g->a.col;
            if (!g->a_in_place)
                IK_OF(pack_a)(g, row0 + row, height, p0, k, panel, &t);
            IK_T *panel_sums = sums + (g->k_blocks == 1 ? 0 : row * g->max_cols);
            for (int64_t j = 0; j < cols; j += panel_width) {
                int64_t width = ik_min(panel_width, cols - j);
                bool lies = j < in_place;
                t.b = lies ? (void *)ik_element(&g->b, p0, col0 + j) : packed + (j - in_place) * k;
                t.b_step = lies ? g->b.row : panel_width;
                if (g->b_prepacked)
                    t.b = (const IK_T *)(const void *)g->b.at + (col0 + j) * g->k + p0 * panel_width,
                    t.b_step = panel_width;
                t.to = panel_sums + j, t.to_row = g->max_cols;
                if (g->direct)
                    t.to = ik_element(&g->y, row0 + row, col0 + j), t.to_row = g->y.row;
                t.from = block == 0 ? NULL : t.to, t.from_row = t.to_row;
                if (block == 0 && start != NULL)
                    t.from = ik_element(start, row0 + row, col0 + j), t.from_row = start->row;
                if (g->direct && width < panel_width)
                    IK_OF(edge)(&t, height, width, sums);
                else
                    IK_OF(tile)(height, width > IK_OF(lanes) ? 2 : 1, &t);
            }
            for (int64_t r = 0; r < height && block == g->k_blocks - 1 && (!g->direct || ik_has_rest(g)); r++)
                IK_OF(finish)(g, row0 + row + r, col0, cols,
                    g->direct ? (IK_T *)(void *)ik_element(&g->y, row0 + row + r, col0) : panel_sums + r * g->max_cols);
        }
    }
}

static void IK_OF(tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_gemm_args *whole = context;
    const int64_t each = whole->row_blocks * whole->col_blocks;
    ik_gemm_args g = ik_of_batch(whole, begin / each);
    g.slice = whole->workspace + worker * whole->slice_bytes;
    for (int64_t task = begin; task < end; task++) {
        if (task > begin && task % each == 0)
            g = ik_of_batch(whole, task / each), g.slice = whole->workspace + worker * whole->slice_bytes;
        int64_t i = task % g.row_blocks, j = task / g.row_blocks % g.col_blocks, row = g.m * i / g.row_blocks,
                col = j * g.max_cols;
        IK_OF(block)(&g, row, g.m * (i + 1) / g.row_blocks - row, col, ik_min(g.max_cols, g.n - col));
    }
}
