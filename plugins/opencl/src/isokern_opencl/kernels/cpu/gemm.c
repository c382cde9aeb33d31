/* matmul, gemm and linear on processors: register tiles over packed panels of columns (tiles.h).
 *
 * a is read in place if it holds the compute type in contiguous rows, and copied otherwise. b is packed: once for all
 * items where it is read more than once, else by the item that uses it. Where that copies less, yᵀ = bᵀ aᵀ is computed
 * instead: the weights of linear are rows along k. Products with up to four vectors copy nothing: they are dot products
 * of rows or weighted sums of rows, whichever are contiguous.
 *
 * Against the portable kernel, interleaved (PoCL 3.0, AVX-512, two Zen 5 cores, busy): F32 1024^3 320 times as fast,
 * F16 150, F64 130, 128^3 24, I8 256^3 66; linear of one row and 4096^2 weights 5, matmul of one row 40. Against the C
 * kernels of the CPU plug-in: F32 1024^3 0.9 to 1. */
#include "isokern_math.h"
#if defined(PACKED) && !PACKED
#define PANEL __private /* an item packs a block of the right matrix for itself */
#endif
#include "tiles.h"

/* The size of the result, and the number of products in each sum. */
typedef struct extent {
    ik_index rows, cols, k, panels;
    int row, col; /* the dims of the matrices that are rows and columns here, counted from the last one */
} extent;

static IK_INLINE ik_index row_step(extent e, ik_tensor t) { return t.strides[t.ndim - e.row]; }
static IK_INLINE ik_index col_step(extent e, ik_tensor t) { return t.strides[t.ndim - e.col]; }

static IK_INLINE extent extent_of(const ik_args *p)
{
    extent e = { .row = p->transposed ? 1 : 2, .col = p->transposed ? 2 : 1, .k = p->a.shape[p->a.ndim - 1] };
    e.rows = p->y.shape[p->y.ndim - e.row];
    e.cols = p->y.shape[p->y.ndim - e.col];
    e.panels = (e.cols + PANEL_COLS - 1) / PANEL_COLS;
    return e;
}

/* Where one matrix of a batch begins. */
static IK_INLINE ik_index of_batch(ik_tensor t, ik_index batch)
{
    ik_index at = t.offset;
    for (ik_index d = t.ndim - 3; d >= 0; d--) {
        at += batch % t.shape[d] * t.strides[d];
        batch /= t.shape[d];
    }
    return at;
}

typedef struct matrix {
    IK_GLOBAL const element *at;
    ik_index row, col; /* strides */
} matrix;

static IK_INLINE matrix matrix_of(extent e, ik_tensor t, IK_GLOBAL const element *data, ik_index batch)
{ return (matrix){ data + of_batch(t, batch), row_step(e, t), col_step(e, t) }; }

/* One matrix of a batch. */
#define LEFT(batch) (p.transposed ? matrix_of(e, p.b, b, batch) : matrix_of(e, p.a, a, batch))
#define RIGHT(batch) (p.transposed ? matrix_of(e, p.a, a, batch) : matrix_of(e, p.b, b, batch))

/* Pack rows [first, first + count) of panel `panel_number` of the right matrix; columns that do not exist are zero. */
static IK_INLINE void pack(extent e, matrix right, ik_index first, int count, ik_index panel_number, PANEL value *to)
{
    const ik_index wide = min((ik_index)PANEL_COLS, e.cols - panel_number * PANEL_COLS);
    for (int i = 0; i < count * PANEL_COLS && wide < PANEL_COLS; i++)
        to[i] = 0;
    copy(right.at + first * right.row + panel_number * PANEL_COLS * right.col, right.row, right.col, count, wide, to,
        PANEL_COLS);
}

/* An item packs some rows of some panels. */
IK_ENTRY(gemm_right)(IK_PARAMS)
{
    enum { HIGH = 64, WIDE = 8 };
    const extent e = extent_of(&p);
    const ik_index parts = (e.k + HIGH - 1) / HIGH, shares = (e.panels + WIDE - 1) / WIDE, item = IK_GROUP_ID,
                   batch = item / parts / shares;
    const ik_index first = item % parts * HIGH, begin = item / parts % shares * WIDE, end = min(e.panels, begin + WIDE);
    const matrix right = RIGHT(batch);
    for (ik_index panel_number = begin; panel_number < end; panel_number++)
        pack(e, right, first, (int)min((ik_index)HIGH, e.k - first), panel_number,
            (IK_GLOBAL value *)workspace + ((ik_i64)(batch * e.panels + panel_number) * e.k + first) * PANEL_COLS);
}

