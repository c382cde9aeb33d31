/* The loops of reduce.c for one compute type, IK_T: reduce.c includes this file once for each type. */

/* Run tasks begin .. end, numbered output * chunks + chunk. */
static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_reduction *d = &j->dims;
    IK_T run_scratch[IK_TILE] IK_ALIGNED;
    if (j->runs) { /* short ones take less time than what finds and joins the parts of any others */
        for (int64_t output = begin; output < end; output++) {
            const IK_T *x = (const IK_T *)(const void *)j->x + output * d->step[0][0];
            ((IK_T *)(void *)j->y)[output * d->to[0]] =
                (IK_T)(IK_OF(run_of)(j->what, d->length, x).f.high / j->divisor);
        }
        return;
    }
    for (int64_t task = begin; task < end; task++) {
        int64_t output = task / d->chunks, chunk = task % d->chunks, at = chunk * d->per_chunk, n,
                left = ik_min(d->length - at, d->per_chunk);
        const char *x = j->x + ik_reduction_x(d, output) * j->size;
        ik_reduction_place p = ik_reduction_at(d, at);
        value v = nothing(j);
        for (; left > 0; left -= n) {
            const IK_T *values = ik_reduction_next(d, &p, x, j->size, sizeof *values, left,
                j->direct ? INT64_MAX : IK_TILE, fetch, j, (char *)run_scratch, &n);
            join(j, &v, IK_OF(run_of)(j->what, n, values));
        }
        if (d->chunks == 1)
            store_one(j, output, v);
        else
            j->parts[chunk * d->outputs + output] = v;
    }
}

static inline __attribute__((always_inline)) void IK_OF(add_row)(int32_t what, int64_t n, const IK_T *x, IK_T *acc)
{
    if (what == IK_SUM) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            acc[i] += x[i];
    } else if (what == IK_PRODUCT) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            acc[i] = IK_OF(times)(acc[i], x[i]);
    } else if (what == IK_MAX) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            acc[i] = IK_OF(ik_maximum)(acc[i], x[i]);
    } else {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            acc[i] = IK_OF(ik_minimum)(acc[i], x[i]);
    }
}

/* Run tasks begin .. end, each a tile of columns. Float sums are flushed to doubles after every FLUSH rows. Narrow
 * outputs treat `group` rows as one, and are folded at the end. */
static void IK_OF(columns)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const ik_reduction *d = &j->dims;
    const bool flushes = (IK_T)0.5 != 0 && j->what == IK_SUM, wide = sizeof(IK_T) == sizeof(double);
    double *high = j->scratch + 4 * d->span * worker, *low = high + d->span;
    IK_T *acc = (IK_T *)(void *)(low + d->span), *run_scratch = (IK_T *)(void *)(low + 2 * d->span);
    value first = nothing(j);
    IK_T none = (IK_T)0.5 != 0 ? (IK_T)first.f.high : (IK_T)first.i;
    for (int64_t task = begin; task < end; task++) {
        const ik_reduction_tile tile = ik_reduction_tile_of(d, task);
        int64_t width = tile.width, all = width * d->group, at = tile.chunk * d->per_chunk,
                left = ik_min(d->length - at, d->per_chunk), waiting = 0;
        const char *x = j->x + ik_reduction_x(d, tile.output) * j->size;
        ik_reduction_place p = ik_reduction_at(d, at);
        for (int64_t i = 0; i < all; i++) {
            acc[i] = none;
            high[i] = low[i] = 0;
        }
        while (left > 0) {
            int64_t rows = ik_min(ik_min(left, ik_reduction_left(d, &p)), d->group), n = rows * width;
            const char *from = x + p.offset * j->size;
            ik_reduction_advance(d, &p, rows);
            left -= rows;
            IK_OF(add_row)(j->what, n, fetch(j, from, d->column_step, n, run_scratch), acc);
            if (flushes && (++waiting == FLUSH || left <= 0)) {
                IK_VECTORISE for (int64_t i = 0; i < all; i++) {
                    ik_add_double(&high[i], &low[i], (double)acc[i], wide);
                    acc[i] = 0;
                }
                waiting = 0;
            }
        }
        for (int64_t fold = width; fold < all; fold += width) {
            if (!flushes)
                IK_OF(add_row)(j->what, width, acc + fold, acc);
            for (int64_t i = 0; i < width && flushes; i++) {
                ik_add_double(&high[i], &low[i], high[fold + i], wide);
                low[i] += low[fold + i];
            }
        }
        if (d->chunks > 1) {
            value *parts = j->parts + tile.chunk * d->outputs + tile.output;
            for (int64_t i = 0; i < width; i++)
                if ((IK_T)0.5 == 0)
                    parts[i].i = (int64_t)acc[i];
                else
                    parts[i] = (value){ .f = { flushes ? high[i] : (double)acc[i], flushes ? low[i] : 0 } };
            continue;
        }
        for (int64_t i = 0; i < width && flushes; i++)
            acc[i] = (IK_T)(ik_join_double(high[i], low[i]) / j->divisor);
        char *y = j->y + ik_reduction_y(d, tile.output) * j->size;
        for (int64_t i = 0; i < width && j->flip != 0; i++)
            acc[i] = (IK_T)((int64_t)acc[i] ^ j->flip);
        if (j->integer)
            ik_store_i64(j->dtype, (const int64_t *)(const void *)acc, y, d->column_to, width);
        else if (wide)
            ik_store_f64((const double *)(const void *)acc, y, d->column_to, width);
        else
            ik_store_f32(j->dtype, (const float *)(const void *)acc, y, d->column_to, width);
    }
}
