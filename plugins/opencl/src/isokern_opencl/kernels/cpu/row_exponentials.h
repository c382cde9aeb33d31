/* Exponentials of a run of a row, and their sum; include after rows.h. */
/* e[i] = exp(x[i] - row_max), i < n; returns their sum. */
static IK_INLINE ik_c exponentials(IK_GLOBAL const ik_t *x, int n, ik_c row_max, ik_c *e)
{
#if IK_IS_F16(y)
    ik_widen_f16(x, e, n);
    IK_VECTORISE for (int i = 0; i < n; i++)
        e[i] = IK_FN(exp)(e[i] - row_max);
#else
    IK_VECTORISE for (int i = 0; i < n; i++)
        e[i] = IK_FN(exp)(ik_value(x + i) - row_max);
#endif
    ik_vec s0 = 0, s1 = 0;
    int i = 0;
    for (; n - i >= 2 * IK_WIDTH; i += 2 * IK_WIDTH) {
        s0 += *(const ik_vec *)(e + i);
        s1 += *(const ik_vec *)(e + i + IK_WIDTH);
    }
    ik_c sum = ik_lanes_sum(s0 + s1);
    for (; i < n; i++)
        sum += e[i];
    return sum;
}
