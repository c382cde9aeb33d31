/* Contractions: sums of products of floats, y[k] = init[k] + Σ_r a[k, r] b[k, r] over the kept dims k and the reduced
 * dims r of a loop nest, as matrix products of packed blocks. The loops are in contract_typed.h.
 *
 * A kept dim along which only a moves belongs to the rows, one along which only b moves to the columns, and any other
 * one to the batch; the reduced dims are the terms:
 *
 *     y[batch, row, col] = init[batch, row, col] + Σ_term a[batch, row, term] b[batch, term, col]
 *
 * Each of these four is an index over several dims with any strides. Therefore the offsets of a block's rows, columns
 * and terms are listed, and packing follows the evenly spaced runs in the lists, so that windows, transposes and merged
 * dims need no special case. */
#ifndef IK_CONTRACT_H
#define IK_CONTRACT_H
#include "gemm_tile.h"

enum { IK_BATCH, IK_ROWS_OF_A, IK_COLS_OF_B, IK_TERMS, IK_ROLES };
enum {
    IK_TERM_BLOCK = 128,
    IK_GROUP = 8, /* blocks of terms that are added up in the compute type; groups are added in F64 */
    IK_COL_BLOCK = 256,
    IK_ROW_BLOCK = 12 * IK_TILE_ROWS,
    IK_PANEL_ROW = IK_TERM_BLOCK + 16, /* between rows of a packed panel of a: they start in different cache sets */
    IK_PANEL_COL = 16,                 /* between its columns, where a lies along them; at least IK_TILE_ROWS */
    IK_MIN_SIZE = 4 /* with fewer rows, columns or terms, packing does not pay */
};

/* A tensor, and its element at index 0. */
typedef struct ik_operand {
    const ik_tensor *t;
    char *data;
} ik_operand;

typedef struct ik_contraction {
    ik_operand y, init, a, b;
    int32_t dims[IK_ROLES], dim[IK_ROLES][IK_MAX_RANK]; /* how many dims have a role, and which */
    int64_t size[IK_ROLES]; /* rows, columns, …: the product of the lengths of those dims */
    int64_t block_rows, block_cols; /* of a block; its columns are whole panels */
    int64_t row_blocks, col_blocks; /* numbers of blocks */
    int64_t slice_bytes; /* of the workspace, for each thread */
    char *workspace;
} ik_contraction;

/* List the offsets of the elements first .. first + count along a role's dims. */
static inline void ik_list_offsets(
    const ik_contraction *c, int32_t role, const ik_tensor *t, int64_t first, int64_t count, int64_t *to)
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
        for (int32_t d = last; d >= 0; d--) { /* advance the indices, innermost dim first */
            offset += t->strides[dim[d]];
            if (++index[d] < t->shape[dim[d]])
                break;
            offset -= index[d] * t->strides[dim[d]];
            index[d] = 0;
        }
    }
}

/* The address of an element of the batch. */
static inline char *ik_batch_at(const ik_contraction *c, const ik_operand *x, int64_t batch)
{
    int64_t offset;
    ik_list_offsets(c, IK_BATCH, x->t, batch, 1, &offset);
    return x->data + offset * ik_itemsize(x->t->dtype);
}

/* Offsets that are evenly spaced. */
typedef struct ik_run {
    int64_t first, count, offset, step; /* offset[first + i] = offset + i * step */
} ik_run;

/* Divide a list of offsets into runs; returns how many. */
static inline int64_t ik_find_runs(const int64_t *offset, int64_t n, ik_run *to)
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

/* Whether neighbours along role `inner` are adjacent in memory, and those along `outer` are not. */
static inline bool ik_lies_along(const ik_contraction *c, const ik_tensor *t, int32_t inner, int32_t outer)
{
    const int32_t n = c->dims[inner], m = c->dims[outer];
    return n > 0 && t->strides[c->dim[inner][n - 1]] == 1 && !(m > 0 && t->strides[c->dim[outer][m - 1]] == 1);
}

