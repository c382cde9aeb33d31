/* The verbs of a native plug-in: dispatch of a plan to its kernel, recorded lists of calls, and each thread's last
 * error. */
#include "isokern_native.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isokern_dtypes.h"
#include "isokern_environment.h"
#include "operators.h"

static _Thread_local char last_error[2048];

const char *ik_last_error(void) { return last_error; }

ik_status ik_fail(ik_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

const char *ik_layout_name(const char *format, ...)
{
    static _Thread_local char name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return name;
}

/* A value that a kernel found: until its operator is known, it has no text. */
static _Thread_local struct {
    bool waits;
    int64_t at, value;
} bad;

ik_status ik_bad_value(int64_t at, int64_t value)
{
    bad.waits = true;
    bad.at = at;
    bad.value = value;
    return ik_fail(IK_INVALID_ARGUMENT, "value %lld at %lld", (long long)value, (long long)at);
}

ik_status ik_bad_value_of(uint32_t kind, int64_t at, int64_t value)
{
    const ik_operator *op = ik_find_operator(kind);
    bad.waits = false;
    if (op == NULL || op->device_error == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "%s: value %lld at %lld", op == NULL ? "kernel" : op->name,
            (long long)value, (long long)at);
    char text[256];
    size_t length = 0;
    for (const char *c = op->device_error; *c != '\0' && length + 24 < sizeof text; c++) {
        const bool is_at = strncmp(c, "{at}", 4) == 0, is_value = strncmp(c, "{value}", 7) == 0;
        if (is_at || is_value) {
            length += (size_t)snprintf(text + length, sizeof text - length, "%lld", (long long)(is_at ? at : value));
            c += is_at ? 3 : 6;
        } else {
            text[length++] = *c;
        }
    }
    text[length] = '\0';
    return ik_fail(IK_INVALID_ARGUMENT, "%s: %s", op->name, text);
}

const char *ik_compiler(void)
{
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

const ik_variant *ik_variant_list(uint32_t *count)
{
    *count = ik_variant_count;
    return ik_variants;
}

const ik_operator *ik_operator_list(uint32_t *count)
{
    *count = sizeof ik_operators / sizeof *ik_operators;
    return ik_operators;
}

/* The table is sorted by kind. */
const ik_operator *ik_find_operator(uint32_t kind)
{
    uint32_t low = 0, high = sizeof ik_operators / sizeof *ik_operators;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ik_operators[middle].kind < kind)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof ik_operators / sizeof *ik_operators && ik_operators[low].kind == kind ? &ik_operators[low]
                                                                                              : NULL;
}

uint32_t ik_operator_index(const ik_operator *op) { return (uint32_t)(op - ik_operators); }

static ik_status check_tensor(const ik_operator *op, uint32_t i, const ik_tensor *t)
{
    if (t->ndim < 0 || t->ndim > IK_MAX_RANK)
        return ik_fail(IK_BAD_TENSOR_SHAPE, "%s: tensor %u has rank %d", op->name, i, t->ndim);
    for (int32_t d = 0; d < t->ndim; d++)
        if (t->shape[d] < 0)
            return ik_fail(IK_BAD_TENSOR_SHAPE, "%s: tensor %u has dim %lld", op->name, i, (long long)t->shape[d]);
    bool optional = i < 64 && (op->optional >> i & 1) != 0;
    if (ik_alignment_of(t->dtype) == 0 && !(optional && t->dtype == IK_NONE))
        return ik_fail(IK_BAD_TENSOR_DTYPE, "%s: tensor %u has dtype %d", op->name, i, t->dtype);
    return IK_SUCCESS;
}

/* Check everything about a plan that can be checked without its data. */
static ik_status check_plan(const ik_plan *plan, const ik_operator **found)
{
    if (plan == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "the plan is null");
    if (plan->abi_version != IK_ABI_VERSION)
        return ik_fail(
            IK_INVALID_ARGUMENT, "the plan has ABI version %u, this library %u", plan->abi_version, IK_ABI_VERSION);
    const ik_operator *op = ik_find_operator(plan->kind);
    if (op == NULL)
        return ik_fail(IK_NOT_IMPLEMENTED, "no operator has kind %#x", plan->kind);
    if (plan->tensors == NULL || plan->tensor_count < op->tensors
        || plan->tensor_count > op->tensors + (op->variadic ? 1u << 20 : 0))
        return ik_fail(IK_INVALID_ARGUMENT, "%s: %u tensors; allowed: %u%s, absent ones with dtype 0", op->name,
            plan->tensors == NULL ? 0 : plan->tensor_count, op->tensors, op->variadic ? " or more" : "");
    for (uint32_t i = 0; i < plan->tensor_count; i++) {
        ik_status status = check_tensor(op, i, &plan->tensors[i]);
        if (status != IK_SUCCESS)
            return status;
    }
    if (plan->schema_id != op->schema_id && !(plan->schema_id == 0 && plan->attr_bytes == 0 && op->defaults != NULL))
        return ik_fail(IK_BAD_ATTR_SCHEMA, "%s: attribute schema %#llx; allowed: %#x", op->name,
            (unsigned long long)plan->schema_id, op->schema_id);
    if (plan->schema_id == op->schema_id && plan->attr_bytes != op->attr_bytes)
        return ik_fail(IK_BAD_ATTR_SIZE, "%s: %llu bytes of attributes; allowed: %u", op->name,
            (unsigned long long)plan->attr_bytes, op->attr_bytes);
    if ((plan->attrs == NULL) != (plan->attr_bytes == 0))
        return ik_fail(IK_BAD_ATTR_SIZE, "%s: %llu bytes of attributes at %p", op->name,
            (unsigned long long)plan->attr_bytes, plan->attrs);
    *found = op;
    return IK_SUCCESS;
}

/* Attribute schema 0 without bytes asks for the defaults: returns a copy of the plan that names them. */
static const ik_plan *with_defaults(const ik_plan *plan, const ik_operator *op, ik_plan *copy)
{
    if (op->attr_bytes == 0 || plan->attr_bytes != 0)
        return plan;
    *copy = *plan;
    copy->schema_id = op->schema_id;
    copy->attr_bytes = op->attr_bytes;
    copy->attrs = op->defaults;
    return copy;
}

static const char *packed_layout_of(const ik_variant *v, const ik_plan *plan, uint32_t tensor, uint64_t *bytes)
{
    *bytes = 0;
    return v->packed_layout != NULL && tensor < 64 ? v->packed_layout(plan, tensor, bytes) : NULL;
}

/* Why the kernels do not take an element type of the plan, or null; valid until the thread's next call. */
static const char *find_missing_dtype(const ik_plan *plan)
{
    static _Thread_local char text[256];
    for (uint32_t i = 0; i < plan->tensor_count; i++) {
        const int32_t dtype = plan->tensors[i].dtype;
        const char *reason = dtype == IK_NONE ? NULL : ik_dtype_missing(dtype);
        if (reason != NULL) {
            snprintf(text, sizeof text, "%s: %s", ik_name_of(dtype), reason);
            return text;
        }
    }
    return NULL;
}

ik_status ik_plan_supported(const ik_plan *given, uint32_t variant, uint64_t *workspace_bytes, const char **reason)
{
    const ik_operator *op;
    ik_plan copy;
    *workspace_bytes = 0;
    *reason = NULL;
    ik_status status = check_plan(given, &op);
    if (status != IK_SUCCESS)
        return status;
    if (variant >= ik_variant_count || strcmp(ik_variants[variant].stem, op->stem) != 0)
        return ik_fail(IK_INVALID_ARGUMENT, "%s: variant %u is not one of its own", op->name, variant);
    const ik_variant *v = &ik_variants[variant];
    const ik_plan *plan = with_defaults(given, op, &copy);
    *reason = ik_level_missing(v->level);
    if (*reason == NULL && !v->moves)
        *reason = find_missing_dtype(plan);
    if (*reason == NULL && v->supported != NULL)
        *reason = v->supported(plan);
    for (uint32_t i = 0; i < 64 && *reason == NULL; i++) {
        uint64_t bytes;
        if (IK_IS_PREPACKED(plan, i) && (i >= plan->tensor_count || packed_layout_of(v, plan, i, &bytes) == NULL))
            *reason = "a tensor is prepacked, and the variant has no layout of its own for it";
    }
    if (*reason != NULL)
        return ik_fail(IK_NOT_IMPLEMENTED, "%s: %s", op->name, *reason);
    *workspace_bytes = v->workspace != NULL ? v->workspace(plan) : 0;
    return IK_SUCCESS;
}

ik_status ik_plan_select(ik_plan *plan)
{
    const ik_operator *op;
    ik_status status = check_plan(plan, &op);
    if (status != IK_SUCCESS)
        return status;
    int32_t best = -1;
    uint32_t own = 0;
    for (uint32_t i = 0; i < ik_variant_count; i++) {
        uint64_t bytes;
        const char *reason;
        if (strcmp(ik_variants[i].stem, op->stem) != 0)
            continue;
        own++;
        if (best >= 0 && ik_variants[i].priority <= ik_variants[best].priority)
            continue;
        if (ik_plan_supported(plan, i, &bytes, &reason) == IK_SUCCESS) {
            best = (int32_t)i;
            plan->workspace_bytes = bytes;
        }
    }
    if (own == 0)
        return ik_fail(IK_NOT_IMPLEMENTED,
            "%s: this library has no kernel for it; allowed: operators that have one, which compute it together",
            op->name);
    if (best < 0)
        return IK_NOT_IMPLEMENTED; /* ik_last_error() has the last candidate's reason */
    plan->variant = (uint32_t)best;
    return IK_SUCCESS;
}

ik_status ik_plan_packed_layout(ik_plan *plan, uint32_t tensor, uint64_t *bytes, const char **layout)
{
    const ik_operator *op;
    ik_plan copy;
    ik_status status = check_plan(plan, &op);
    if (status != IK_SUCCESS)
        return status;
    if (bytes == NULL || layout == NULL || tensor >= plan->tensor_count || plan->variant >= ik_variant_count
        || strcmp(ik_variants[plan->variant].stem, op->stem) != 0)
        return ik_fail(IK_INVALID_ARGUMENT,
            "%s: tensor %u of %u, variant %u; allowed: a tensor of the plan, a variant that was chosen", op->name,
            tensor, plan->tensor_count, plan->variant);
    const char *reason;
    *layout = packed_layout_of(&ik_variants[plan->variant], with_defaults(plan, op, &copy), tensor, bytes);
    if (*layout == NULL)
        return IK_SUCCESS;
    plan->prepacked |= UINT64_C(1) << tensor;
    return ik_plan_supported(plan, plan->variant, &plan->workspace_bytes, &reason);
}

ik_status ik_plan_pack(const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream)
{
    const ik_operator *op;
    ik_plan copy;
    ik_status status = check_plan(plan, &op);
    if (status != IK_SUCCESS)
        return status;
    if (tensor >= 64 || !IK_IS_PREPACKED(plan, tensor) || plan->variant >= ik_variant_count
        || ik_variants[plan->variant].pack == NULL)
        return ik_fail(
            IK_INVALID_ARGUMENT, "%s: tensor %u is not one that ik_op_packed_layout gave a layout", op->name, tensor);
    const ik_environment callers = ik_enter_environment();
    status = ik_variants[plan->variant].pack(with_defaults(plan, op, &copy), tensor, from, to, stream);
    ik_leave_environment(callers);
    return status;
}

const char *ik_workspace_kind(uint32_t variant)
{ return variant < ik_variant_count ? ik_variants[variant].workspace_kind : NULL; }

/* The list that this thread records from its calls on a stream. All threads' lists are in `every`, too, for the thread
 * that ends the stream: another stream may be created at its address. */
typedef struct list {
    struct list *next, *next_of_all;
    atomic_bool abandoned; /* the stream has ended */
    const void *stream;
    ik_call *calls;
    uint64_t count, capacity;
} list;

static _Thread_local list *lists;
static list *every;
static pthread_mutex_t every_lock = PTHREAD_MUTEX_INITIALIZER;

/* The link to the list of a stream; it points to null where the stream has none. */
static list **list_of(const void *stream)
{
    list **l = &lists;
    while (*l != NULL && ((*l)->stream != stream || atomic_load_explicit(&(*l)->abandoned, memory_order_acquire)))
        l = &(*l)->next;
    return l;
}

/* Take a list out of its thread's, of which it is a member, and of all; return its calls. */
static ik_call *remove_list(list **at)
{
    list *l = *at;
    ik_call *calls = l->calls;
    *at = l->next;
    pthread_mutex_lock(&every_lock);
    list **other = &every;
    while (*other != l)
        other = &(*other)->next_of_all;
    *other = l->next_of_all;
    pthread_mutex_unlock(&every_lock);
    free(l);
    return calls;
}

/* Free this thread's lists of streams that have ended. */
static void sweep(void)
{
    for (list **l = &lists; *l != NULL;) {
        if (!atomic_load_explicit(&(*l)->abandoned, memory_order_acquire)) {
            l = &(*l)->next;
            continue;
        }
        const uint64_t count = (*l)->count;
        ik_calls_free(remove_list(l), count);
    }
}

static ik_status capture(
    list *l, const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream)
{
    if (l->count == l->capacity) {
        ik_call *grown = realloc(l->calls, 2 * l->capacity * sizeof *grown);
        if (grown == NULL)
            return ik_fail(
                IK_OUT_OF_MEMORY, "no memory for a recorded list of %llu calls", (unsigned long long)(2 * l->capacity));
        l->calls = grown;
        l->capacity *= 2;
    }
    void **copy = malloc(plan->tensor_count * sizeof *copy);
    if (copy == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for a recorded call");
    memcpy(copy, data, plan->tensor_count * sizeof *copy);
    l->calls[l->count++] = (ik_call){ plan, copy, workspace, workspace_bytes, stream };
    return IK_CAPTURED;
}

ik_status ik_stream_begin_capture(void *stream)
{
    if (stream == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "the stream is null");
    if (*list_of(stream) != NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "this thread captures the stream already");
    sweep();
    list *l = malloc(sizeof *l);
    ik_call *calls = malloc(16 * sizeof *calls);
    if (l == NULL || calls == NULL) {
        free(l);
        free(calls);
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for a recorded list");
    }
    *l = (list){ .next = lists, .stream = stream, .calls = calls, .capacity = 16 };
    lists = l;
    pthread_mutex_lock(&every_lock);
    l->next_of_all = every;
    every = l;
    pthread_mutex_unlock(&every_lock);
    return IK_SUCCESS;
}

const ik_call *ik_stream_end_capture(void *stream, uint64_t *count)
{
    if (count != NULL)
        *count = 0;
    if (stream == NULL || count == NULL) {
        ik_fail(IK_INVALID_ARGUMENT, "%s is null", stream == NULL ? "the stream" : "the count");
        return NULL;
    }
    list **at = list_of(stream), *l = *at;
    if (l == NULL) {
        ik_fail(IK_INVALID_ARGUMENT, "this thread does not capture the stream");
        return NULL;
    }
    *count = l->count;
    return remove_list(at);
}

void ik_stream_abandon(void *stream)
{
    pthread_mutex_lock(&every_lock);
    for (list *l = every; l != NULL; l = l->next_of_all)
        if (l->stream == stream)
            atomic_store_explicit(&l->abandoned, true, memory_order_release);
    pthread_mutex_unlock(&every_lock);
    sweep();
}

void ik_calls_free(const ik_call *calls, uint64_t count)
{
    for (uint64_t i = 0; calls != NULL && i < count; i++)
        free((void *)(uintptr_t)calls[i].data);
    free((void *)(uintptr_t)calls);
}

ik_status ik_check_workspace(const ik_plan *plan, const void *workspace, uint64_t workspace_bytes)
{
    if (workspace_bytes < plan->workspace_bytes || (plan->workspace_bytes != 0 && workspace == NULL))
        return ik_fail(IK_INSUFFICIENT_WORKSPACE, "workspace of %llu bytes; allowed: at least %llu",
            (unsigned long long)workspace_bytes, (unsigned long long)plan->workspace_bytes);
    if (plan->workspace_bytes != 0 && (uintptr_t)workspace % IK_ALIGNMENT != 0)
        return ik_fail(
            IK_INSUFFICIENT_WORKSPACE, "workspace at %p; allowed: an address divisible by %d", workspace, IK_ALIGNMENT);
    return IK_SUCCESS;
}

/* Run a plan that select or supported accepted; checks only what can change between calls. */
static ik_status run(const ik_plan *given, void *const *data, void *workspace, uint64_t workspace_bytes, void *s)
{
    ik_plan copy;
    const ik_plan *plan = given;
    const ik_variant *v = &ik_variants[given->variant];
    ik_status checked = ik_check_workspace(plan, workspace, workspace_bytes);
    if (checked != IK_SUCCESS)
        return checked;
    if (plan->attrs == NULL) {
        const ik_operator *op = ik_find_operator(plan->kind);
        if (op == NULL)
            return ik_fail(IK_NOT_IMPLEMENTED, "no operator has kind %#x", plan->kind);
        plan = with_defaults(plan, op, &copy);
    }
    const ik_environment callers = ik_enter_environment();
    bad.waits = false;
    const ik_status status = v->kernel(plan, data, workspace, workspace_bytes, s);
    ik_leave_environment(callers);
    return status != IK_SUCCESS && bad.waits ? ik_bad_value_of(plan->kind, bad.at, bad.value) : status;
}

/* Check what a host may have filled in wrongly and what would crash the process. */
static ik_status check_call(const ik_plan *plan, void *const *data, void *s)
{
    if (plan == NULL || data == NULL || s == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "%s is null",
            plan == NULL       ? "the plan"
                : data == NULL ? "the data"
                               : "the stream");
    if (plan->variant >= ik_variant_count)
        return ik_fail(IK_INVALID_ARGUMENT, "variant %u of %u", plan->variant, ik_variant_count);
    return IK_SUCCESS;
}

static ik_status call(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *s)
{
    ik_status status = check_call(plan, data, s);
    if (status != IK_SUCCESS)
        return status;
    list *l = *list_of(s);
    return l != NULL ? capture(l, plan, data, workspace, workspace_bytes, s)
                     : run(plan, data, workspace, workspace_bytes, s);
}

ik_status ik_call_packed(const ik_plan *plan, const char *data, void *workspace, uint64_t workspace_bytes, void *s)
{ return call(plan, (void *const *)(const void *)data, workspace, workspace_bytes, s); }

ik_status ik_run_one(const ik_call *c) { return call(c->plan, c->data, c->workspace, c->workspace_bytes, c->stream); }

ik_status ik_calls_replay(const ik_call *calls, uint64_t n, void *given, int64_t *failed)
{
    ik_status recorded = IK_SUCCESS;
    for (uint64_t i = 0; i < n; i++) {
        ik_status status = call(calls[i].plan, calls[i].data, calls[i].workspace, calls[i].workspace_bytes,
            given != NULL ? given : calls[i].stream);
        if (status == IK_CAPTURED) {
            recorded = IK_CAPTURED;
        } else if (status != IK_SUCCESS) {
            if (failed != NULL)
                *failed = (int64_t)i;
            return status;
        }
    }
    return recorded;
}
