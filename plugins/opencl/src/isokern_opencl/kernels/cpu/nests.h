/* Matrix products in a loop nest, for generic.c:
 *
 *     y[o, r, c] = init[o, r, c] + Σ_t a[o, r, t] b[o, t, c]
 *
 * Each index stands for several loops: a alone has strides along the `rows` r, b alone along the `cols` c, both or
 * neither along the `others` o, and neither y nor init along the terms t, which are all loops from `kept` on. There are
 * `high` rows, `wide` columns and d terms. TRANSPOSED says that b is the first input.
 *
 * An item computes a block of rows of one panel of columns in register tiles (tiles.h), with b packed for itself. */
#ifndef IK_NESTS_H
#define IK_NESTS_H
#define PANEL __private /* an item packs a block of b for itself */
#include "tiles.h"
#include "vectors.h"

#if TRANSPOSED
#define A x1
#define B x0
#else
#define A x0
#define B x1
#endif

typedef IK_ELEMENT(x0) given; /* the element type of a and b */
#define TERM_OF(from, i) ((value)IK_PASTE(ik_load_, IK_TYPE_x0)(from, i))

/* Load LANES adjacent elements. */
static IK_INLINE vector load_given(IK_GLOBAL const given *from)
{
#ifdef IK_COMPUTE_F64
    return *(IK_GLOBAL const loose *)from;
#else
    return IK_PASTE(ik_vector_, IK_TYPE_x0)(from);
#endif
}

/* Some loops of a nest, and the steps of a tensor along them. */
typedef struct {
    ik_index shape[8], step[8];
    int count;
} loops;

static IK_INLINE loops loops_of(const ik_index *shape, const ik_index *strides, IK_RECORD(ik_ints) picked)
{
    loops made;
    made.count = (int)picked.count;
    for (int i = 0; i < made.count; i++) {
        made.shape[i] = shape[picked.v[i]];
        made.step[i] = strides[picked.v[i]];
    }
    return made;
}

/* The offset of element i of the loops; the offsets of n elements from `first` on, relative to that one. */
static IK_INLINE ik_index along(loops of, ik_index i) { return ik_along(of.shape, of.step, of.count, i); }
static IK_INLINE void list(loops of, ik_index first, int n, ik_index *to)
{ ik_list(of.shape, of.step, of.count, first, n, to); }

/* The loops of a kind (rows, cols, others) for a tensor; where the tensor's matrix of the `batch`-th of the others
 * begins. */
#define LOOPS(x, kind) loops_of(p.y.shape, p.x.strides, p.kind)
#define MATRIX(x) (x + p.x.offset + along(LOOPS(x, others), batch))

/* Whether n offsets are consecutive. */
static IK_INLINE int follow(const ik_index *at, int n)
{
    int apart = 0;
    for (int i = 1; i < n; i++)
        apart |= at[i] - at[0] != i;
    return !apart;
}

/* panel[p * PANEL_COLS + j] = from[term[p] + col[j]], p < count: adjacent columns are copied by vectors, adjacent
 * terms by squares, which are transposed. */
static IK_INLINE void pack_lanes(
    IK_GLOBAL const given *from, const ik_index *term, int count, const ik_index *col, value *panel)
{
    enum { SIDE = 16 };
    const int transposed = !follow(col, SIDE) && follow(term, count) ? count / SIDE * SIDE : 0;
    for (int p = 0; p < transposed; p += SIDE)
        for (int j = 0; j < PANEL_COLS; j += SIDE) {
            value square[SIDE][SIDE];
            for (int v = 0; v < SIDE; v++)
                for (int u = 0; u < SIDE; u++)
                    square[v][u] = TERM_OF(from, term[0] + col[j + v] + p + u);
            for (int u = 0; u < SIDE; u++)
                for (int v = 0; v < SIDE; v++)
                    panel[(p + u) * PANEL_COLS + j + v] = square[v][u];
        }
    for (int j = 0; j < PANEL_COLS; j += LANES) {
        const ik_index *const at = col + j;
        if (follow(at, LANES))
            for (int p = transposed; p < count; p++)
                *(vector *)(panel + p * PANEL_COLS + j) = load_given(from + term[p] + at[0]);
        else
            for (int p = transposed; p < count; p++) {
                IK_VECTORISE for (int i = 0; i < LANES; i++)
                    panel[p * PANEL_COLS + j + i] = TERM_OF(from, term[p] + at[i]);
            }
    }
}

