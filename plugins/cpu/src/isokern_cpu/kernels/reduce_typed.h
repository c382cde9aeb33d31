/* The loops of reduce.c for one compute type, IK_T: reduce.c includes this file once for each type. */

/* Run tasks begin .. end, numbered output * chunks + chunk. */
static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    int64_t step = j->step[1][j->reduced - 1];
    IK_T run_scratch[IK_TILE] IK_ALIGNED;
    for (int64_t task = begin; task < end; task++) {
        int64_t output = task / j->chunks, chunk = task % j->chunks, at = chunk * j->per_chunk,
                left = ik_min(j->length - at, j->per_chunk);
        const char *x = j->x + offset_of(j->kept, j->shape[0], j->step[0], output) * j->size;
        place p = place_at(j, at);
        value v = nothing(j);
        while (left > 0) {
            int64_t n = ik_min(left, run_left(j, &p)), filled = 0;
            const IK_T *values = run_scratch;
            if (step == 1 && n >= IK_TILE / 4) { /* long runs are read in place */
                filled = j->direct ? n : ik_min(n, IK_TILE);
                values = fetch(j, x + p.offset * j->size, 1, filled, run_scratch);
                advance(j, &p, filled);
            } else { /* short ones are gathered */
                while (filled < ik_min(left, IK_TILE)) {
                    int64_t run = ik_min(ik_min(left, IK_TILE) - filled, run_left(j, &p));
                    values = fetch(j, x + p.offset * j->size, step, run, run_scratch + filled);
                    if (values != run_scratch + filled)
                        memcpy(run_scratch + filled, values, (size_t)run * sizeof *run_scratch);
                    filled += run;
                    advance(j, &p, run);
                }
                values = run_scratch;
            }
            join(j, &v, IK_OF(run_of)(j->what, filled, values));
            left -= filled;
        }
        if (j->chunks == 1)
            store_one(j, output, v);
        else
            j->parts[chunk * j->outputs + output] = v;
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

/* Run tasks begin .. end, numbered (outer output * chunks + chunk) * tiles + tile, a tile being at most WIDTH outputs
 * along the last kept dim. Float sums are flushed to doubles after every FLUSH rows. Narrow outputs treat `group` rows
 * as one, and are folded at the end. */
static void IK_OF(columns)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const bool flushes = (IK_T)0.5 != 0 && j->what == IK_SUM, wide = sizeof(IK_T) == sizeof(double);
    double *high = j->scratch + 4 * j->span * worker, *low = high + j->span;
    IK_T *acc = (IK_T *)(void *)(low + j->span), *run_scratch = (IK_T *)(void *)(low + 2 * j->span);
    value first = nothing(j);
    IK_T none = (IK_T)0.5 != 0 ? (IK_T)first.f.high : (IK_T)first.i;
    for (int64_t task = begin; task < end; task++) {
        int64_t tile = task % j->tiles, chunk = task / j->tiles % j->chunks, outer = task / j->tiles / j->chunks;
        int64_t width = ik_min(WIDTH, j->columns_dim - tile * WIDTH), all = width * j->group,
                output = outer * j->columns_dim + tile * WIDTH;
        const char *x = j->x + offset_of(j->kept, j->shape[0], j->step[0], output) * j->size;
        int64_t at = chunk * j->per_chunk, left = ik_min(j->length - at, j->per_chunk), waiting = 0;
        place p = place_at(j, at);
        for (int64_t i = 0; i < all; i++) {
            acc[i] = none;
            high[i] = low[i] = 0;
        }
        while (left > 0) {
            int64_t rows = ik_min(ik_min(left, run_left(j, &p)), j->group), n = rows * width;
            const char *from = x + p.offset * j->size;
            advance(j, &p, rows);
            left -= rows;
            IK_OF(add_row)(j->what, n, fetch(j, from, j->column_step, n, run_scratch), acc);
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
        if (j->chunks > 1) {
            for (int64_t i = 0; i < width; i++)
                if ((IK_T)0.5 == 0)
                    j->parts[chunk * j->outputs + output + i].i = (int64_t)acc[i];
                else
                    j->parts[chunk * j->outputs + output + i] =
                        (value){ .f = { flushes ? high[i] : (double)acc[i], flushes ? low[i] : 0 } };
            continue;
        }
        for (int64_t i = 0; i < width && flushes; i++)
            acc[i] = (IK_T)(ik_join_double(high[i], low[i]) / j->divisor);
        char *y = j->y + offset_of(j->kept, j->shape[0], j->to, output) * j->size;
        for (int64_t i = 0; i < width && j->flip != 0; i++)
            acc[i] = (IK_T)((int64_t)acc[i] ^ j->flip);
        if (j->integer)
            ik_store_i64(j->dtype, (const int64_t *)(const void *)acc, y, j->column_to, width);
        else if (wide)
            ik_store_f64((const double *)(const void *)acc, y, j->column_to, width);
        else
            ik_store_f32(j->dtype, (const float *)(const void *)acc, y, j->column_to, width);
    }
}
