/* The rules of the programming model that the checked mode checks: id, severity, rule, remedy. */
#ifndef XPURT_CHECK_RULES_H
#define XPURT_CHECK_RULES_H
#include "findings.h"

namespace xpurt::check::rules
{

using ik_emulation::Rule;
using ik_emulation::Severity;

/* Copies */
inline constexpr Rule copy_destination{ "copy-destination", Severity::error,
    "the destination of an asynchronous copy may be used only after a fence with its space in the mask, by the core that issued the copy [data movement]",
    "fence the destination's space on the issuing core between the copy and the use" };
inline constexpr Rule copy_drained{ "copy-drained", Severity::note,
    "possible on hardware: published kernels use what an asynchronous copy moved after a synchronous one of the same core, which nothing public promises [data movement]",
    "fence the copy's space before its bytes are used" };
inline constexpr Rule copy_source{ "copy-source", Severity::error,
    "the source of an asynchronous copy may be rewritten only after a fence with the source's or the destination's space in the mask, by the core that issued the copy [data movement]",
    "fence on the issuing core before the source is used again" };
inline constexpr Rule copy_overlap{ "copy-overlap", Severity::error,
    "the order of two copies in flight is not documented: one must not write what the other reads or writes [data movement]",
    "fence between the two copies" };
inline constexpr Rule copy_scope{ "copy-scope", Severity::error,
    "an array in local memory ends with its function, and a copy in flight must not outlive it [storage]",
    "fence before the function returns, or give the array to the caller" };
inline constexpr Rule copy_end{ "copy-end", Severity::note,
    "possible on hardware: nothing public says that a copy still in flight when its kernel returns is completed [storage]",
    "fence the copy's space before the kernel returns" };
inline constexpr Rule copy_length{ "copy-length", Severity::error,
    "a copy of no bytes is exception 7, DMA length zero [alignment and size]",
    "leave the copy out where there is nothing to copy" };
inline constexpr Rule copy_size{ "copy-size", Severity::error,
    "a copy is at most as long as local or shared memory: exception 6, DMA exceeds memory [alignment and size]",
    "copy in tiles" };
inline constexpr Rule copy_truncated{ "copy-truncated", Severity::error,
    "the byte count of a copy is a 32-bit int on the device [address spaces]",
    "copy in pieces whose size is computed in int" };
inline constexpr Rule space{ "wrong-space", Severity::error,
    "both ends of a copy are where its name says: pointers must not be cast between spaces [address spaces]",
    "use the copy (or intrinsic) named after the two spaces" };

/* Types */
inline constexpr Rule long_truncated{ "long-truncated", Severity::error,
    "long, size_t and ptrdiff_t have 32 bits on the device [address spaces]",
    "use long long, or keep the value within 32 bits" };

/* Pointers and bounds */
inline constexpr Rule host_pointer{ "host-pointer", Severity::error,
    "a kernel reaches only device memory: a host address means nothing to it [address spaces]",
    "copy to memory of xpu_malloc and pass that" };
inline constexpr Rule other_device{ "other-device", Severity::error,
    "a kernel reaches only memory of its own device [address spaces]", "allocate on the device of the stream" };
inline constexpr Rule gm_bounds{ "gm-bounds", Severity::error,
    "an access stays within one allocation of xpu_malloc: the card faults only where nothing is mapped [exceptions]",
    "bound the access by the tensor's size" };
inline constexpr Rule gm_freed{ "gm-freed", Severity::error,
    "memory is used only until xpu_free, which does not wait for streams [host runtime]",
    "xpu_wait for the stream before xpu_free" };
inline constexpr Rule gm_scalar{ "gm-scalar", Severity::error,
    "KUNLUN2 has no direct path from global memory to a register [data movement]",
    "bring the bytes to local memory with GM2LM" };
inline constexpr Rule global_dereference{ "global-dereference", Severity::error,
    "in a function of the device, and in a structure, a pointer without __global_ptr__ is one of local memory [address spaces]",
    "declare the pointer __global_ptr__, or copy the bytes to local memory" };
inline constexpr Rule lm_private{ "lm-private", Severity::error,
    "local memory belongs to its core: another core's address means nothing [hardware model]",
    "share through __shared__ memory" };
inline constexpr Rule lm_bounds{ "lm-bounds", Severity::error,
    "an access to local memory stays within its array and out of the functions' stack frames [exceptions]",
    "make the array as large as what is copied or stored" };
inline constexpr Rule lm_overflow{ "lm-overflow", Severity::error,
    "a core has 8192 bytes of local memory for arrays and the stack [hardware model]",
    "use smaller tiles: 6 KB of arrays a core is good practice" };
inline constexpr Rule sm_bounds{ "sm-bounds", Severity::error,
    "an access to shared memory stays within its array [exceptions]", "make the array as large as what is accessed" };
inline constexpr Rule sm_overflow{ "sm-overflow", Severity::error,
    "a cluster has 256 KB of shared memory, of which KUNLUN3's compiler keeps 64 bytes [hardware model]",
    "use smaller shared arrays" };
inline constexpr Rule global_variable{ "global-variable", Severity::error,
    "a kernel has no global variables [launch and identity]",
    "pass a kernel parameter, or keep it in __shared__ or global memory" };
inline constexpr Rule scalar_alignment{ "scalar-alignment", Severity::error,
    "a scalar of 2 bytes is loaded and stored at a multiple of 2, a longer one at a multiple of 4, and so are the lanes of a gather: exception 5, load/store unaligned [exceptions]",
    "keep offsets at multiples of the element, or copy the bytes with GM2LM" };
inline constexpr Rule simd_alignment{ "simd-alignment", Severity::error,
    "a vector load or store is aligned to 64 bytes: exception 16, SIMD address unaligned [alignment and size]",
    "declare the array __simd__ and keep offsets to multiples of 64 bytes" };

/* Contents */
inline constexpr Rule uninitialised{ "uninitialised", Severity::error,
    "contents of LM, SM and fresh global memory are unspecified until they are written [unspecified]",
    "write the bytes before they are used" };
inline constexpr Rule uninitialised_copy{ "uninitialised-copy", Severity::error,
    "bytes that nobody wrote must not reach a result: copies may carry them along, but nobody may use them [unspecified]",
    "copy out only what was computed" };
inline constexpr Rule uninitialised_rounding{ "uninitialised-rounding", Severity::note,
    "possible: the last bytes of an array that reach the host were written by nobody, which is right if only a copy was rounded up [unspecified]",
    "let the host read the valid part alone" };

inline constexpr Rule uninitialised_move{ "uninitialised-move", Severity::note,
    "possible: an element that nobody wrote is moved to another place, which is right if nothing depends on it there [unspecified]",
    "write the elements before they are moved" };
inline constexpr Rule unwritten{ "unwritten", Severity::note,
    "kernels write all of an array that is saved [unspecified]", "write all of the result, or begin it with zeros:" };

/* Order within a core */
inline constexpr Rule vector_unfenced{ "vector-unfenced", Severity::error,
    "what a vector store wrote to local memory is seen by scalar loads and by copies only after mfence_lm() [scalar and SIMD]",
    "mfence_lm() between the vector store and the use" };
inline constexpr Rule scalar_unfenced{ "scalar-unfenced", Severity::note,
    "possible on hardware: that scalar stores are seen by vector loads and copies without a fence is not documented [scalar and SIMD]",
    "fence the space between the stores and the use" };
inline constexpr Rule gm_unfenced{ "gm-unfenced", Severity::error,
    "a scalar store to global memory is seen by a copy only after mfence_gm() [ordering]",
    "mfence_gm() between the store and the copy" };

/* Order between cores */
inline constexpr Rule race_sm{ "race-sm", Severity::error,
    "accesses of two cores to the same shared memory, one of them a write, are ordered by the writer's fence and a barrier, or by atomics (exception 26 if they meet) [ordering]",
    "sync_cluster() between the two accesses" };
inline constexpr Rule race_gm{ "race-gm", Severity::error,
    "accesses of two cores to the same global memory, one of them a write, are ordered by the writer's fence and a barrier; clusters are not ordered within a launch [ordering]",
    "sync_cluster() between the two accesses; between clusters, a second launch" };
inline constexpr Rule staging{ "staging-by-one-core", Severity::note,
    "KL3 risk: shared memory filled by the copies of one core alone is reported to fault on KUNLUN3 even when it is fenced [ordering]",
    "let all cores copy a slice each, fence their own, then sync_cluster()" };
inline constexpr Rule divergent{ "barrier-divergent", Severity::error,
    "all cores of a cluster come to the same barrier: not in a branch that only some take [barriers]",
    "move the barrier out of the branch" };
inline constexpr Rule lock_held{ "lock-held", Severity::error,
    "a core that returns with the cluster's lock leaves the others waiting for it [ordering]",
    "ticket_unlock_mix() on every path" };
inline constexpr Rule exited{ "barrier-exited", Severity::note,
    "possible on hardware: a published kernel relies on it that a core which has ended holds up no barrier; else all cores take part in the same number of barriers [barriers]",
    "make the number of rounds the same for all cores; idle ones go through the barrier, too" };
inline constexpr Rule deadlock{ "barrier-deadlock", Severity::error,
    "a barrier that others never reach holds its cores until the driver ends the kernel [barriers]",
    "let every core of the set reach the barrier" };
inline constexpr Rule endless{ "endless", Severity::error,
    "a kernel ends: exception 28 ends one that does not within the driver's time limit [exceptions]",
    "make the loop end; a core that waits for another reads by an atomic operation, which lets the others run" };
inline constexpr Rule cluster_order{ "cluster-order", Severity::error,
    "not modelled: a cluster that waits for another one of its launch, such as a barrier over clusters by atomics; a card has no such barrier, and clusters beyond its own number start when others have ended [launch and identity]",
    "end the kernel there, and launch a second one on the same stream" };

/* The host's calls */
inline constexpr Rule race_streams{ "race-streams", Severity::error,
    "work of two streams that uses the same memory, one of them writing, is ordered by an event or by the host's waiting [launch and identity]",
    "xpu_event_record behind the first and xpu_stream_wait_event before the second, or xpu_wait between the two" };
inline constexpr Rule copy_in_flight{ "copy-in-flight", Severity::error,
    "work is asynchronous: what a stream may still use is left alone [host runtime]",
    "call xpu_wait for the stream first" };
inline constexpr Rule free_in_flight{ "free-in-flight", Severity::error,
    "work is asynchronous: what a stream may still use is left alone [host runtime]",
    "call xpu_wait for the stream first" };
inline constexpr Rule host_changed_in_flight{ "host-changed-in-flight", Severity::error,
    "work is asynchronous: what a stream may still use is left alone [host runtime]",
    "call xpu_wait before the host writes there, or keep a copy for the device" };

inline constexpr Rule exception{ "exception", Severity::error,
    "the cluster raised an exception, which ends the kernel [exceptions]", "see what the exception says" };

} // namespace xpurt::check::rules
#endif
