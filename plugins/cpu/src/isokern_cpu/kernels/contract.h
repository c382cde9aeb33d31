/* Contractions: y[k] = init[k] + Σ_r a[k, r] b[k, r] of floats, over any strides, as matrix products of packed blocks (gemm_tile.h).
 *
 * A kept loop is of the rows where a alone moves along it, of the columns where b alone does, else of the batch. The offsets of a block's
 * rows, columns and terms are listed, and packing goes along the runs in those lists: windows, transposes and merged loops are nothing
 * special. Sums of GROUP blocks of terms are made in the compute type, those of groups in F64 without loss.
 * The part after "typed" is compiled for float and for double: this header includes itself, with IK_T and IK_OF set. */
#ifndef IK_CONTRACT_H
#define IK_CONTRACT_H
#include "gemm_tile.h"

enum { IK_BATCH, IK_ROWS_OF_A, IK_COLS_OF_B, IK_TERMS, IK_ROLES };
enum { IK_TERM_BLOCK = 128, IK_GROUP = 8, IK_COL_BLOCK = 256, IK_ROW_BLOCK = 12 * IK_TILE_ROWS, IK_FEWEST = 4 };

typedef struct ik_contraction {
    const ik_tensor *y, *init, *a, *b;
    int32_t dims[IK_ROLES], dim[IK_ROLES][IK_MAX_RANK];
    int64_t size[IK_ROLES];
    int64_t rows, cols, row_blocks, col_blocks; /* of a block, and how many */
    int64_t packed_bytes, panel_bytes, sum_bytes, slice_bytes;
    const char *from_a, *from_b, *from_init;
    char *to, *workspace;
} ik_contraction;

/* Numbers first .. first + count along a role's dims, as offsets in a tensor. */
static void ik_list(const ik_contraction *c, int32_t role, const ik_tensor *t, int64_t first, int64_t count, int64_t *to)
{
    const int32_t *dim = c->dim[role], last = c->dims[role] - 1;
    int64_t index[IK_MAX_RANK], offset = 0;
    for (int32_t d = last; d >= 0; d--) {
        index[d] = first % t->shape[dim[d]];
        first /= t->shape[dim[d]];
        offset += index[d] * t->strides[dim[d]];
    }
    for (int64_t i = 0; i < count; i++) {
        to[i] = offset;
        for (int32_t d = last; d >= 0; d--) { /* odometer */
            offset += t->strides[dim[d]];
            if (++index[d] < t->shape[dim[d]])
                break;
            offset -= index[d] * t->strides[dim[d]];
            index[d] = 0;
        }
    }
}

/* Offsets that are evenly spaced. */
typedef struct ik_run {
    int64_t first, count, offset, step;
} ik_run;

static int64_t ik_runs(const int64_t *offset, int64_t n, ik_run *to)
{
    int64_t runs = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        int64_t step = i + 1 < n ? offset[i + 1] - offset[i] : 1;
        for (end = i + 1; end < n && offset[end] - offset[end - 1] == step; end++)
            continue;
        to[runs++] = (ik_run){ i, end - i, offset[i], step };
    }
    return runs;
}

/* The step of the innermost dim of a role. */
static inline int64_t ik_innermost(const ik_contraction *c, int32_t role, const ik_tensor *t)
{
    return c->dims[role] > 0 ? t->strides[c->dim[role][c->dims[role] - 1]] : 0;
}

/* Whether the nest of a plan with y, init and two inputs, whose product is summed, is a matrix product that is worth the packing. */
static bool ik_contraction_of(const ik_plan *plan, int64_t kept, int64_t strip, int64_t item, ik_contraction *c)
{
    const ik_tensor *t = plan->tensors;
    *c = (ik_contraction){ .y = &t[0], .init = &t[1], .a = &t[2], .b = &t[3], .size = { 1, 1, 1, 1 } };
    for (int64_t d = kept - 1, known = 0; d >= 0 && !known; d--) { /* b moves along the innermost dim that one of them has for itself */
        known = (c->a->strides[d] == 0) != (c->b->strides[d] == 0);
        if (known && c->b->strides[d] == 0)
            c->a = &t[3], c->b = &t[2];
    }
    for (int32_t d = 0; d < c->y->ndim; d++) {
        bool a = c->a->strides[d] != 0, b = c->b->strides[d] != 0;
        int32_t role = d >= kept ? IK_TERMS : a == b ? IK_BATCH : a ? IK_ROWS_OF_A : IK_COLS_OF_B;
        c->dim[role][c->dims[role]++] = d;
        c->size[role] *= c->y->shape[d];
    }
    if (c->size[IK_ROWS_OF_A] < IK_FEWEST || c->size[IK_COLS_OF_B] < IK_FEWEST || c->size[IK_BATCH] == 0 || c->size[IK_TERMS] < IK_FEWEST)
        return false;
    c->rows = ik_min(c->size[IK_ROWS_OF_A], IK_ROW_BLOCK), c->cols = ik_min(c->size[IK_COLS_OF_B], IK_COL_BLOCK);
    for (;; c->cols = c->cols > 4 * strip ? c->cols / 2 : c->cols) { /* where a block stops changes no sum */
        c->row_blocks = ik_ceil_div(c->size[IK_ROWS_OF_A], c->rows), c->col_blocks = ik_ceil_div(c->size[IK_COLS_OF_B], c->cols);
        double products = (double)c->rows * (double)c->cols * (double)c->size[IK_TERMS];
        if (c->row_blocks * c->col_blocks * c->size[IK_BATCH] >= 2 * ik_threads() || products < 2 * IK_THREAD_PRODUCTS || c->cols <= 4 * strip)
            break;
    }
    c->cols = ik_round_up(c->cols, strip);
    c->packed_bytes = IK_TERM_BLOCK * c->cols * item;
    c->panel_bytes = 16 * (IK_TERM_BLOCK + 16) * item;
    c->sum_bytes = c->rows * c->cols * item;
    c->slice_bytes = ik_round_up(c->packed_bytes + c->panel_bytes + c->sum_bytes, 64) + 2 * c->rows * c->cols * (int64_t)sizeof(double);
    return true;
}

