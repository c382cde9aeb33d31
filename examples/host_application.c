/* A host application without Python.
 *
 * It describes operators, asks for their workspaces, calls them, captures and replays calls, and handles errors.
 *
 *     cc -std=c11 host_application.c $(isokern config --cflags --libs --backend cpu) -o host && ./host
 *
 * The same source runs on the emulated XPU: --backend kunlun_sim. Memory is the device's own: inputs are copied to it,
 * and results from it. */
#include <stdio.h>
#include <stdlib.h>

#include "isokern.h"

static int failures;

static void check(int right, const char *what)
{
    printf("%s: %s\n", right ? "right" : "WRONG", what);
    failures += !right;
}

/* Exit where a verb fails that is expected to succeed. */
static void must(ik_status status, const char *what)
{
    if (status != IK_SUCCESS) {
        printf("WRONG: %s: status %d: %s\n", what, (int)status, ik_last_error());
        exit(1);
    }
}

static void *stream;

static void *alloc(uint64_t bytes, const char *kind)
{
    void *memory;
    must(ik_memory_alloc(bytes, kind, &memory), "memory");
    return memory;
}

static void *upload(const float *from, int n)
{
    void *memory = alloc(sizeof(float) * n, "default");
    must(ik_memory_write(memory, from, sizeof(float) * n, stream), "a write");
    return memory;
}

static int holds(const void *memory, const float *expected, int n)
{
    float got[16];
    must(ik_memory_read(got, memory, sizeof(float) * n, stream), "a read");
    for (int i = 0; i < n; i++) {
        float off = got[i] - expected[i], allowed = 1e-6f * (1 + expected[i]);
        if (!(off <= allowed && -off <= allowed)) /* false for NaN, too */
            return 0;
    }
    return 1;
}

/* Allocate the workspace of a plan, of the size and kind that it asks for. */
static void *workspace_of(const ik_plan *plan, uint64_t *bytes)
{
    const char *kind;
    must(ik_op_workspace(plan, bytes, &kind), "a workspace");
    return *bytes == 0 ? NULL : alloc(*bytes, kind);
}

