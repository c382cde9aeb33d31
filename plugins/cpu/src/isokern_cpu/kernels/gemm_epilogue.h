/* What is done to a row of sums on its way to y, for one float type: needs IK_T and IK_OF. */
static void IK_OF(finish)(const ik_product *g, int64_t row, int64_t col, int64_t n, IK_T *sums)
{
    enum { RUN = 256 };
    const IK_T alpha = (IK_T)g->alpha, beta = (IK_T)g->beta;
    for (int64_t at = 0; at < n; at += RUN, col += RUN) {
        IK_T *x = sums + at, other[RUN];
        int64_t count = ik_min(RUN, n - at);
        for (int64_t i = 0; i < count && alpha != 1; i++)
            x[i] *= alpha;
        if (g->c.at != NULL) {
            IK_OF(load)(g->c.dtype, ik_element(&g->c, row, col), g->c.col, count, other);
            for (int64_t i = 0; i < count; i++)
                x[i] += beta * other[i];
        }
        if (g->bias.at != NULL) {
            IK_OF(load)(g->bias.dtype, ik_element(&g->bias, row, col), g->bias.col, count, other);
            for (int64_t i = 0; i < count; i++)
                x[i] += other[i];
        }
        IK_OF(activate)(g->activation, count, x);
        IK_OF(store)(g->y.dtype, x, ik_element(&g->y, row, col), g->y.col, count);
    }
}
