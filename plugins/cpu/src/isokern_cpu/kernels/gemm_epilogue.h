/* The epilogue of a row of sums on its way to y, for one float type: needs IK_T and IK_OF. */

/* A run of a row: in place where it has the type and is contiguous, else converted into `scratch`. */
static inline const IK_T *IK_OF(run_of)(const ik_matrix *m, int64_t row, int64_t col, int64_t count, IK_T *scratch)
{
    const char *from = ik_element(m, row, col);
    if (m->dtype == (sizeof(IK_T) == 8 ? IK_F64 : IK_F32) && m->col == 1)
        return (const IK_T *)(const void *)from;
    IK_OF(load)(m->dtype, from, m->col, count, scratch);
    return scratch;
}

static void IK_OF(finish)(const ik_gemm_args *g, int64_t row, int64_t col, int64_t n, IK_T *sums)
{
    enum { RUN = 256 };
    const IK_T alpha = (IK_T)g->alpha, beta = (IK_T)g->beta;
    for (int64_t at = 0; at < n; at += RUN, col += RUN) {
        IK_T *x = sums + at, scratch[RUN];
        int64_t count = ik_min(RUN, n - at);
        for (int64_t i = 0; i < count && alpha != 1; i++)
            x[i] *= alpha;
        if (g->c.at != NULL && !g->from_c) {
            const IK_T *other = IK_OF(run_of)(&g->c, row, col, count, scratch);
            for (int64_t i = 0; i < count; i++)
                x[i] += beta * other[i];
        }
        if (g->bias.at != NULL && !g->from_bias) {
            const IK_T *other = IK_OF(run_of)(&g->bias, row, col, count, scratch);
            for (int64_t i = 0; i < count; i++)
                x[i] += other[i];
        }
        IK_OF(ik_activate)(g->activation, count, x);
        if (!g->direct)
            IK_OF(store)(g->y.dtype, x, ik_element(&g->y, row, col), g->y.col, count);
    }
}
