/* A host application without Python: it fills plans by hand, lets the CPU backend choose a kernel, calls it, and meets its errors.
 *
 *     cc -std=c11 -I "$(python -c 'import isokern; print(isokern.get_include())')" host_application.c \
 *         "$(python -c 'import isokern_cpu; print(isokern_cpu.get_library())')" \
 *         -Wl,-rpath,"$(python -c 'import isokern_cpu, pathlib; print(pathlib.Path(isokern_cpu.get_library()).parent)')"
 *
 * A plan's tensors are in the kernels' normal form, outputs first (the declaration of each operator says which): for softmax, rows
 * along the last dim; for elementwise operators, all tensors in the output's shape, a stride of 0 where an input repeats. */
#include <stdio.h>
#include <stdlib.h>

#include "isokern.h"

static int failures;

static void check(int right, const char *what)
{
    printf("%s: %s\n", right ? "right" : "WRONG", what);
    failures += !right;
}

static int near(const float *got, const float *expected, int n)
{
    for (int i = 0; i < n; i++) {
        float off = got[i] - expected[i], allowed = 1e-6f * (1 + expected[i]);
        if (!(off <= allowed && -off <= allowed)) /* a NaN is not near */
            return 0;
    }
    return 1;
}

/* Choose a kernel for the plan, give it the workspace it asks for, run it, and wait for it. */
static ik_status run(ik_plan *plan, void *const *data, void *stream)
{
    ik_status status = ik_op_select(plan);
    if (status != IK_SUCCESS)
        return status;
    size_t bytes = (plan->workspace_bytes + IK_ALIGNMENT - 1) / IK_ALIGNMENT * IK_ALIGNMENT;
    void *workspace = bytes ? aligned_alloc(IK_ALIGNMENT, bytes) : NULL;
    status = ik_op_call(plan, data, workspace, plan->workspace_bytes, stream);
    if (status == IK_SUCCESS)
        status = ik_stream_synchronize(stream);
    free(workspace);
    return status;
}

int main(void)
{
    void *stream = ik_stream_create();
    const float x[2][3] = { { 0, 1, 2 }, { 5, 5, 5 } };
    const float soft[6] = { 0.09003057f, 0.24472847f, 0.66524096f, 1.0f / 3, 1.0f / 3, 1.0f / 3 };
    float y[2][3];

    /* softmax of a matrix, its attribute given */
    const ik_tensor rows = { .dtype = IK_F32, .ndim = 2, .shape = { 2, 3 }, .strides = { 3, 1 } };
    const ik_tensor softmax_tensors[] = { [IK_SOFTMAX_Y] = rows, [IK_SOFTMAX_X] = rows };
    const ik_softmax_attrs axis = { .axis = -1 };
    ik_plan softmax = {
        .abi_version = IK_ABI_VERSION,
        .kind = IK_OP_SOFTMAX,
        .tensor_count = 2,
        .tensors = softmax_tensors,
        .schema_id = IK_SCHEMA_SOFTMAX,
        .attr_bytes = sizeof axis,
        .attrs = &axis,
    };
    void *softmax_data[] = { [IK_SOFTMAX_Y] = y, [IK_SOFTMAX_X] = (void *)x };
    check(run(&softmax, softmax_data, stream) == IK_SUCCESS && near(y[0], soft, 6), "softmax of [2, 3]");

    /* the same by default attributes: schema 0 and no bytes */
    ik_plan defaults = softmax;
    defaults.schema_id = 0;
    defaults.attr_bytes = 0;
    defaults.attrs = NULL;
    y[0][0] = y[1][2] = -1;
    check(run(&defaults, softmax_data, stream) == IK_SUCCESS && near(y[0], soft, 6), "softmax with default attributes");

    /* add of a matrix and a row that repeats: add has no attributes, so its schema is 0 */
    const float row[3] = { 10, 20, 30 }, sum[6] = { 10, 21, 32, 15, 25, 35 };
    const ik_tensor repeated = { .dtype = IK_F32, .ndim = 2, .shape = { 2, 3 }, .strides = { 0, 1 } };
    const ik_tensor add_tensors[] = { [IK_ADD_Y] = rows, [IK_ADD_A] = rows, [IK_ADD_B] = repeated };
    ik_plan add = { .abi_version = IK_ABI_VERSION, .kind = IK_OP_ADD, .tensor_count = 3, .tensors = add_tensors };
    void *add_data[] = { [IK_ADD_Y] = y, [IK_ADD_A] = (void *)x, [IK_ADD_B] = (void *)row };
    check(run(&add, add_data, stream) == IK_SUCCESS && near(y[0], sum, 6), "add of [2, 3] and a row");

    /* a list in one call: y = softmax(x), then y = y + row */
    void *in_place[] = { [IK_ADD_Y] = y, [IK_ADD_A] = y, [IK_ADD_B] = (void *)row };
    void *workspace = aligned_alloc(IK_ALIGNMENT, softmax.workspace_bytes + IK_ALIGNMENT - softmax.workspace_bytes % IK_ALIGNMENT);
    const ik_call list[] = { { &softmax, softmax_data, workspace, softmax.workspace_bytes, stream }, { &add, in_place, NULL, 0, stream } };
    int64_t failed = -1;
    float both[6];
    for (int i = 0; i < 6; i++)
        both[i] = soft[i] + row[i % 3];
    check(ik_op_run(list, 2, &failed) == IK_SUCCESS && near(y[0], both, 6), "a list of two calls");
    free(workspace);

    /* what is refused, and what it complains of */
    ik_plan wrong = softmax;
    wrong.attr_bytes = 4;
    check(ik_op_select(&wrong) == IK_BAD_ATTR_SIZE, "attributes of 4 bytes are refused");
    printf("    %s\n", ik_last_error());
    wrong = softmax;
    wrong.attrs = NULL;
    check(ik_op_select(&wrong) == IK_BAD_ATTR_SIZE, "attributes that are nowhere are refused");
    const ik_tensor absent[] = { [IK_SOFTMAX_Y] = rows, [IK_SOFTMAX_X] = { .dtype = IK_NONE } };
    wrong = softmax;
    wrong.tensors = absent;
    check(ik_op_select(&wrong) == IK_BAD_TENSOR_DTYPE, "an input that is absent and not optional is refused");
    wrong = softmax;
    wrong.schema_id = IK_SCHEMA_GEMM;
    check(ik_op_select(&wrong) == IK_BAD_ATTR_SCHEMA, "another operator's attributes are refused");
    printf("    %s\n", ik_last_error());
    check(ik_op_call(&add, add_data, NULL, 0, NULL) == IK_INVALID_ARGUMENT, "a null stream is refused");
    printf("    %s\n", ik_last_error());

    const ik_call unplanned[] = { { &add, add_data, NULL, 0, stream }, { NULL, add_data, NULL, 0, stream } };
    check(ik_op_run(unplanned, 2, &failed) == IK_INVALID_ARGUMENT && failed == 1, "a list with a null plan is refused");
    printf("    %s\n", ik_last_error());
    wrong = add;
    wrong.tensor_count = 2;
    check(ik_op_select(&wrong) == IK_INVALID_ARGUMENT, "add of two tensors is refused");
    printf("    %s\n", ik_last_error());

    ik_stream_destroy(stream);
    return failures != 0;
}