static inline int64_t ik_contraction_tasks(const ik_contraction *c) { return c->size[IK_BATCH] * c->row_blocks * c->col_blocks; }

static inline int64_t ik_contraction_grain(const ik_contraction *c)
{
    double products = (double)c->rows * (double)c->cols * (double)c->size[IK_TERMS];
    return products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
}

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "contract.h"
#undef IK_T
#undef IK_OF
#define IK_T double
#define IK_OF(name) name##_f64
#include "gemm_tile.h"
#include "contract.h"
#undef IK_T
#undef IK_OF

#elif defined(IK_T) /* typed */

/* Elements at outer[o] + inner[i] of a tensor: to[o * step + i]. */
static void IK_OF(pack)(int32_t dtype, const char *from, const int64_t *outer, int64_t n, const int64_t *inner, int64_t count, IK_T *to, int64_t step)
{
    const int64_t size = ik_itemsize(dtype);
    ik_run run[IK_TERM_BLOCK];
    int64_t runs = ik_runs(inner, count, run);
    for (int64_t o = 0; o < n; o++)
        for (int64_t r = 0; r < runs; r++)
            IK_OF(load)(dtype, from + (outer[o] + run[r].offset) * size, run[r].step, run[r].count, to + o * step + run[r].first);
}

/* The same into to[o + i * step]. */
static void IK_OF(turn)(int32_t dtype, const char *from, const int64_t *outer, int64_t n, const int64_t *inner, int64_t count, IK_T *to, int64_t step)
{
    enum { WIDE = 16 };
    IK_T rows[WIDE][IK_TERM_BLOCK];
    for (int64_t o = 0; o < n; o += WIDE) {
        int64_t wide = ik_min(WIDE, n - o);
        IK_OF(pack)(dtype, from, outer + o, wide, inner, count, rows[0], IK_TERM_BLOCK);
        for (int64_t i = 0; i < count; i++)
            for (int64_t k = 0; k < wide; k++)
                to[i * step + o + k] = rows[k][i];
    }
}

/* A block of y: sums + init. */
static void IK_OF(finish)(const ik_contraction *c, int64_t batch, int64_t row, int64_t rows, int64_t col, int64_t cols, const IK_T *sums, const double *high,
                          const double *low)
{
    int64_t at_y, at_init, down_y[IK_ROW_BLOCK], down_init[IK_ROW_BLOCK], along_y[IK_COL_BLOCK], along_init[IK_COL_BLOCK];
    ik_run run_y[IK_COL_BLOCK], run_init[IK_COL_BLOCK];
    ik_list(c, IK_BATCH, c->y, batch, 1, &at_y);
    ik_list(c, IK_BATCH, c->init, batch, 1, &at_init);
    ik_list(c, IK_ROWS_OF_A, c->y, row, rows, down_y);
    ik_list(c, IK_ROWS_OF_A, c->init, row, rows, down_init);
    ik_list(c, IK_COLS_OF_B, c->y, col, cols, along_y);
    ik_list(c, IK_COLS_OF_B, c->init, col, cols, along_init);
    const int64_t runs_y = ik_runs(along_y, cols, run_y), runs_init = ik_runs(along_init, cols, run_init), size = ik_itemsize(c->y->dtype);
    for (int64_t i = 0; i < rows; i++) {
        IK_T made[IK_COL_BLOCK];
        for (int64_t r = 0; r < runs_init; r++)
            IK_OF(load)(c->init->dtype, c->from_init + (at_init + down_init[i] + run_init[r].offset) * size, run_init[r].step, run_init[r].count,
                        made + run_init[r].first);
        for (int64_t j = 0; j < cols && high != NULL; j++) {
            double sum = high[i * c->cols + j] + (double)made[j], rest = low[i * c->cols + j];
            made[j] = (IK_T)(rest == rest ? sum + rest : sum); /* beyond the finite numbers the rest is NaN and says nothing */
        }
        for (int64_t j = 0; j < cols && high == NULL; j++)
            made[j] += sums[i * c->cols + j];
        for (int64_t r = 0; r < runs_y; r++)
            IK_OF(store)(c->y->dtype, made + run_y[r].first, c->to + (at_y + down_y[i] + run_y[r].offset) * size, run_y[r].step, run_y[r].count);
    }
}

