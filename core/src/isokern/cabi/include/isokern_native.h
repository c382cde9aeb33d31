/* The interface that native plug-ins share: the tables that the build generates, errors, capture, and the names of the
 * functions in a kernel file.
 *
 * isokern_native.c defines the verbs of isokern.h over the tables. The plug-in defines ik_level_missing,
 * ik_dtype_missing and the functions of its device: ik_device_count, ik_device_select, ik_memory_alloc, ik_memory_free,
 * ik_memory_write, ik_memory_read, ik_stream_create, ik_stream_destroy and ik_stream_synchronize. */
#ifndef ISOKERN_NATIVE_H
#define ISOKERN_NATIVE_H
#include <stddef.h>
#include "isokern_abi.h"

/* A kernel file `<stem>` defines IK_KERNEL(stem) and, where they are not trivial, IK_SUPPORTED(stem) and
 * IK_WORKSPACE(stem), each at the start of a line; IK_WORKSPACE_KIND(stem, "l3") where the workspace is not in the
 * device's default memory; IK_MOVES(stem) where it moves elements by their size and computes with none, so that it
 * takes types that ik_dtype_missing refuses; IK_PACKED_LAYOUT(stem) and IK_PACK(stem) where it has packed layouts of
 * its own for constant tensors (ik_op_packed_layout). It is built for one or more levels (IK_LEVEL), and the build
 * writes the table of variants from the files it finds. */
#ifdef __cplusplus
#define IK_C extern "C"
#else
#define IK_C
#endif
#define IK_JOIN_(a, b, c) a##b##__##c
#define IK_JOIN(a, b, c) IK_JOIN_(a, b, c)
#define IK_KERNEL(stem) \
    IK_C ik_status IK_JOIN(stem, , IK_LEVEL)( \
        const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream)
/* For kernels that leave some unused. */
#define IK_UNUSED (void)plan, (void)data, (void)workspace, (void)workspace_bytes, (void)stream
#define IK_SUPPORTED(stem) IK_C const char *IK_JOIN(stem, _supported, IK_LEVEL)(const ik_plan *plan)
#define IK_WORKSPACE(stem) IK_C uint64_t IK_JOIN(stem, _workspace, IK_LEVEL)(const ik_plan *plan)
#define IK_WORKSPACE_KIND(stem, kind) /* the build reads it */
#define IK_MOVES(stem)                /* the build reads it */
#define IK_PACKED_LAYOUT(stem) \
    IK_C const char *IK_JOIN(stem, _packed_layout, IK_LEVEL)(const ik_plan *plan, uint32_t tensor, uint64_t *bytes)
#define IK_PACK(stem) \
    IK_C ik_status IK_JOIN(stem, _pack, IK_LEVEL)( \
        const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream)
#define IK_IS_PREPACKED(plan, tensor) (((plan)->prepacked >> (tensor) & 1) != 0)

#ifdef __cplusplus
extern "C" {
#endif

typedef ik_status ik_kernel(
    const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream);
typedef const char *ik_supported(const ik_plan *plan); /* null: accepted; otherwise the reason */
typedef uint64_t ik_workspace(const ik_plan *plan);    /* bytes */
typedef const char *ik_packed_layout(const ik_plan *plan, uint32_t tensor, uint64_t *bytes); /* null: as given */
typedef ik_status ik_pack(const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream);

/* One declared operator (operators.h, generated). */
typedef struct ik_operator {
    const char *name;
    uint32_t kind;
    const char *stem;
    uint32_t schema_id;
    uint32_t attr_bytes;
    const void *defaults;
    int64_t fingerprint;
    uint32_t outputs;
    uint32_t tensors;  /* outputs and inputs */
    uint64_t optional; /* bit i: tensor i may be absent */
    uint32_t variadic;
    const char *device_error; /* what a kernel's bad value at {at}, {value}, is called; null where none is found */
} ik_operator;

/* One kernel built at one level (variants.c, written by the build from the files it finds). */
typedef struct ik_variant {
    const char *stem;
    const char *level;
    int32_t priority;
    ik_kernel *kernel;
    ik_supported *supported;
    ik_workspace *workspace;
    ik_packed_layout *packed_layout; /* this and `pack`: both or neither */
    ik_pack *pack;
    const char *workspace_kind;
    int32_t moves; /* whether it moves elements of any type */
} ik_variant;

extern const ik_variant ik_variants[];
extern const uint32_t ik_variant_count;
const ik_variant *ik_variant_list(uint32_t *count);
const ik_operator *ik_operator_list(uint32_t *count);

/* The operator of that kind, or null where there is none; an operator's index in the table. */
const ik_operator *ik_find_operator(uint32_t kind);
uint32_t ik_operator_index(const ik_operator *op);

/* The verbs of isokern.h for trusted plans: those that Python has checked and packed, in the normal form that kernels
 * read. Whether `variant` accepts a plan, and the workspace it then needs; on NOT_IMPLEMENTED *reason says why not. The
 * best variant, stored in plan->variant and plan->workspace_bytes. The variant's packed layout for tensor i, and
 * packing a tensor into it. */
ik_status ik_plan_supported(const ik_plan *plan, uint32_t variant, uint64_t *workspace_bytes, const char **reason);
ik_status ik_plan_select(ik_plan *plan);
ik_status ik_plan_packed_layout(ik_plan *plan, uint32_t tensor, uint64_t *bytes, const char **layout);
ik_status ik_plan_pack(const ik_plan *plan, uint32_t tensor, const void *from, void *to, void *stream);

/* The compiler that built the library, and its version. */
const char *ik_compiler(void);

/* Null when this machine can run the level, otherwise what it lacks; null when the kernels compute with elements of
 * this dtype, otherwise why not. The plug-in defines both. */
const char *ik_level_missing(const char *level);
const char *ik_dtype_missing(int32_t dtype);

/* Call such a plan with the data pointers as packed bytes, or with a call record, both cheap to make from Python. */
ik_status ik_call_packed(
    const ik_plan *plan, const char *data, void *workspace, uint64_t workspace_bytes, void *stream);
ik_status ik_run_one(const ik_call *call);

/* Whether a call's workspace is as large as its plan says, and aligned. */
ik_status ik_check_workspace(const ik_plan *plan, const void *workspace, uint64_t workspace_bytes);

/* Record why a call fails, for ik_last_error(); return `status`. */
ik_status ik_fail(ik_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of a packed layout from its parts; valid until the thread names the next. */
const char *ik_layout_name(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Report that a kernel found a value that only it can see (an index out of range); the message is the declaration's. */
ik_status ik_bad_value(int64_t at, int64_t value);

/* Report the same from ik_stream_synchronize, long after the call returned: `kind` is that of the plan that was run. */
ik_status ik_bad_value_of(uint32_t kind, int64_t at, int64_t value);

/* For ik_stream_destroy: drop what threads have captured of the stream. */
void ik_stream_abandon(void *stream);

#ifdef __cplusplus
}
#endif
#endif
