/* A single row of running sums or products, for scan.c, in one type: y[t] = y[t - 1] + x[t], or times. */
static void IK_OF(accumulate_row)(
    const char *from, int64_t step_x, char *to, int64_t step_y, int64_t n, bool product, bool exclusive, char *state)
{
    const IK_T *x = (const IK_T *)(const void *)from;
    IK_T *y = (IK_T *)(void *)to, value;
    memcpy(&value, state, sizeof value);
    for (int64_t t = 0; t < n; t++) {
        const IK_T next = product ? value * x[t * step_x] : value + x[t * step_x];
        y[t * step_y] = exclusive ? value : next;
        value = next;
    }
    memcpy(state, &value, sizeof value);
}