int main(void)
{
    must(ik_device_select(0), "device 0");
    stream = ik_stream_create();
    if (stream == NULL) {
        printf("WRONG: no stream: %s\n", ik_last_error());
        return 1;
    }
    const float numbers[6] = { 0, 1, 2, 5, 5, 5 }, row[3] = { 10, 20, 30 };
    const float soft[6] = { 0.09003057f, 0.24472847f, 0.66524096f, 1.0f / 3, 1.0f / 3, 1.0f / 3 };
    const float sum[6] = { 10, 21, 32, 15, 25, 35 };
    void *x = upload(numbers, 6), *b = upload(row, 3), *y = alloc(6 * sizeof(float), "default");

    /* softmax of a matrix; the operator infers y from x */
    const ik_tensor matrix = { .dtype = IK_F32, .ndim = 2, .shape = { 2, 3 }, .strides = { 3, 1 } };
    ik_tensor softmax_tensors[] = { [IK_SOFTMAX_Y] = { .dtype = IK_NONE }, [IK_SOFTMAX_X] = matrix };
    const ik_softmax_attrs axis = { .axis = -1 };
    const ik_attributes along = { IK_SCHEMA_SOFTMAX, sizeof axis, &axis };
    must(ik_op_infer(IK_OP_SOFTMAX, softmax_tensors, 2, &along), "the output of softmax");
    check(softmax_tensors[IK_SOFTMAX_Y].ndim == 2 && softmax_tensors[IK_SOFTMAX_Y].shape[1] == 3,
        "softmax of [2, 3] is [2, 3]");
    ik_plan *softmax;
    must(ik_op_create(IK_OP_SOFTMAX, softmax_tensors, 2, &along, &softmax), "softmax");
    uint64_t softmax_bytes;
    void *softmax_space = workspace_of(softmax, &softmax_bytes);
    void *softmax_data[] = { [IK_SOFTMAX_Y] = y, [IK_SOFTMAX_X] = x };
    must(ik_op_call(softmax, softmax_data, softmax_space, softmax_bytes, stream), "a call of softmax");
    check(holds(y, soft, 6), "softmax of [2, 3]");

    /* the same along the other axis of the transposed matrix, which needs only other strides; and with default
     * attributes */
    const ik_tensor turned = { .dtype = IK_F32, .ndim = 2, .shape = { 3, 2 }, .strides = { 1, 3 } };
    const ik_tensor turned_tensors[] = { [IK_SOFTMAX_Y] = turned, [IK_SOFTMAX_X] = turned };
    const ik_softmax_attrs first = { .axis = 0 };
    const ik_attributes along_first = { IK_SCHEMA_SOFTMAX, sizeof first, &first };
    ik_plan *columns, *defaults;
    must(ik_op_create(IK_OP_SOFTMAX, turned_tensors, 2, &along_first, &columns), "softmax of columns");
    uint64_t columns_bytes;
    void *columns_space = workspace_of(columns, &columns_bytes);
    must(ik_op_call(columns, softmax_data, columns_space, columns_bytes, stream), "a call of softmax of columns");
    check(holds(y, soft, 6), "softmax of [3, 2] along axis 0");
    must(ik_op_create(IK_OP_SOFTMAX, softmax_tensors, 2, NULL, &defaults), "softmax with default attributes");
    ik_op_destroy(defaults);

    /* add of a matrix and a row, which broadcasts as in Python */
    const ik_tensor vector = { .dtype = IK_F32, .ndim = 1, .shape = { 3 }, .strides = { 1 } };
    const ik_tensor add_tensors[] = { [IK_ADD_Y] = matrix, [IK_ADD_A] = matrix, [IK_ADD_B] = vector };
    ik_plan *add;
    must(ik_op_create(IK_OP_ADD, add_tensors, 3, NULL, &add), "add");
    uint64_t add_bytes;
    void *add_space = workspace_of(add, &add_bytes);
    void *add_data[] = { [IK_ADD_Y] = y, [IK_ADD_A] = x, [IK_ADD_B] = b };
    must(ik_op_call(add, add_data, add_space, add_bytes, stream), "a call of add");
    check(holds(y, sum, 6), "add of [2, 3] and a row");

    /* capture two calls, y = softmax(x) and y = y + row, and replay them with other content in x */
    void *in_place[] = { [IK_ADD_Y] = y, [IK_ADD_A] = y, [IK_ADD_B] = b };
    must(ik_stream_begin_capture(stream), "a capture");
    check(ik_op_call(softmax, softmax_data, softmax_space, softmax_bytes, stream) == IK_CAPTURED,
        "a captured call does not run");
    check(ik_op_call(add, in_place, add_space, add_bytes, stream) == IK_CAPTURED, "nor does the next");
    uint64_t calls = 0;
    const ik_call *list = ik_stream_end_capture(stream, &calls);
    check(list != NULL && calls == 2, "a list of two calls");
    const float same[6] = { 7, 7, 7, 7, 7, 7 },
                third[6] = { 10 + 1.0f / 3, 20 + 1.0f / 3, 30 + 1.0f / 3, 10 + 1.0f / 3, 20 + 1.0f / 3, 30 + 1.0f / 3 };
    must(ik_memory_write(x, same, sizeof same, stream), "a write");
    int64_t failed = -1;
    must(ik_calls_replay(list, calls, NULL, &failed), "a replay");
    must(ik_stream_synchronize(stream), "the replay's end");
    check(holds(y, third, 6), "a replay of two calls");

    /* var of each row: this library may have no kernel for it, and then runs those of the operators it consists of */
    const ik_var_attrs along_rows = { .axes = { .count = 1, .v = { 1 } }, .correction = 0 };
    const ik_attributes var_attributes = { IK_SCHEMA_VAR, sizeof along_rows, &along_rows };
    ik_tensor var_tensors[] = { [IK_VAR_Y] = { .dtype = IK_NONE }, [IK_VAR_X] = matrix };
    must(ik_op_infer(IK_OP_VAR, var_tensors, 2, &var_attributes), "the output of var");
    ik_plan *var;
    must(ik_op_create(IK_OP_VAR, var_tensors, 2, &var_attributes, &var), "var");
    uint64_t var_bytes;
    void *var_space = workspace_of(var, &var_bytes);
    const float spread[2] = { 2.0f / 3, 0 };
    void *var_data[] = { [IK_VAR_Y] = y, [IK_VAR_X] = x };
    must(ik_memory_write(x, numbers, sizeof numbers, stream), "a write");
    must(ik_op_call(var, var_data, var_space, var_bytes, stream), "a call of var");
    check(holds(y, spread, 2), "var of rows");

    /* invalid calls are refused, each with its status and message */
    ik_plan *none;
    const ik_attributes small = { IK_SCHEMA_SOFTMAX, 4, &axis }, nowhere = { IK_SCHEMA_SOFTMAX, sizeof axis, NULL },
                        other = { IK_SCHEMA_GEMM, sizeof axis, &axis };
    check(ik_op_create(IK_OP_SOFTMAX, softmax_tensors, 2, &small, &none) == IK_BAD_ATTR_SIZE && none == NULL,
        "attributes of 4 bytes are refused");
    printf("    %s\n", ik_last_error());
    check(ik_op_create(IK_OP_SOFTMAX, softmax_tensors, 2, &nowhere, &none) == IK_BAD_ATTR_SIZE,
        "attributes that are nowhere are refused");
    check(ik_op_create(IK_OP_SOFTMAX, softmax_tensors, 2, &other, &none) == IK_BAD_ATTR_SCHEMA,
        "another operator's attributes are refused");
    const ik_softmax_attrs beyond = { .axis = 2 };
    const ik_attributes out_of_range = { IK_SCHEMA_SOFTMAX, sizeof beyond, &beyond };
    check(ik_op_create(IK_OP_SOFTMAX, softmax_tensors, 2, &out_of_range, &none) == IK_INVALID_ARGUMENT,
        "an axis that is out of range is refused");
    printf("    %s\n", ik_last_error());
    ik_tensor mixed[] = { matrix, matrix, vector };
    mixed[IK_ADD_B].dtype = IK_F16;
    check(ik_op_create(IK_OP_ADD, mixed, 3, NULL, &none) == IK_BAD_TENSOR_DTYPE, "add of F32 and F16 is refused");
    printf("    %s\n", ik_last_error());
    check(ik_op_create(IK_OP_ADD, add_tensors, 2, NULL, &none) == IK_INVALID_ARGUMENT, "add of one tensor is refused");
    printf("    %s\n", ik_last_error());
    check(ik_op_call(add, add_data, NULL, 0, NULL) == IK_INVALID_ARGUMENT, "a null stream is refused");
    printf("    %s\n", ik_last_error());
    void *missing[] = { [IK_ADD_Y] = y, [IK_ADD_A] = x, [IK_ADD_B] = NULL };
    check(ik_op_call(add, missing, add_space, add_bytes, stream) == IK_INVALID_ARGUMENT, "null data is refused");
    printf("    %s\n", ik_last_error());
    const ik_plan copied = *add;
    check(ik_op_call(&copied, add_data, add_space, add_bytes, stream) == IK_INVALID_ARGUMENT,
        "a copy of a plan is refused");
    const ik_call unplanned[] = { { add, add_data, add_space, add_bytes, stream },
        { NULL, add_data, NULL, 0, stream } };
    check(ik_op_run(unplanned, 2, &failed) == IK_INVALID_ARGUMENT && failed == 1, "a list with a null plan is refused");
    printf("    %s\n", ik_last_error());

    /* the first call of the list above was made: plans and memory stay until it is done */
    must(ik_stream_synchronize(stream), "the end of all calls");
    ik_calls_free(list, calls);
    ik_plan *const plans[] = { softmax, columns, add, var };
    for (int i = 0; i < 4; i++)
        ik_op_destroy(plans[i]);
    void *const memory[] = { x, b, y, softmax_space, columns_space, add_space, var_space };
    for (int i = 0; i < 7; i++)
        ik_memory_free(memory[i]);
    ik_stream_destroy(stream);
    return failures != 0;
}