/* Task number: (batch * row blocks + row block) * column blocks + column block. */
static void IK_OF(contract)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const ik_contraction *c = context;
    const int64_t strip = IK_OF(strip), terms = c->size[IK_TERMS], item_a = ik_itemsize(c->a->dtype), item_b = ik_itemsize(c->b->dtype);
    const bool down_b = ik_innermost(c, IK_TERMS, c->b) == 1 && ik_innermost(c, IK_COLS_OF_B, c->b) != 1;
    const bool down_a = ik_innermost(c, IK_ROWS_OF_A, c->a) == 1 && ik_innermost(c, IK_TERMS, c->a) != 1;
    char *slice = c->workspace + worker * c->slice_bytes;
    IK_T *packed = (IK_T *)(void *)slice, *panel = (IK_T *)(void *)(slice + c->packed_bytes), *sums = (IK_T *)(void *)(slice + c->packed_bytes + c->panel_bytes);
    double *high = (double *)(void *)(slice + c->slice_bytes) - 2 * c->rows * c->cols, *low = high + c->rows * c->cols;
    int64_t at_a, at_b, rows_a[IK_ROW_BLOCK], cols_b[IK_COL_BLOCK], terms_a[IK_TERM_BLOCK], terms_b[IK_TERM_BLOCK];
    for (int64_t task = begin; task < end; task++) {
        int64_t batch = task / c->col_blocks / c->row_blocks, row = task / c->col_blocks % c->row_blocks * c->rows, col = task % c->col_blocks * c->cols;
        int64_t rows = ik_min(c->rows, c->size[IK_ROWS_OF_A] - row), cols = ik_min(c->cols, c->size[IK_COLS_OF_B] - col);
        const bool groups = terms > IK_GROUP * IK_TERM_BLOCK;
        if (cols <= 0)
            continue;
        ik_list(c, IK_BATCH, c->a, batch, 1, &at_a);
        ik_list(c, IK_BATCH, c->b, batch, 1, &at_b);
        ik_list(c, IK_ROWS_OF_A, c->a, row, rows, rows_a);
        ik_list(c, IK_COLS_OF_B, c->b, col, cols, cols_b);
        if (groups)
            memset(high, 0, (size_t)(2 * c->rows * c->cols) * sizeof *high);
        for (int64_t p = 0, block = 0; p < terms; p += IK_TERM_BLOCK, block = (block + 1) % IK_GROUP) {
            ik_tile t = { .k = ik_min(IK_TERM_BLOCK, terms - p), .b_step = strip, .from_row = c->cols, .to_row = c->cols };
            ik_list(c, IK_TERMS, c->a, p, t.k, terms_a);
            ik_list(c, IK_TERMS, c->b, p, t.k, terms_b);
            for (int64_t j = 0; j < cols; j += strip) {
                int64_t width = ik_min(strip, cols - j);
                if (width < strip)
                    memset(packed + j * t.k, 0, (size_t)(strip * t.k) * sizeof *packed);
                if (down_b)
                    IK_OF(turn)(c->b->dtype, c->from_b + at_b * item_b, cols_b + j, width, terms_b, t.k, packed + j * t.k, strip);
                else
                    IK_OF(pack)(c->b->dtype, c->from_b + at_b * item_b, terms_b, t.k, cols_b + j, width, packed + j * t.k, strip);
            }
            for (int64_t i = 0; i < rows; i += IK_TILE_ROWS) {
                int64_t height = ik_min(IK_TILE_ROWS, rows - i);
                t.a = panel, t.a_row = down_a ? 1 : IK_TERM_BLOCK + 16, t.a_step = down_a ? 16 : 1; /* rows start in different sets of the cache */
                if (down_a)
                    IK_OF(pack)(c->a->dtype, c->from_a + at_a * item_a, terms_a, t.k, rows_a + i, height, panel, t.a_step);
                else
                    IK_OF(pack)(c->a->dtype, c->from_a + at_a * item_a, rows_a + i, height, terms_a, t.k, panel, t.a_row);
                for (int64_t j = 0; j < cols; j += strip) {
                    t.b = packed + j * t.k, t.to = sums + i * c->cols + j, t.from = block == 0 ? NULL : t.to;
                    IK_OF(tile)(height, cols - j > IK_OF(lanes) ? 2 : 1, &t);
                }
            }
            if (groups && (block == IK_GROUP - 1 || p + t.k == terms))
                for (int64_t i = 0; i < rows * c->cols; i++) {
                    double x = (double)sums[i], sum = high[i] + x, part = sum - high[i];
                    low[i] += (high[i] - (sum - part)) + (x - part);
                    high[i] = sum;
                }
        }
        IK_OF(finish)(c, batch, row, rows, col, cols, sums, groups ? high : NULL, low);
    }
}

#endif