#ifdef COPIES
/* Copy a row of a to the workspace, its terms adjacent. */
static IK_INLINE void ik_left(IK_PASSED)
{
    const int kept = (int)p.kept, terms = (int)p.y.ndim - kept;
    const ik_index row = IK_GROUP_ID % (ik_index)p.high, batch = IK_GROUP_ID / (ik_index)p.high;
    IK_GLOBAL const given *a = MATRIX(A) + along(LOOPS(A, rows), row);
    IK_GLOBAL value *to = (IK_GLOBAL value *)workspace + (ik_i64)IK_GROUP_ID * p.d;
    ik_index at[IK_TILE];
    for (ik_index first = 0; first < (ik_index)p.d; first += IK_TILE) {
        const int n = (int)min((ik_index)IK_TILE, (ik_index)p.d - first);
        IK_GLOBAL const given *from = a + ik_along(p.y.shape + kept, p.A.strides + kept, terms, first);
        ik_list(p.y.shape + kept, p.A.strides + kept, terms, first, n, at);
        for (int i = 0; i < n; i++)
            to[first + i] = TERM_OF(from, at[i]);
    }
}
#endif

#ifdef LIES
/* Compute a block of rows of a panel of columns. LIES says that a has contiguous rows at equal distances; else the
 * workspace has them. The last panel ends with the columns and computes the first `skip` of its own once more. */
static IK_INLINE void ik_contract(IK_PASSED)
{
    enum { MORE = 4 * BLOCK_K }; /* terms that are added up before their sum is added to others */
    vector scratch[SUMS], before[SUMS], panel[BLOCK_K * PANEL_COLS / LANES];
    value *sums = (value *)scratch, *more = (value *)before;
    const int kept = (int)p.kept, terms = (int)p.y.ndim - kept;
    const ik_index block = (ik_index)p.block, high = (ik_index)p.high, wide = (ik_index)p.wide, d = (ik_index)p.d;
    const ik_index panels = (wide + PANEL_COLS - 1) / PANEL_COLS, blocks = (high + block - 1) / block,
                   item = IK_GROUP_ID, batch = item / panels / blocks;
    const ik_index panel_col = item % panels * PANEL_COLS, row = item / panels % blocks * block,
                   first = max((ik_index)0, min(panel_col, wide - PANEL_COLS));
    const int rows = (int)min(block, high - row), skip = (int)(panel_col - first),
              count = (int)min((ik_index)PANEL_COLS, wide - first);
    const loops cols_b = LOOPS(B, cols), cols_y = LOOPS(y, cols), cols_init = LOOPS(init, cols);
    const loops rows_a = LOOPS(A, rows), rows_y = LOOPS(y, rows), rows_init = LOOPS(init, rows);
    ik_index col[PANEL_COLS], to[PANEL_COLS], start[PANEL_COLS], term[BLOCK_K];
    list(cols_b, first, count, col);
    list(cols_y, first, count, to);
    list(cols_init, first, count, start);
    for (int j = count; j < PANEL_COLS; j++) /* columns that do not exist repeat the last one */
        col[j] = col[count - 1];
    IK_GLOBAL const given *b = MATRIX(B) + along(cols_b, first);
    IK_GLOBAL element *row_y = MATRIX(y) + along(cols_y, first);
    IK_GLOBAL const element *row_init = MATRIX(init) + along(cols_init, first);
#if LIES
    const ik_index step = rows_a.step[rows_a.count - 1];
    IK_GLOBAL const value *left = (IK_GLOBAL const value *)MATRIX(A) + row * step;
#else
    const ik_index step = d;
    IK_GLOBAL const value *left = (IK_GLOBAL const value *)workspace + (ik_i64)(batch * high + row) * d;
#endif
    for (int i = 0; i < rows * PANEL_COLS; i++)
        more[i] = 0;
    for (ik_index k = 0; k < d; k += BLOCK_K) {
        const int n = (int)min((ik_index)BLOCK_K, d - k);
        ik_list(p.y.shape + kept, p.B.strides + kept, terms, k, n, term);
        pack_lanes(b + ik_along(p.y.shape + kept, p.B.strides + kept, terms, k), term, n, col, (value *)panel);
        if (k > 0 && k % MORE == 0)
            for (int i = 0; i < rows * PANEL_COLS; i++)
                more[i] += sums[i];
        contract(left + k, step, rows, (value *)panel, PANEL_COLS, 0, n, sums, k % MORE == 0);
    }
    for (int i = 0; i < rows * PANEL_COLS; i++)
        sums[i] += more[i];
    const int whole = skip == 0 && follow(to, count) && follow(start, count);
    for (int i = 0; i < rows; i++) {
        IK_GLOBAL element *line = row_y + along(rows_y, row + i);
        IK_GLOBAL const element *before_it = row_init + along(rows_init, row + i);
        const value *sum = sums + i * PANEL_COLS;
        if (whole && count == PANEL_COLS) /* a loop of constant length */
            for (int j = 0; j < PANEL_COLS; j++)
                IK_STORE_AS(y, line, j, sum[j] + LOAD(before_it, j));
        else
            for (int j = skip; j < count; j++)
                IK_STORE_AS(y, line, to[j], sum[j] + LOAD(before_it, start[j]));
    }
}
#endif
#endif
