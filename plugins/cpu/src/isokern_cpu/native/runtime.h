/* What the CPU runtime provides to kernels in addition to isokern_native.h: the thread pool, and this machine's
 * limits. */
#ifndef IK_RUNTIME_H
#define IK_RUNTIME_H
#include "isokern_native.h"

/* Number of threads the pool may use, including the caller's; fixed when the library loads. */
int32_t ik_threads(void);

/* Run task(context, begin, end, worker) over [0, n) in pieces of at least `grain`; worker is 0 .. ik_threads() - 1, and
 * no two pieces with the same worker run at once. Returns when all pieces are done. With fewer than two pieces, or
 * while another caller uses the pool, the whole range runs in the caller's thread. */
typedef void ik_task(void *context, int64_t begin, int64_t end, int32_t worker);
void ik_parallel_for(int64_t n, int64_t grain, ik_task *task, void *context);

/* Measurements of the machine for `isokern bench` (limits.c): copy `bytes` by all threads, with streaming stores if
 * asked; and run `rounds` of multiply-adds (of F64 or F32) in each piece of work, returning how many operations that
 * was. */
void ik_measure_copy(void *to, const void *from, uint64_t bytes, int32_t streaming);
double ik_measure_fma(int32_t dtype, int64_t rounds);

#endif
