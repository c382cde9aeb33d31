/* Contractions: y[k] = init[k] + Σ_r a[k, r] b[k, r] of floats, over any strides, as matrix products of packed blocks
 * (gemm_tile.h).
 *
 * A kept loop belongs to the rows where only a moves along it, to the columns where only b does, else to the batch. The
 * offsets of a block's rows, columns and terms are listed, and packing follows the runs in those lists, so that
 * windows, transposes and merged loops need no special case. Sums of GROUP blocks of terms are made in the compute
 * type; those of groups are added in F64 without loss. The loops are in contract_typed.h. */
#ifndef IK_CONTRACT_H
#define IK_CONTRACT_H
#include "gemm_tile.h"

enum { IK_BATCH, IK_ROWS_OF_A, IK_COLS_OF_B, IK_TERMS, IK_ROLES };
enum { IK_TERM_BLOCK = 128, IK_GROUP = 8, IK_COL_BLOCK = 256, IK_ROW_BLOCK = 12 * IK_TILE_ROWS, IK_MIN_SIZE = 4 };

typedef struct ik_contraction {
    const ik_tensor *y, *init, *a, *b;
    int32_t dims[IK_ROLES], dim[IK_ROLES][IK_MAX_RANK];
    int64_t size[IK_ROLES];
    int64_t rows, cols, row_blocks, col_blocks; /* rows and columns of a block, and numbers of blocks */
    int64_t packed_bytes, panel_bytes, sum_bytes, slice_bytes;
    const char *from_a, *from_b, *from_init;
    char *to, *workspace;
} ik_contraction;

/* List numbers first .. first + count along a role's dims, as offsets in a tensor. */
static inline void ik_list(
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

/* Offsets that are evenly spaced. */
typedef struct ik_run {
    int64_t first, count, offset, step;
} ik_run;

static inline int64_t ik_runs(const int64_t *offset, int64_t n, ik_run *to)
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
{ return c->dims[role] > 0 ? t->strides[c->dim[role][c->dims[role] - 1]] : 0; }

/* Whether the nest of a plan with y, init and two inputs, whose product is summed, is a matrix product that is worth
 * packing. */
static inline bool ik_contraction_of(
    const ik_plan *plan, int64_t kept, int64_t panel_width, int64_t item, ik_contraction *c)
{
    const ik_tensor *t = plan->tensors;
    *c = (ik_contraction){ .y = &t[0], .init = &t[1], .a = &t[2], .b = &t[3], .size = { 1, 1, 1, 1 } };
    /* b is the factor that moves along the innermost dim on which only one of them moves. */
    for (int64_t d = kept - 1, known = 0; d >= 0 && !known; d--) {
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
    if (c->size[IK_ROWS_OF_A] < IK_MIN_SIZE || c->size[IK_COLS_OF_B] < IK_MIN_SIZE || c->size[IK_BATCH] == 0
        || c->size[IK_TERMS] < IK_MIN_SIZE)
        return false;
    c->rows = ik_min(c->size[IK_ROWS_OF_A], IK_ROW_BLOCK), c->cols = ik_min(c->size[IK_COLS_OF_B], IK_COL_BLOCK);
    for (;; c->cols = c->cols > 4 * panel_width ? c->cols / 2 : c->cols) { /* block borders change no sum */
        c->row_blocks = ik_ceil_div(c->size[IK_ROWS_OF_A], c->rows),
        c->col_blocks = ik_ceil_div(c->size[IK_COLS_OF_B], c->cols);
        double products = (double)c->rows * (double)c->cols * (double)c->size[IK_TERMS];
        if (c->row_blocks * c->col_blocks * c->size[IK_BATCH] >= 2 * ik_threads() || products < 2 * IK_THREAD_PRODUCTS
            || c->cols <= 4 * panel_width)
            break;
    }
    c->cols = ik_round_up(c->cols, panel_width);
    c->packed_bytes = IK_TERM_BLOCK * c->cols * item;
    c->panel_bytes = 16 * (IK_TERM_BLOCK + 16) * item;
    c->sum_bytes = c->rows * c->cols * item;
    c->slice_bytes = ik_round_up(c->packed_bytes + c->panel_bytes + c->sum_bytes, 64)
        + 2 * c->rows * c->cols * (int64_t)sizeof(double);
    return true;
}

static inline int64_t ik_contraction_tasks(const ik_contraction *c)
{ return c->size[IK_BATCH] * c->row_blocks * c->col_blocks; }

static inline int64_t ik_contraction_grain(const ik_contraction *c)
{
    double products = (double)c->rows * (double)c->cols * (double)c->size[IK_TERMS];
    return products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
}

#endif
