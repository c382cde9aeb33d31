/* One loop of limits.c. SPIN is its name, VECTOR its type, TARGET its instruction set, FMA(a, x, y) its multiply-add;
 * it returns the operations of one round. It uses twelve registers: two units with a latency of four to five cycles
 * need eight to ten. */
TARGET static int64_t SPIN(int64_t rounds, double *sink)
{
    enum { REGISTERS = 12 };
    VECTOR a[REGISTERS], x, y;
    for (uint64_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        x[i] = 0.5f;
        y[i] = 1;
    }
    for (int k = 0; k < REGISTERS; k++)
        a[k] = y * (float)k;
    for (int64_t i = 0; i < rounds; i++)
        for (int k = 0; k < REGISTERS; k++)
            a[k] = FMA(a[k], x, y);
    for (int k = 0; k < REGISTERS; k++)
        *sink += (double)a[k][0]; /* keeps the compiler from dropping the loop */
    return 2 * REGISTERS * (int64_t)(sizeof x / sizeof x[0]);
}
#undef SPIN
#undef VECTOR
#undef TARGET
#undef FMA
