/* The functions that kernels compiled for the emulator call; the emulator's side of them is libxpurt.
 *
 * The same source compiles in two ways: fast (copies happen at once, nothing is watched) and, with XPUSIM_CHECKED,
 * checked. */
#ifndef XPUSIM_DEVICE_H
#define XPUSIM_DEVICE_H
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

/* A place in a kernel's source. */
struct xpusim_site {
    const char *file;
    int line;
};

/* The identity of an emulated core, valid while it runs. */
struct xpusim_core {
    int core, cores, cluster, clusters, physical_cluster;
};

enum xpusim_direction { XPUSIM_GM2LM, XPUSIM_LM2GM, XPUSIM_GM2SM, XPUSIM_SM2GM, XPUSIM_GM2GSM, XPUSIM_GSM2GM };
enum xpusim_space { XPUSIM_LM = 1, XPUSIM_SM = 2, XPUSIM_GM = 4 };

/* Exceptions of the cluster, with the driver's numbers. */
enum xpusim_exception {
    XPUSIM_UNDEFINED_INSTRUCTION = 1,
    XPUSIM_DIVIDE_BY_ZERO = 3,
    XPUSIM_MEMORY_EXCEEDED = 4,
    XPUSIM_UNALIGNED = 5,
    XPUSIM_DMA_LENGTH_ZERO = 7,
    XPUSIM_SIMD_UNALIGNED = 16,
    XPUSIM_NESTED_ATOMIC = 24,
    XPUSIM_TASK_TIMEOUT = 28,
    XPUSIM_CORE_TRAP = 30
};

extern "C" {
extern __thread xpusim_core *xpusim_current; /* __thread: without a constructor, it is accessed without a call */

/* Ends the kernel with an exception. */
[[noreturn]] void xpusim_raise(int exception, const char *what, xpusim_site site);

/* Wait for the other cores: those of all groups in `groups` (groups of four cores; bit g is group g), or of the whole
 * cluster for -1. */
void xpusim_barrier(int64_t groups, xpusim_site site);

/* Acquire and release the cluster's one lock, which is granted in the order of requests. A core that requests it again
 * raises "nested atomic". */
void xpusim_lock(xpusim_site site);
void xpusim_unlock(xpusim_site site);

/* 32-bit words. In SM, a load links the word until another core stores to it, and the store returns 0 if it happened.
 * In GM, the old value is returned. */
int xpusim_load_linked(const void *from, xpusim_site site);
int xpusim_store_conditional(void *to, int bits, xpusim_site site);
int xpusim_global_atomic(int *at, int value, int add, xpusim_site site);

/* A declaration of group-shared memory was reached; it counts towards the group's local memory. */
void xpusim_group_shared(const void *object, uint64_t bytes, xpusim_site site);

/* The host's clock in nanoseconds. */
uint64_t xpusim_clock(void);

/* Functions of checked kernels only. */
/* Copy; the rests are the bytes that are left in the objects that the compiler sees the pointers come from, or the
 * largest number. */
void xpusim_copy(xpusim_direction direction, const void *from, size_t from_rest, void *to, size_t to_rest,
    int64_t bytes, int asynchronous, xpusim_site site);
void xpusim_fence(int spaces, xpusim_site site);

/* A local array begins, and nobody has written its bytes. */
void xpusim_fresh(const volatile void *array, size_t bytes);

/* A value is about to be moved as it is from an element of an array, or from a variable that has it from there (then
 * the site has no file): it may be unwritten. */
void xpusim_moved(const volatile void *from, size_t bytes, xpusim_site site);

/* It was moved, to a variable or (null) elsewhere. For all that the compiler knows, this changes memory: what is used
 * of the element from now on is loaded, and so announced. */
void xpusim_moved_to(const volatile void *variable);

/* An array or a variable of the host ends. */
void xpusim_lifetime_ends(const volatile void *object, size_t bytes);

/* A local array, perhaps of vectors, lies within a whole of more bytes; no access may touch the others until the zones
 * end. */
void xpusim_zones_begin(
    const volatile void *whole, size_t bytes, const volatile void *array, size_t array_bytes, int vectors);
void xpusim_zones_end(const volatile void *whole);

/* A function that is entered has a pointer of local memory as a parameter: returns 1 if it points to global memory, and
 * ends when as many are told to end. A pointer of local memory is about to be dereferenced. */
int xpusim_local_pointer_begins(const volatile void *pointer);
void xpusim_local_pointers_end(int count);
void xpusim_local_pointer(const volatile void *pointer, xpusim_site site);

/* A variable that has 32 bits on the device is given a value that needs more. */
void xpusim_long(int64_t value, xpusim_site site);

/* Announce a vector load or store before the caller moves the bytes (or a gather, lane by lane with the lane's bytes;
 * only accesses of a vector's full 64 bytes must be aligned to them). `space` is the one in the intrinsic's name. Bit i
 * of a mask stands for byte i. xpusim_vector_load returns which bytes nobody has written: such bytes may travel through
 * a vector (tails do), but a result that depends on them must be reported to xpusim_use; 0 means none. A store takes
 * the mask along, and only bytes in `enabled` are written. */
uint64_t xpusim_vector_load(const void *from, int bytes, int space, xpusim_site site);
void xpusim_vector_store(void *to, int bytes, int space, uint64_t unwritten, uint64_t enabled, xpusim_site site);
void xpusim_use(uint64_t unwritten, xpusim_site site);

/* Announce an atomic operation on SM: other cores may run before it. It orders its core after earlier ones at the same
 * address, and races with none. One that `changes` nothing is a core's that waits. */
void xpusim_atomic(const void *address, int bytes, int changes, xpusim_site site);

/* Choose the schedule of the launches from now on, which are numbered anew; no work is in flight. */
void xpusim_set_seed(uint64_t seed);

/* Kernels have made a result, which is saved: its unwritten bytes are reported in checked mode. */
void xpusim_result(const void *from, uint64_t bytes, const char *name);

/* Format output of one core, which is kept until the host asks for it; returns what vprintf returns. */
int xpusim_print(const char *format, va_list) __attribute__((format(printf, 1, 0)));
}

namespace xpusim
{
template <class T>
constexpr bool is_vector = false; /* true for those of vector.h */
}

#define XPUSIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define XPUSIM_SITE (xpusim_site{ file, line })

/* The language's own functions announce what they access, with the author's line. */
#define XPUSIM_OWN no_sanitize("bounds"), no_sanitize("object-size")

#ifdef XPUSIM_CHECKED
#define XPUSIM_RUNTIME static inline __attribute__((no_sanitize("thread"), XPUSIM_OWN, unused))
#else
#define XPUSIM_RUNTIME static inline __attribute__((unused))
#endif
#endif
