/* The rules of CUDA that `isokern-gpu check` checks: id, severity, rule, remedy. */
#ifndef ISOKERN_CUDA_CHECK_RULES_H
#define ISOKERN_CUDA_CHECK_RULES_H
#include "findings.h"

namespace cuda_emulator::rules
{

using ik_emulation::Rule;
using ik_emulation::Severity;

/* Memory */
inline constexpr Rule global_bounds{ "global-bounds", Severity::error,
    "an access to global memory stays within one array", "bound the index by the size of the array" };
inline constexpr Rule shared_bounds{ "shared-bounds", Severity::error,
    "an access to shared memory stays within its array, and within the bytes of --shared for `extern __shared__`",
    "make the array as large as what is accessed, or bound the index" };
inline constexpr Rule array_bounds{ "array-bounds", Severity::error,
    "an index is less than the length of its dimension",
    "bound the index; where the whole array is meant as one dimension, go through a pointer to its first element" };
inline constexpr Rule wild_pointer{ "wild-pointer", Severity::error,
    "a kernel reaches its arguments' arrays, shared memory and its own variables, and nothing else",
    "see where the pointer comes from; a null or host pointer means nothing to a kernel" };
inline constexpr Rule local_private{ "local-private", Severity::error,
    "local variables belong to their thread: another thread's address means nothing",
    "share through __shared__ memory or a shuffle" };
inline constexpr Rule misaligned{ "misaligned", Severity::error,
    "a load or store of 2, 4, 8 or 16 bytes is at a multiple of its size",
    "load smaller elements there, or begin the rows at multiples of the vector" };
inline constexpr Rule uninitialised{ "uninitialised", Severity::error,
    "the contents of shared memory, of local arrays and of fresh global memory are unspecified until they are written",
    "write the bytes before they are read" };

inline constexpr Rule host_call{ "host-call", Severity::error,
    "the host gives the GPU's arrays to copies and kernels, whole or in part, and launches that a GPU accepts",
    "see the pointer, the size, and what direction of copy the call names" };
inline constexpr Rule host_access{ "host-access", Severity::error,
    "the host reaches the GPU's memory by copies; only managed and pinned memory is shared",
    "copy it to memory of the host first, or use cudaMallocManaged" };

/* Order */
inline constexpr Rule race_shared{ "race-shared", Severity::error,
    "accesses of two threads to the same shared memory, one of them a write, are ordered by a barrier, or are atomic",
    "__syncthreads() between the two accesses, or __syncwarp() within a warp; a shuffle orders no memory" };
inline constexpr Rule race_global{
    "race-global", Severity::error,
    "accesses of two threads to the same global memory, one of them a write, are ordered by a barrier, or are atomic; blocks are not ordered within a launch",
    "__syncthreads() between the two within a block; between blocks an atomic, __threadfence() before the atomic that tells of the data, or a second launch"
};

/* Barriers and warps */
inline constexpr Rule barrier_exited{
    "barrier-exited", Severity::note,
    "all threads of a block reach a barrier; only GPUs of compute capability 7.0 and above leave out those that have returned",
    "let idle threads go on to the barrier instead of returning, where older GPUs matter or the others need their part"
};
inline constexpr Rule barrier_divergent{ "barrier-divergent", Severity::error,
    "all threads of a block come to the same barrier: not in a branch or loop that only some take",
    "move the barrier out of the branch, or make the number of rounds the same for all threads" };
inline constexpr Rule lane_missing{ "lane-missing", Severity::error,
    "all lanes that a mask names execute the same warp function with that mask",
    "let all lanes of the mask reach the call, or compute the mask by __ballot_sync before the branch" };
inline constexpr Rule lane_outside{ "lane-outside-mask", Severity::error,
    "a lane that calls a warp function is in the mask that it gives", "name the calling lanes in the mask" };
inline constexpr Rule lane_read{ "lane-read", Severity::error,
    "a shuffle reads only from lanes that take part in it: from others the value is undefined",
    "let all lanes of the warp take part, also those beyond the tail" };
inline constexpr Rule shuffle_width{ "shuffle-width", Severity::error,
    "the width of a shuffle is a power of two of at most 32", "use 2, 4, 8, 16 or 32" };

/* What ends a kernel */
inline constexpr Rule division{ "division-by-zero", Severity::error, "an integer is not divided by zero",
    "test the divisor" };
inline constexpr Rule trap{ "trap", Severity::error, "a kernel does not end by assert or __trap", "see its condition" };
inline constexpr Rule endless{ "endless", Severity::error,
    "a kernel ends; blocks run one after another here, so a wait for a later block never does",
    "see the loop's condition, or raise --time-limit" };
inline constexpr Rule crash{ "crash", Severity::error, "a kernel causes no exception of the processor",
    "`isokern-gpu check` says more where the access is to memory" };

/* Notes */
inline constexpr Rule bank_conflict{ "bank-conflict", Severity::note,
    "the lanes of a warp access different banks of shared memory (32 banks of 4 bytes), or the same word",
    "pad the rows of the array by one element, or swizzle the index" };
inline constexpr Rule uncoalesced{ "uncoalesced", Severity::note,
    "the lanes of a warp access neighbouring global memory, which moves in sectors of 32 bytes",
    "let consecutive threads access consecutive elements; transpose through shared memory" };
inline constexpr Rule unwritten{ "unwritten", Severity::note, "a kernel writes all of an array that is saved",
    "see the grid and the bounds; zero what is meant to stay (zeros:)" };
inline constexpr Rule no_order{ "unwatched", Severity::note,
    "the order of accesses is watched up to 50 million of them", "check a smaller grid" };

} // namespace cuda_emulator::rules
#endif