/* Set up the contraction of a plan with y, init and two inputs, whose product is summed; returns whether it is a matrix
 * product that is worth packing. `item`: bytes of an element of the compute type. */
static inline bool ik_set_up_contraction(
    const ik_plan *plan, int64_t kept, int64_t panel_width, int64_t item, ik_contraction *c)
{
    const ik_tensor *t = plan->tensors;
    *c = (ik_contraction){ .y.t = &t[0], .init.t = &t[1], .a.t = &t[2], .b.t = &t[3], .size = { 1, 1, 1, 1 } };
    /* b is the factor that moves along the innermost dim on which only one of them moves. */
    for (int64_t d = kept - 1, known = 0; d >= 0 && !known; d--) {
        known = (t[2].strides[d] == 0) != (t[3].strides[d] == 0);
        if (known && t[3].strides[d] == 0)
            c->a.t = &t[3], c->b.t = &t[2];
    }
    for (int32_t d = 0; d < t->ndim; d++) {
        bool a = c->a.t->strides[d] != 0, b = c->b.t->strides[d] != 0;
        int32_t role = d >= kept ? IK_TERMS : a == b ? IK_BATCH : a ? IK_ROWS_OF_A : IK_COLS_OF_B;
        c->dim[role][c->dims[role]++] = d;
        c->size[role] *= t->shape[d];
    }
    const int64_t rows = c->size[IK_ROWS_OF_A], cols = c->size[IK_COLS_OF_B], terms = c->size[IK_TERMS];
    if (rows < IK_MIN_SIZE || cols < IK_MIN_SIZE || terms < IK_MIN_SIZE || c->size[IK_BATCH] == 0)
        return false;
    c->block_rows = ik_min(rows, IK_ROW_BLOCK);
    c->row_blocks = ik_ceil_div(rows, c->block_rows);
    /* Halve the columns of a block until there are tasks for all threads; the borders of blocks change no sum. */
    for (int64_t wanted = ik_min(cols, IK_COL_BLOCK);; wanted /= 2) {
        c->block_cols = ik_round_up(wanted, panel_width);
        c->col_blocks = ik_ceil_div(cols, c->block_cols);
        double products = (double)c->block_rows * (double)c->block_cols * (double)terms;
        if (c->row_blocks * c->col_blocks * c->size[IK_BATCH] >= 2 * ik_threads() || products < 2 * IK_THREAD_PRODUCTS
            || wanted <= 4 * panel_width)
            break;
    }
    /* Sums of groups (high and low), sums, packed b, and a packed panel of a. */
    const int64_t sums = c->block_rows * c->block_cols;
    c->slice_bytes = ik_round_up((2 * (int64_t)sizeof(double) + item) * sums
            + (IK_TERM_BLOCK * c->block_cols + IK_PANEL_COL * IK_PANEL_ROW) * item,
        64);
    return true;
}

/* A block of y: a task, numbered (batch * row blocks + row block) * column blocks + column block. */
typedef struct ik_contraction_block {
    int64_t batch, row, rows, col, cols;
} ik_contraction_block;

static inline ik_contraction_block ik_contraction_block_at(const ik_contraction *c, int64_t task)
{
    const int64_t row = task / c->col_blocks % c->row_blocks * c->block_rows,
                  col = task % c->col_blocks * c->block_cols;
    return (ik_contraction_block){ .batch = task / c->col_blocks / c->row_blocks,
        .row = row,
        .rows = ik_min(c->block_rows, c->size[IK_ROWS_OF_A] - row),
        .col = col,
        .cols = ik_min(c->block_cols, c->size[IK_COLS_OF_B] - col) };
}

static inline int64_t ik_contraction_tasks(const ik_contraction *c)
{ return c->size[IK_BATCH] * c->row_blocks * c->col_blocks; }

static inline int64_t ik_contraction_grain(const ik_contraction *c)
{
    double products = (double)c->block_rows * (double)c->block_cols * (double)c->size[IK_TERMS];
    return products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
}

#endif
