/* What the runtime gives to kernels (the thread pool, errors) and the tables the build makes. */
#ifndef IK_RUNTIME_H
#define IK_RUNTIME_H
#include <stddef.h>
#include "isokern.h"

typedef ik_status ik_kernel(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes, void *stream);
typedef const char *ik_supported(const ik_plan *plan);  /* null: taken; otherwise why not */
typedef uint64_t ik_workspace(const ik_plan *plan);     /* bytes, for ik_threads() threads */

/* One declared operator (operators.h, generated). */
typedef struct ik_operator {
    const char *name;
    uint32_t kind;
    const char *stem;
    uint32_t schema_id;
    uint32_t attr_bytes;
    const void *defaults;
    int64_t fingerprint;
    uint32_t tensors; /* outputs and inputs */
    uint64_t optional; /* bit i: tensor i may be absent */
    uint32_t variadic;
} ik_operator;

/* One kernel built at one level (variants.c, made by the build from the files it finds). */
typedef struct ik_variant {
    const char *stem;
    const char *level;
    int32_t priority;
    ik_kernel *kernel;
    ik_supported *supported;
    ik_workspace *workspace;
} ik_variant;

extern const ik_variant ik_variants[];
extern const uint32_t ik_variant_count;
const ik_operator *ik_operator_list(uint32_t *count);

/* Null when this machine can run the level, otherwise what it lacks. */
const char *ik_level_missing(const char *level);

/* Threads the pool may use, the caller's own among them; fixed when the library loads. */
int32_t ik_threads(void);

/* Run task(context, begin, end, worker) over [0, n) in pieces of at least `grain`; worker is 0 .. ik_threads() - 1, and no two
 * pieces with the same worker run at once. Returns when all are done. Below two pieces, or when another caller has the
 * pool, the whole range runs in the caller's thread. */
typedef void ik_task(void *context, int64_t begin, int64_t end, int32_t worker);
void ik_parallel_for(int64_t n, int64_t grain, ik_task *task, void *context);

/* Record why a call fails, for ik_last_error(); returns `status`. */
ik_status ik_fail(ik_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A kernel found a value that only it can see (an index out of range): the host makes the message from the declaration. */
ik_status ik_bad_value(int64_t at, int64_t value);

/* While a stream captures, ik_op_call appends to its list instead of running, and returns IK_CAPTURED. */
enum { IK_CAPTURED = 64 };
ik_status ik_stream_begin_capture(void *stream);
const ik_call *ik_stream_end_capture(void *stream, uint64_t *count);
void ik_calls_free(const ik_call *calls, uint64_t count);

/* Measurements of the machine for `isokern bench` (limits.c): copy `bytes` by all threads, with streaming stores if asked; and
 * `rounds` of multiply-adds (of F64 or F32) a piece of work, which returns how many operations that were. */
void ik_measure_copy(void *to, const void *from, uint64_t bytes, int32_t streaming);
double ik_measure_fma(int32_t dtype, int64_t rounds);

#endif
