/* The cells of RNN, GRU and LSTM for a vector of hidden units. Included once for each type, with IK_T, IK_OF and
 * LANES; gates lie in the order of ONNX, LANES apart. */
static inline IK_T IK_OF(sigmoid)(IK_T x)
{
    const IK_T e = IK_OF(ik_exp)(-IK_OF(ik_abs)(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

/* The state of LANES units after a step, from x and the sums of their gates; h, c and what GRU keeps as [unit].
 * `option` is relu of RNN, or linear_before_reset of GRU, which without it is called twice a step: the second time with
 * the sums of what was kept. */
static void IK_OF(finish)(uint32_t kind, bool option, bool second, const IK_T *x, const IK_T *sums, const IK_T *bias,
    const IK_T *peepholes, const IK_T *h, IK_T *c, IK_T *kept, IK_T *update, IK_T *to)
{
    if (kind == IK_OP_RNN_RECURRENCE) {
        IK_VECTORISE for (int64_t u = 0; u < LANES; u++)
            to[u] = x[u] + (sums[u] + bias[u]);
        if (option) IK_VECTORISE
            for (int64_t u = 0; u < LANES; u++)
                to[u] = IK_OF(ik_maximum)(to[u], 0);
        else IK_VECTORISE
            for (int64_t u = 0; u < LANES; u++)
                to[u] = IK_OF(ik_tanh)(to[u]);
        return;
    }
    IK_T gates[GATES * LANES];
    if (kind == IK_OP_LSTM_RECURRENCE) {
        IK_VECTORISE for (int64_t u = 0; u < GATES * LANES; u++)
            gates[u] = x[u] + (sums[u] + bias[u]);
        IK_T *i = gates, *o = i + LANES, *f = o + LANES, *g = f + LANES;
        IK_VECTORISE for (int64_t u = 0; u < LANES; u++) {
            i[u] = IK_OF(sigmoid)(i[u] + peepholes[u] * c[u]);
            f[u] = IK_OF(sigmoid)(f[u] + peepholes[2 * LANES + u] * c[u]);
        }
        IK_VECTORISE for (int64_t u = 0; u < LANES; u++)
            c[u] = f[u] * c[u] + i[u] * IK_OF(ik_tanh)(g[u]);
        IK_VECTORISE for (int64_t u = 0; u < LANES; u++)
            to[u] = IK_OF(sigmoid)(o[u] + peepholes[LANES + u] * c[u]) * IK_OF(ik_tanh)(c[u]);
        return;
    }
    IK_T *z = gates, *r = z + LANES, *g = r + LANES;
    if (second) IK_VECTORISE
        for (int64_t u = 0; u < LANES; u++)
            g[u] = x[2 * LANES + u] + (sums[u] + bias[2 * LANES + u]);
    else IK_VECTORISE
        for (int64_t u = 0; u < 2 * LANES; u++)
            z[u] = IK_OF(sigmoid)(x[u] + (sums[u] + bias[u]));
    if (!second && !option) {
        memcpy(update, z, (size_t)LANES * sizeof *z);
        IK_VECTORISE for (int64_t u = 0; u < LANES; u++)
            kept[u] = r[u] * h[u];
        return;
    }
    if (second)
        memcpy(z, update, (size_t)LANES * sizeof *z);
    else IK_VECTORISE
        for (int64_t u = 0; u < LANES; u++)
            g[u] = x[2 * LANES + u] + r[u] * (sums[2 * LANES + u] + bias[2 * LANES + u]);
    IK_VECTORISE for (int64_t u = 0; u < LANES; u++)
        to[u] = (1 - z[u]) * IK_OF(ik_tanh)(g[u]) + z[u] * h[u];
}
