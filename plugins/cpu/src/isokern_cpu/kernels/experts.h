/* The pairs of rows and experts of matmul_id, sorted by expert, and products of gathered rows with the weights of one.
 *
 * An expert's rows of x are gathered, at most MAX_ROWS at a time, multiplied by its weights as matmul_transposed does,
 * and scattered to y; a single row is read and written in place. So the weights of the experts that have rows are read
 * once, and no others. */
#ifndef IK_EXPERTS_H
#define IK_EXPERTS_H
#include "row_panels.h"
#include "move.h"
#include "operators/matmul_id.h"

_Static_assert((int)IK_MATMUL_ID_W == (int)IK_MATMUL_TRANSPOSED_W, "panels_of finds w where products have it");

enum { MAX_ROWS = 512, COPY_BYTES = 1 << 16 };

/* A call, and the rows that are being copied. */
typedef struct experts {
    const ik_tensor *y, *x, *w, *ids;
    char *to;
    const char *from, *weights, *index;
    int64_t pairs, top, n, k, count;    /* count: experts */
    bool quantised, prepacked;          /* x becomes Q8_0; w is in panels */
    int64_t *begins, *order;            /* where an expert's pairs begin in `order`; pairs sorted by expert */
    char *x_rows, *y_rows, *workspace;  /* gathered rows of x, rows of y to be scattered, the products' workspace */
    int64_t x_bytes, y_bytes, at;       /* bytes of x_rows and y_rows; where the rows begin in `order` */
} experts;

static bool are_quantised(const ik_plan *plan)
{ return ((const ik_matmul_id_attrs *)plan->attrs)->lhs_quantization == IK_MATMUL_ID_Q8_0; }

/* Nothing is gathered of a single row, or where panels are met by all rows in place. */
static experts experts_of(const ik_plan *plan)
{
    experts e = { .y = &plan->tensors[IK_MATMUL_ID_Y],
        .x = &plan->tensors[IK_MATMUL_ID_X],
        .w = &plan->tensors[IK_MATMUL_ID_W],
        .ids = &plan->tensors[IK_MATMUL_ID_IDS],
        .quantised = are_quantised(plan),
        .prepacked = IK_IS_PREPACKED(plan, IK_MATMUL_ID_W) };
    e.top = e.ids->shape[1];
    e.pairs = e.ids->shape[0] * e.top;
    e.count = e.w->shape[0];
    e.n = e.w->shape[1];
    e.k = e.w->shape[2];
    const int64_t rows = e.pairs > 1 && !(e.quantised && e.prepacked) ? ik_min(e.pairs, MAX_ROWS) : 0;
    e.x_bytes = ik_round_up(rows * e.k * ik_itemsize(e.x->dtype), 64);
    e.y_bytes = ik_round_up(rows * e.n * ik_itemsize(e.y->dtype), 64);
    return e;
}

static int64_t sorting_bytes(const experts *e)
{ return ik_round_up((e->count + 1 + e->pairs) * (int64_t)sizeof(int64_t), 64); }

/* A product of some rows with the weights of one expert: its tensors and its plan. */
typedef struct product {
    ik_tensor tensors[3];
    ik_matmul_transposed_attrs attrs;
    ik_plan plan;
} product;

/* What computes such a product; a kernel file defines both. */
static uint64_t product_workspace(const ik_plan *plan);
static ik_status multiply_product(const ik_plan *plan, void *const *data, void *workspace);

static void set_matrix(ik_tensor *t, int32_t dtype, int64_t rows, int64_t cols, int64_t row, int64_t col)
{ *t = (ik_tensor){ .dtype = dtype, .ndim = 2, .shape = { rows, cols }, .strides = { row, col } }; }

/* A single row lies in x and y, several lie one after the other in the workspace. */
static void set_product(product *p, const experts *e, int64_t rows)
{
    const bool one = rows == 1;
    set_matrix(&p->tensors[IK_MATMUL_TRANSPOSED_Y], e->y->dtype, rows, e->n, e->n, one ? e->y->strides[2] : 1);
    set_matrix(&p->tensors[IK_MATMUL_TRANSPOSED_X], e->x->dtype, rows, e->k, e->k, one ? e->x->strides[2] : 1);
    set_matrix(&p->tensors[IK_MATMUL_TRANSPOSED_W], e->w->dtype, e->n, e->k, e->w->strides[1], e->w->strides[2]);
    p->attrs.lhs_quantization = e->quantised ? IK_MATMUL_TRANSPOSED_Q8_0 : IK_MATMUL_TRANSPOSED_FLOAT;
    p->plan = (ik_plan){ .kind = IK_OP_MATMUL_TRANSPOSED,
        .tensor_count = 3,
        .tensors = p->tensors,
        .attrs = &p->attrs,
        .attr_bytes = sizeof p->attrs,
        .prepacked = e->prepacked ? UINT64_C(1) << IK_MATMUL_TRANSPOSED_W : 0 };
}

static int64_t id_at(const experts *e, int64_t pair)
{ return ik_index_at(e->ids->dtype, e->index, ik_row_offset(e->ids, pair, 0)); }

static bool is_known(const experts *e, int64_t id) { return id >= 0 && id < e->count; }

static char *row_of_y(const experts *e, int64_t pair)
{ return e->to + ik_row_offset(e->y, pair, 1) * ik_itemsize(e->y->dtype); }

static const char *row_of_x(const experts *e, int64_t pair)
{ return e->from + ik_row_offset(e->x, pair, 1) * ik_itemsize(e->x->dtype); }