/* An item copies a part of some rows. */
IK_ENTRY(gemm_left)(IK_PARAMS)
{
    enum { HIGH = 128, WIDE = 64 };
    const extent e = extent_of(&p);
    const ik_index parts = (e.k + WIDE - 1) / WIDE, shares = (e.rows + HIGH - 1) / HIGH, item = IK_GROUP_ID,
                   batch = item / parts / shares;
    const ik_index begin = item % parts * WIDE, first = item / parts % shares * HIGH;
    const matrix left = LEFT(batch);
    copy(left.at + first * left.row + begin * left.col, left.row, left.col, min((ik_index)HIGH, e.rows - first),
        min((ik_index)WIDE, e.k - begin),
        (IK_GLOBAL value *)(workspace + p.at) + (ik_i64)(batch * e.rows + first) * e.k + begin, e.k);
}

typedef struct operands {
    IK_GLOBAL element *y;
    IK_GLOBAL const element *bias, *c; /* null where absent */
} operands;

#ifdef IK_HAS_bias
#define BIAS bias
#else
#define BIAS 0
#endif
#ifdef IK_HAS_c
#define C c
#else
#define C 0
#endif

/* Store a row of y from column `col` on, from its sums. */
static IK_INLINE void finish(
    const ik_args *p, extent e, operands o, ik_index batch, ik_index row, ik_index col, int cols, value *line)
{
#ifdef IK_OP_gemm
    for (int j = 0; j < cols; j++)
        line[j] *= p->attr_alpha;
#ifdef IK_HAS_c
    if (p->attr_beta != 0)
        for (int j = 0; j < cols; j++)
            line[j] += p->attr_beta
                * LOAD(o.c, of_batch(p->c, batch) + row * row_step(e, p->c) + (col + j) * col_step(e, p->c));
#endif
#endif
#ifdef IK_HAS_bias
    for (int j = 0; j < cols; j++)
        line[j] += LOAD(o.bias, p->bias.offset + (p->transposed ? row : col + j) * p->bias.strides[0]);
#endif
#ifdef IK_OP_gemm
    for (int j = 0; j < cols; j++)
        line[j] = IK_ROW_activation(line[j]);
#endif
    const ik_index step = col_step(e, p->y), to = of_batch(p->y, batch) + row * row_step(e, p->y) + col * step;
    if (step == 1)
        for (int j = 0; j < cols; j++)
            IK_STORE_AS(y, o.y, to + j, line[j]);
    else
        for (int j = 0; j < cols; j++)
            IK_STORE_AS(y, o.y, to + j * step, line[j]);
}

#ifdef SKINNY /* the sums take half of 32 registers, or of 16 */
enum {
    DOT_ROWS = TILE_VECTORS == 2 ? 4 : 4 / SKINNY,
    SUM_VECTORS = TILE_VECTORS == 2 ? SKINNY == 1 ? 8 : 16 / SKINNY : 4 / SKINNY
};

/* Dot products of DOT_ROWS rows, or the first `rows` of them, and SKINNY columns; both contiguous in k. */
static IK_INLINE void dots(matrix left, int rows, matrix right, ik_index k, value *sums)
{
    IK_GLOBAL const element *line[DOT_ROWS];
    vector sum[DOT_ROWS][SKINNY];
#pragma unroll
    for (int i = 0; i < DOT_ROWS; i++) {
        line[i] = left.at + min(i, rows - 1) * left.row;
#pragma unroll
        for (int j = 0; j < SKINNY; j++)
            sum[i][j] = 0;
    }
    ik_index at = 0;
#pragma nounroll
    for (; at + LANES <= k; at += LANES) {
        vector x[SKINNY];
#pragma unroll
        for (int j = 0; j < SKINNY; j++)
            x[j] = load_vector(right.at + j * right.col + at);
#pragma unroll
        for (int i = 0; i < DOT_ROWS; i++) {
            const vector w = load_vector(line[i] + at);
#pragma unroll
            for (int j = 0; j < SKINNY; j++)
                sum[i][j] += w * x[j];
        }
    }
#pragma unroll
    for (int i = 0; i < DOT_ROWS; i++)
#pragma unroll
        for (int j = 0; j < SKINNY; j++) {
            value more = 0;
            for (ik_index q = at; q < k; q++)
                more += LOAD(line[i], q) * LOAD(right.at, j * right.col + q);
            sums[i * SKINNY + j] = more + total(sum[i][j]);
        }
}
#endif

