/* Every elementwise operator: tiles of the inputs are converted to the compute type, the operator's row computes, and
 * the result is converted back. The rows are generated from core's expressions, one function for each compute type. */
#include "elements.h"
#include "elementwise_rows.h"
#include "isokern_cast.h"

enum { INPUTS = 4, ATTRIBUTES = 8 };

typedef void row(int64_t n, const void *const *in, void *out, const void *attributes);

/* Find the function of an operator for a compute type; null where it has none. */
static row *find_row(uint32_t kind, int32_t compute)
{
#define F32(number, name) \
    case number: return row_##name##_f32;
#define F64(number, name) \
    case number: return row_##name##_f64;
#define I64(number, name) \
    case number: return row_##name##_i64;
#define U64(number, name) \
    case number: return row_##name##_u64;
    switch (compute) {
    case IK_F32:
        switch (kind) {
            IK_ROWS_F32(F32)
        }
        return NULL;
    case IK_F64:
        switch (kind) {
            IK_ROWS_F64(F64)
        }
        return NULL;
    case IK_I64:
        switch (kind) {
            IK_ROWS_I64(I64)
        }
        return NULL;
    default:
        switch (kind) {
            IK_ROWS_U64(U64)
        }
        return NULL;
    }
}

/* The type of the last input decides; the condition of `where` stands before it. */
static int32_t compute_of(const ik_plan *plan) { return ik_compute_of(plan->tensors[plan->tensor_count - 1].dtype); }

IK_SUPPORTED(elementwise)
{
    if (plan->tensor_count > 1 + INPUTS || plan->attr_bytes > 8 * ATTRIBUTES)
        return "more inputs or attributes than this kernel has room for";
    return find_row(plan->kind, compute_of(plan)) != NULL ? NULL : "no row for this operator and dtype";
}

IK_KERNEL(elementwise)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[0], *x = &plan->tensors[1];
    const uint32_t inputs = plan->tensor_count - 1;
    const int32_t compute = compute_of(plan), dtype = plan->tensors[inputs].dtype;
    row *run = find_row(plan->kind, compute);
    tile attributes, result, values[INPUTS];
    const void *in[INPUTS];
    for (uint64_t i = 0; i < plan->attr_bytes / 8; i++) { /* all of them are numbers */
        const double value = ((const double *)plan->attrs)[i];
        switch (compute) {
        case IK_F32: attributes.f32[i] = (float)value; break;
        case IK_F64: attributes.f64[i] = value; break;
        default: { /* as cast converts it to the tensors' type */
            uint64_t bits;
            ik_convert_value(value, dtype, &bits);
            ik_load(compute, dtype, (const char *)&bits, 1, 1, &attributes.i64[i]);
        }
        }
    }
    const int64_t count = count_elements(y, 0, y->ndim);
    for (int64_t at = 0; at < count; at += TILE) {
        const int64_t n = min_of(TILE, count - at);
        for (uint32_t i = 0; i < inputs; i++) {
            load_elements(compute, &x[i], 0, x[i].ndim, first_of(plan, data, 1 + i), at, n, &values[i]);
            in[i] = &values[i];
        }
        run(n, in, &result, &attributes);
        store_elements(compute, y, 0, y->ndim, first_of(plan, data, 0), at, n, &result);
    }
    return IK_SUCCESS;
}
