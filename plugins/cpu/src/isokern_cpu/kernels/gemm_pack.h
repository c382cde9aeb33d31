/* Packing for one element type: any strides, F16 and BF16 widened. Uses the IK_T and IK_OF of gemm_tile.h; needs
 * IK_OF(load), which converts a run of any dtype to the type, and IK_OF(transpose), which transposes a block whose
 * columns are contiguous. */

/* Pack columns first .. first + cols of rows p0 .. p0 + k of b, as panels of k rows; zeros beyond the last column. */
static void IK_OF(pack_b)(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, IK_T *to)
{
    const ik_matrix *b = &g->b;
    const int64_t panel_width = IK_OF(panel_width), whole = cols / panel_width * panel_width,
                  size = ik_itemsize(b->dtype);
    if (cols > whole)
        memset(to + whole * k, 0, (size_t)(panel_width * k) * sizeof *to);
    if (b->row == 1 && b->col != 1) {
        for (int64_t j = 0; j < cols; j += panel_width)
            IK_OF(transpose)(b->dtype, ik_element(b, p0, first + j), b->col, k, ik_min(panel_width, cols - j),
                to + j * k, panel_width);
        return;
    }
    for (int64_t p = 0; p < k; p++) {
        const char *row = ik_element(b, p0 + p, first);
        IK_T *at = to + p * panel_width;
        int64_t j = 0;
        if (b->col == 1)
            for (; j < whole; j += panel_width, at += k * panel_width)
                IK_OF(load)(b->dtype, row + j * size, 1, IK_OF(panel_width), at);
        for (; j < cols; j += panel_width, at += k * panel_width)
            IK_OF(load)(b->dtype, row + j * b->col * size, b->col, ik_min(panel_width, cols - j), at);
    }
}

/* Prepack panels begin .. end of columns of b, each of all k, to g->workspace. */
static __attribute__((unused)) void IK_OF(prepack_b)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_gemm_args *g = context;
    const int64_t width = IK_OF(panel_width);
    for (int64_t panel = begin; panel < end; panel++) {
        IK_T *to = (IK_T *)(void *)g->workspace + panel * width * g->k;
        for (int64_t p = 0; p < g->k; p += IK_BLOCK_K)
            IK_OF(pack_b)(
                g, p, ik_min(IK_BLOCK_K, g->k - p), panel * width, ik_min(width, g->n - panel * width), to + p * width);
    }
}

/* Pack rows × k of a, with rows contiguous in k unless a is contiguous in rows; the strides of the result are set in
 * the tile. */
static void IK_OF(pack_a)(const ik_gemm_args *g, int64_t row, int64_t rows, int64_t p0, int64_t k, IK_T *to, ik_tile *t)
{
    enum { WIDE = 16 };
    const ik_matrix *a = &g->a;
    const char *from = ik_element(a, row, p0);
    const int64_t size = ik_itemsize(a->dtype);
    t->a = to;
    if (a->row == 1 && a->col != 1) {
        t->a_row = 1, t->a_step = WIDE;
        int64_t width = ik_min(WIDE, g->m - row);
        if (width == WIDE)
            for (int64_t p = 0; p < k; p++)
                IK_OF(load)(a->dtype, from + p * a->col * size, 1, WIDE, to + p * WIDE);
        else
            for (int64_t p = 0; p < k; p++)
                IK_OF(load)(a->dtype, from + p * a->col * size, 1, width, to + p * WIDE);
        return;
    }
    t->a_row = g->max_k + 16, t->a_step = 1; /* 16: rows start in different sets of the cache */
    for (int64_t i = 0; i < rows; i++)
        IK_OF(load)(a->dtype, from + i * a->row * size, a->col, k, to + i * t->a_row);
}
