/* The state of a launch on the emulated GPU, which its parts share: program, schedule, check and report.cpp. */
#ifndef ISOKERN_CUDA_EMULATOR_H
#define ISOKERN_CUDA_EMULATOR_H
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "check_rules.h"
#include "cuda_operations.h"
#include "fiber.h"
#include "known.h"
#include "order.h"

namespace cuda_emulator
{

/* Bytes in front of and behind each array that nobody can access: more than a wrong 32-bit index reaches, and less for
 * the many arrays of a program with a host. */
extern std::size_t guard;
constexpr std::size_t LAUNCH_GUARD = std::size_t{ 1 } << 34, PROGRAM_GUARD = std::size_t{ 1 } << 28;
constexpr std::size_t MAX_SHARED = 227 << 10, PLAIN_SHARED = 48 << 10; /* bytes of a block: with and without asking */
constexpr std::size_t STACK = 256 << 10; /* bytes, of each thread */
constexpr int SPIN = 16; /* atomics and volatile loads after which others get a turn */
using Pc = const char *; /* an address in the kernel's code: where a call of the emulator returns to */
struct Index {
    unsigned x = 1, y = 1, z = 1;
};

/* A local variable that is not written completely, perhaps. */
struct Watched {
    char *begin;
    std::vector<std::uint8_t> written;
    const char *name;
    int depth; /* of the function that it belongs to */
};

/* A store over an unordered store of another thread; a race unless it writes the same value. */
struct Suspicion {
    char *at;
    std::size_t bytes;
    std::array<char, 16> before;
    std::uint32_t mine, theirs;
};

/* What a thread does, in order: it begins a basic block, or accesses memory. */
struct Event {
    Pc pc;
    std::uint64_t at;
    std::uint8_t bytes; /* 0: a basic block */
    bool shared;
};

/* An asynchronous copy into shared memory; `given` bytes are copied, the others become zeros. */
struct AsyncCopy {
    char *to;
    const char *from;
    std::size_t bytes, given;
    int group;
    Pc pc;
};

enum class State { ready, barrier, warp, active, done };

struct Thread {
    explicit Thread(std::size_t stack) : fiber(stack) {}
    ik_emulation::Fiber fiber;
    int id = 0;
    Index index;
    State state = State::done;
    Pc pc = nullptr; /* of the wait, or of the last access */
    int predicate = 0, operation = 0, lane = 0, width = 32;
    unsigned mask = 0;
    std::uint64_t bits = 0, result = 0, *given = nullptr;
    std::uint32_t stamp = 0;
    Knowledge known, fenced; /* what it knows; what it knew at the last fence */
    int atomics = 0; /* since others had a turn */
    int depth = 0;
    std::vector<Watched> watched;
    std::vector<Suspicion> suspicions;
    struct Recent {
        Pc pc = nullptr;
        std::uint32_t stamp = 0, id = 0;
        bool write = false, shared = false;
    };
    std::array<Recent, 32> recent;
    std::vector<Event> events; /* since the last barrier */
    std::vector<AsyncCopy> copies; /* that were not waited for yet, in order */
    int groups = 0; /* of copies, that are complete */
};

/* An array in global memory, or the shared memory of a block. */
struct Region {
    char *begin = nullptr;
    std::size_t bytes = 0;
    std::string name;
    bool shared = false;
    bool watched = false; /* not all of it is written from the start */
    bool saved = false;
    bool host = false; /* pinned or managed memory, which the host reaches, too */
    std::vector<std::uint8_t> written;
    ik_emulation::Cells cells;
};

/* An array of the segment of `__shared__` variables, from the executable's symbols. */
struct SharedArray {
    std::size_t offset, bytes;
    std::string name;
    bool is_gap() const { return name.compare(0, 18, "cuda_emulator_gap_") == 0; }
    bool is_guard() const { return name == "guard variable"; } /* of the compiler */
};

/* What the warps' accesses by one instruction cost. */
struct Cost {
    bool shared = false;
    std::uint64_t requests = 0, moved = 0, needed = 0; /* wavefronts, or sectors */
    std::uint64_t worst = 0;
    std::int64_t block = 0;
    int thread = 0;
    std::string kernel;
};

struct Launch {
    Index grid, block;
    int threads = 0;
    std::string kernel, json; /* the kernel's name; the file that findings are appended to, or empty */
    bool check = false;
    std::uint64_t seed = 0;
    bool stopped = false;
    std::uint64_t first_seed = 0, loaded = 0, stored = 0; /* bytes of global memory */
    bool program = false; /* with a host of its own, which launches any number of kernels */
    std::string earlier; /* of a program: the file of the findings that runs with other seeds have reported already */
    std::map<std::string, std::uint64_t> counts; /* of a program: its launches of each kernel */
};

extern Launch launch;
extern std::vector<std::unique_ptr<Thread>> threads;
extern Thread *self; /* the thread that runs; null in the emulator's own code between threads */
extern std::int64_t block_number;
extern std::vector<Region> arrays;
extern Region fixed, dynamic; /* shared memory: of variables, and of --shared bytes */
extern std::vector<SharedArray> shared_arrays;
extern std::unordered_map<Pc, Cost> costs;
extern void (*kernel_call)(void *);
extern void *kernel_given; /* what kernel_call gets: the arguments */
extern std::size_t kernel_given_bytes;

/* schedule.cpp */
Index index_of(std::int64_t number, const Index &size);
void run_grid(std::uint64_t seed);
void set_threads(int count);
std::string place_of(std::int64_t block, int thread, const Index &grid, const Index &block_size);
[[noreturn]] void stop(); /* end the launch; called by the running thread */
void pass(); /* let the other threads run */

/* check.cpp */
enum class Act { load, store, atomic, volatile_load, volatile_store };
void forget_contents();
void begin_launch_checks();
void begin_block_checks();
void end_block_checks();
void end_launch_checks();
void settle(Thread &t); /* judge the stores that have happened since */
void observe(const volatile void *p, std::size_t bytes, Act act, Pc pc, bool aligned);
void acquire_and_release(const volatile void *p);
std::uint32_t new_stamp();
void meet_all(const std::vector<Thread *> &those, bool whole_block);

/* report.cpp */
void find(const ik_emulation::Rule &rule, std::int64_t block, int thread, Pc pc, std::string what, std::string bytes,
    std::int64_t other_block = -1, int other_thread = 0, Pc other = nullptr, std::string other_what = {});
void find_divergence(const ik_emulation::Rule &rule, const Thread &one, const Thread &other, const std::string &what,
    const std::string &other_what);
void find_host(const ik_emulation::Rule &rule, Pc pc, std::string what, std::string bytes);
int report();
void read_symbols(const char *path);

/* runtime.cpp */
void open_arrays(bool open);
bool use(const void *p, std::size_t bytes, bool write, const char *name, Pc pc);
std::string describe_host_access(const char *at);
std::string describe_freed(const char *at);

/* program.cpp */
char *map_guarded(std::size_t bytes);
void unmap_guarded(char *begin, std::size_t bytes);
void map_dynamic();
void catch_signals(unsigned seconds);

} // namespace cuda_emulator

/* The variables of kernels */
extern "C" {
extern cuda_emulator::Index threadIdx, blockIdx, blockDim, gridDim;
extern char *cuda_emulator_dynamic;
}
#endif
