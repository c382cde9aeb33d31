/* Dot products with up to 4 columns at once, and sums of 4 scaled rows, of a matrix of any float dtype that is read in
 * place. For one float type; include after gemm_tile.h, with the same IK_T and IK_OF; needs IK_OF(widen), which
 * converts a vector of any dtype to the type. */

#include "folds.h"

/* sums[r, c] = Σ_p a[r, p] b[p, c] for `rows` × `cols`; both contiguous in p. */
static inline __attribute__((always_inline)) void IK_OF(dots)(const int rows, const int cols, const int32_t dtype,
    int64_t k, const IK_T *a, int64_t a_row, const char *b, int64_t b_col, IK_T *sums, int64_t sums_row)
{
    enum { LANES = IK_OF(lanes) };
    const int64_t size = ik_itemsize(dtype);
    IK_OF(vector) sum[4][4], x[4];
    IK_T rest_a[LANES], rest_b[LANES];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            sum[r][c] = (IK_OF(vector)){ 0 };
    int64_t p = 0;
    for (; p + LANES <= k; p += LANES) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            x[c] = IK_OF(widen)(dtype, b + (c * b_col + p) * size);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            IK_OF(vector) w = *(const IK_OF(loose) *)(a + r * a_row + p);
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++)
                sum[r][c] = IK_OF(fma)(w, x[c], sum[r][c]);
        }
    }
    if (p < k) { /* the rest, padded with zeros */
        memset(rest_a, 0, sizeof rest_a);
        memset(rest_b, 0, sizeof rest_b);
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            IK_OF(load)(dtype, b + (c * b_col + p) * size, 1, k - p, rest_b);
            x[c] = *(const IK_OF(loose) *)rest_b;
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            memcpy(rest_a, a + r * a_row + p, (size_t)(k - p) * sizeof *a);
            IK_OF(vector) w = *(const IK_OF(loose) *)rest_a;
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++)
                sum[r][c] = IK_OF(fma)(w, x[c], sum[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        IK_OF(fold)(cols, sum[r], sums + r * sums_row);
}

static inline __attribute__((always_inline)) void IK_OF(dots_of)(const int32_t dtype, int64_t rows, int64_t cols,
    int64_t k, const IK_T *a, int64_t a_row, const char *b, int64_t b_col, IK_T *sums, int64_t sums_row)
{
    /* Fewer than 4 columns are computed one by one, and rows by 4, 2 and 1: each size is separate code. */
    const int64_t wide = cols == 4 ? 4 : 1;
    for (int64_t r = 0, tall; r < rows; r += tall) {
        tall = rows - r >= 4 ? 4 : rows - r >= 2 && wide == 4 ? 2 : 1;
        for (int64_t c = 0; c < cols; c += wide) {
            const IK_T *x = a + r * a_row;
            const char *y = b + c * b_col * ik_itemsize(dtype);
            IK_T *to = sums + r * sums_row + c;
            if (tall == 4 && wide == 4)
                IK_OF(dots)(4, 4, dtype, k, x, a_row, y, b_col, to, sums_row);
            else if (tall == 4)
                IK_OF(dots)(4, 1, dtype, k, x, a_row, y, b_col, to, sums_row);
            else if (tall == 2)
                IK_OF(dots)(2, 4, dtype, k, x, a_row, y, b_col, to, sums_row);
            else if (wide == 4)
                IK_OF(dots)(1, 4, dtype, k, x, a_row, y, b_col, to, sums_row);
            else
                IK_OF(dots)(1, 1, dtype, k, x, a_row, y, b_col, to, sums_row);
        }
    }
}

/* sums[j] += Σ_i w[i] b[i, j] for the 4 rows of b at x[0] .. x[3], j < n, n a multiple of a vector's lanes. */
static inline __attribute__((always_inline)) void IK_OF(add_rows)(
    const int32_t dtype, int64_t n, const IK_T *w, const char *const *x, IK_T *sums)
{
    const int64_t size = ik_itemsize(dtype);
    IK_OF(vector) zero = { 0 }, w0 = w[0] - zero, w1 = w[1] - zero, w2 = w[2] - zero, w3 = w[3] - zero;
    for (int64_t j = 0; j < n; j += IK_OF(lanes)) {
        IK_OF(vector) s = *(const IK_OF(loose) *)(sums + j);
        s = IK_OF(fma)(w0, IK_OF(widen)(dtype, x[0] + j * size), s);
        s = IK_OF(fma)(w1, IK_OF(widen)(dtype, x[1] + j * size), s);
        s = IK_OF(fma)(w2, IK_OF(widen)(dtype, x[2] + j * size), s);
        *(IK_OF(loose) *)(sums + j) = IK_OF(fma)(w3, IK_OF(widen)(dtype, x[3] + j * size), s);
    }
}

/* sums[r, j] = Σ_p a[r, p] b[p, j] for a panel of b, which is two vectors wide; fewer rows have more sums each, which
 * do not wait for each other. */
static inline __attribute__((always_inline)) void IK_OF(panel_sums)(const int rows, const int32_t dtype, int64_t k,
    const IK_T *a, int64_t a_row, const char *b, IK_T *sums, int64_t sums_row)
{
    const int ways = 4 / rows;
    const int64_t vector = IK_OF(lanes) * ik_itemsize(dtype);
    IK_OF(vector) sum[4][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows * ways; i++)
        sum[i][0] = sum[i][1] = (IK_OF(vector)){ 0 };
    int64_t p = 0;
    for (; p + ways <= k; p += ways)
#pragma GCC unroll 4
        for (int w = 0; w < ways; w++, b += 2 * vector) {
            const IK_OF(vector) low = IK_OF(widen)(dtype, b), high = IK_OF(widen)(dtype, b + vector);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const IK_OF(vector) x = IK_OF(splat)(a + r * a_row + p + w);
                sum[r * ways + w][0] = IK_OF(fma)(x, low, sum[r * ways + w][0]);
                sum[r * ways + w][1] = IK_OF(fma)(x, high, sum[r * ways + w][1]);
            }
        }
    for (; p < k; p++, b += 2 * vector)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const IK_OF(vector) x = IK_OF(splat)(a + r * a_row + p);
            sum[r * ways][0] = IK_OF(fma)(x, IK_OF(widen)(dtype, b), sum[r * ways][0]);
            sum[r * ways][1] = IK_OF(fma)(x, IK_OF(widen)(dtype, b + vector), sum[r * ways][1]);
        }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        IK_OF(loose) *to = (IK_OF(loose) *)(sums + r * sums_row);
#pragma GCC unroll 4
        for (int w = 1; w < ways; w++)
            sum[r * ways][0] += sum[r * ways + w][0], sum[r * ways][1] += sum[r * ways + w][1];
        to[0] = sum[r * ways][0], to[1] = sum[r * ways][1];
    }
}

static inline __attribute__((always_inline)) void IK_OF(panel_sums_of)(const int32_t dtype, int64_t rows, int64_t k,
    const IK_T *a, int64_t a_row, const char *b, IK_T *sums, int64_t sums_row)
{
    if (rows == 4) {
        IK_OF(panel_sums)(4, dtype, k, a, a_row, b, sums, sums_row);
        return;
    }
    if (rows >= 2)
        IK_OF(panel_sums)(2, dtype, k, a, a_row, b, sums, sums_row);
    if (rows % 2 != 0)
        IK_OF(panel_sums)(1, dtype, k, a + (rows - 1) * a_row, a_row, b, sums + (rows - 1) * sums_row, sums_row);
}