IK_ENTRY(gemm_dots)(IK_PARAMS)
{
    enum { SHARE = 8 };
    const extent e = extent_of(&p);
    const ik_index shares = (e.rows + SHARE - 1) / SHARE, first = IK_GROUP_ID % shares * SHARE,
                   batch = IK_GROUP_ID / shares;
    const ik_index end = min(e.rows, first + SHARE);
    const matrix right = RIGHT(batch);
    const operands o = { y, BIAS, C };
    for (ik_index row = first; row < end; row += DOT_ROWS) {
        value sums[DOT_ROWS * SKINNY];
        const int rows = (int)min((ik_index)DOT_ROWS, end - row);
        matrix left = LEFT(batch);
        left.at += row * left.row;
        dots(left, rows, right, e.k, sums);
        for (int i = 0; i < rows; i++)
            finish(&p, e, o, batch, row + i, 0, SKINNY, sums + i * SKINNY);
    }
}

/* An item computes a run of columns: weighted sums of the rows of the right matrix, which are contiguous along the
 * columns. */
IK_ENTRY(gemm_sums)(IK_PARAMS)
{
    enum { SHARE = 8 * LANES, RUN = SUM_VECTORS * LANES }; /* columns of an item, and of one run */
    const extent e = extent_of(&p);
    const ik_index shares = (e.cols + SHARE - 1) / SHARE, first = IK_GROUP_ID % shares * SHARE,
                   batch = IK_GROUP_ID / shares;
    const ik_index end = min(e.cols, first + SHARE);
    const matrix left = LEFT(batch), right = RIGHT(batch);
    const operands o = { y, BIAS, C };
    for (ik_index begin = first; begin < end; begin += RUN) {
        const ik_index from = min(begin, e.cols - RUN); /* the last run ends with the row */
        vector sum[SKINNY][SUM_VECTORS];
#pragma unroll
        for (int i = 0; i < SKINNY; i++)
#pragma unroll
            for (int j = 0; j < SUM_VECTORS; j++)
                sum[i][j] = 0;
#pragma nounroll
        for (ik_index q = 0; q < e.k; q++) {
            IK_GLOBAL const element *line = right.at + q * right.row + from;
#pragma unroll
            for (int j = 0; j < SUM_VECTORS; j++) {
                const vector x = load_vector(line + j * LANES);
#pragma unroll
                for (int i = 0; i < SKINNY; i++)
                    sum[i][j] += LOAD(left.at, i * left.row + q * left.col) * x;
            }
        }
        for (int i = 0; i < SKINNY; i++)
            finish(&p, e, o, batch, i, begin, (int)min((ik_index)RUN, end - begin), (value *)sum[i] + (begin - from));
    }
}

IK_ENTRY(gemm)(IK_PARAMS)
{
    vector scratch[SUMS];
    value *sums = (value *)scratch;
    const extent e = extent_of(&p);
    const ik_index block = (ik_index)p.block, blocks = (e.rows + block - 1) / block, item = IK_GROUP_ID,
                   batch = item / e.panels / blocks;
    const ik_index panel_number = item % e.panels, col = panel_number * PANEL_COLS,
                   row = item / e.panels % blocks * block;
    const int rows = (int)min(block, e.rows - row), cols = (int)min((ik_index)PANEL_COLS, e.cols - col);
#if LIES
    const matrix lying = LEFT(batch);
    IK_GLOBAL const value *left = (IK_GLOBAL const value *)lying.at + row * lying.row;
    const ik_index left_row = lying.row;
#else
    IK_GLOBAL const value *left =
        (IK_GLOBAL const value *)(workspace + p.at) + (ik_i64)((p.lefts == 1 ? 0 : batch) * e.rows + row) * e.k;
    const ik_index left_row = e.k;
#endif
#if PACKED
    IK_GLOBAL const value *right = (IK_GLOBAL const value *)workspace
        + (ik_i64)((p.rights == 1 ? 0 : batch) * e.panels + panel_number) * e.k * PANEL_COLS;
#else
    vector panel[BLOCK_K * PANEL_COLS / LANES];
    const matrix right = RIGHT(batch);
#endif
    /* At least once: a sum of no products is zero. */
    for (ik_index first = 0; first == 0 || first < e.k; first += BLOCK_K) {
        const int count = (int)min((ik_index)BLOCK_K, e.k - first);
#if PACKED
        contract(left + first, left_row, rows, right + first * PANEL_COLS, PANEL_COLS, 0, count, sums, first == 0);
#else
        pack(e, right, first, count, panel_number, (value *)panel);
        contract(left + first, left_row, rows, (value *)panel, PANEL_COLS, 0, count, sums, first == 0);
#endif
    }
    const operands o = { y, BIAS, C };
    for (int i = 0; i < rows; i++)
        if (cols == PANEL_COLS) /* a loop of constant length */
            finish(&p, e, o, batch, row + i, col, PANEL_COLS, sums + i * PANEL_COLS);
        else
            finish(&p, e, o, batch, row + i, col, cols, sums + i * PANEL_COLS);
}