static const char *weights_of(const experts *e, int64_t expert)
{
#if defined(IK_PANELS)
    if (e->prepacked)
        return e->weights + expert * matrix_bytes(e->w->dtype, e->n, e->k);
#endif
    return e->weights + ik_bytes(e->w->dtype, expert * e->w->strides[0]);
}

/* Sort the pairs by expert; return the first whose id names none, or -1. */
static int64_t sort_pairs(const experts *e)
{
    int64_t bad = -1;
    memset(e->begins, 0, (size_t)(e->count + 1) * sizeof *e->begins);
    for (int64_t pair = 0; pair < e->pairs; pair++) {
        const int64_t id = id_at(e, pair);
        if (is_known(e, id))
            e->begins[id + 1]++;
        else if (bad < 0)
            bad = pair;
    }
    for (int64_t i = 0; i < e->count; i++)
        e->begins[i + 1] += e->begins[i];
    for (int64_t pair = 0; pair < e->pairs; pair++) {
        const int64_t id = id_at(e, pair);
        if (is_known(e, id))
            e->order[e->begins[id]++] = pair;
    }
    for (int64_t i = e->count; i > 0; i--) /* begins have become ends */
        e->begins[i] = e->begins[i - 1];
    e->begins[0] = 0;
    return bad;
}

static void gather_rows(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const experts *e = context;
    const int64_t size = ik_itemsize(e->x->dtype);
    for (int64_t i = begin; i < end; i++)
        ik_move_line(size, e->k, e->x_rows + i * e->k * size, size, row_of_x(e, e->order[e->at + i]),
            e->x->strides[2] * size, false);
}

static void scatter_rows(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const experts *e = context;
    const int64_t size = ik_itemsize(e->y->dtype);
    for (int64_t i = begin; i < end; i++)
        ik_move_line(size, e->n, row_of_y(e, e->order[e->at + i]), e->y->strides[2] * size, e->y_rows + i * e->n * size,
            size, false);
}

/* Compute rows of one expert, from place e->at in the order on. */
static ik_status multiply_gathered(experts *e, int64_t expert, int64_t rows)
{
    product p;
    set_product(&p, e, rows);
    const int64_t pair = e->order[e->at], x_size = ik_itemsize(e->x->dtype), y_size = ik_itemsize(e->y->dtype);
    char *y = rows == 1 ? row_of_y(e, pair) : e->y_rows, *x = rows == 1 ? (char *)row_of_x(e, pair) : e->x_rows;
    void *data[5] = { y, x, (char *)weights_of(e, expert) }; /* no bias, no c */
    if (rows > 1)
        ik_parallel_for(rows, 1 + COPY_BYTES / ik_max(1, e->k * x_size), gather_rows, e);
    const ik_status status = multiply_product(&p.plan, data, e->workspace);
    if (rows > 1)
        ik_parallel_for(rows, 1 + COPY_BYTES / ik_max(1, e->n * y_size), scatter_rows, e);
    return status;
}

/* Compute the rows of those experts that have more than `few`, one expert after the other. */
static ik_status multiply_each(experts *e, int64_t few)
{
    for (int64_t i = 0; i < e->count; i++) {
        if (e->begins[i + 1] - e->begins[i] <= few)
            continue;
        for (e->at = e->begins[i]; e->at < e->begins[i + 1]; e->at += MAX_ROWS) {
            const ik_status status = multiply_gathered(e, i, ik_min(MAX_ROWS, e->begins[i + 1] - e->at));
            if (status != IK_SUCCESS)
                return status;
        }
    }
    return IK_SUCCESS;
}

/* The workspace that these products take. */
static uint64_t products_workspace(const experts *e)
{
    uint64_t space = 0;
    for (int64_t rows = 1; rows <= ik_min(e->pairs, MAX_ROWS); rows++) {
        product p;
        set_product(&p, e, rows);
        const uint64_t bytes = product_workspace(&p.plan);
        space = bytes > space ? bytes : space;
    }
    return space;
}

/* Find the tensors of a call and the parts of its workspace. */
static void set_data(experts *e, const ik_plan *plan, void *const *data, void *workspace)
{
    e->to = ik_ptr(plan, data, IK_MATMUL_ID_Y);
    e->from = ik_ptr(plan, data, IK_MATMUL_ID_X);
    e->weights = e->prepacked ? data[IK_MATMUL_ID_W] : ik_ptr(plan, data, IK_MATMUL_ID_W);
    e->index = ik_ptr(plan, data, IK_MATMUL_ID_IDS);
    e->begins = workspace;
    e->order = e->begins + e->count + 1;
    e->x_rows = (char *)workspace + sorting_bytes(e);
    e->y_rows = e->x_rows + e->x_bytes;
    e->workspace = e->y_rows + e->y_bytes;
}

/* Clear the rows of pairs whose ids name no expert, from the first on, -1 where there is none, and report it. */
static ik_status clear_unknown(const experts *e, int64_t bad)
{
    static const float zeros[256];
    const int64_t step = e->y->strides[2], size = ik_itemsize(e->y->dtype);
    if (bad < 0)
        return IK_SUCCESS;
    for (int64_t pair = bad; pair < e->pairs; pair++)
        for (int64_t at = 0; at < e->n && !is_known(e, id_at(e, pair)); at += 256)
            ik_store_f32(e->y->dtype, zeros, row_of_y(e, pair) + at * step * size, step, ik_min(256, e->n - at));
    return ik_bad_value(bad, id_at(e, bad));
}

#endif
