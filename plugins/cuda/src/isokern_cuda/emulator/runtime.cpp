/* The emulated GPU for a program with a host of its own: memory, copies and launches. Work is done when it is enqueued,
 * which is one of the orders that streams and events allow. */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>

#include <sys/mman.h>
#include <unistd.h>

#include "cuda_operations.h"
#include "emulator.h"

namespace cuda_emulator
{

/* Arrays that were freed lately, for messages. */
struct Freed {
    char *begin;
    std::size_t bytes;
    std::string name;
};
static std::deque<Freed> freed;
static std::size_t asked_shared; /* the most that cudaFuncSetAttribute has allowed */
static unsigned long unnamed;

static Region *array_at(const void *p)
{
    const char *const at = static_cast<const char *>(p);
    for (Region &r : arrays)
        if (at >= r.begin && at < r.begin + std::max<std::size_t>(r.bytes, 1))
            return &r;
    return nullptr;
}

/* Let the host's part of the program reach the GPU's own memory, or not. */
void open_arrays(bool open)
{
    for (const Region &r : arrays)
        if (!r.host && r.bytes != 0)
            mprotect(r.begin, (r.bytes + 4095) / 4096 * 4096, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void at_exit(int status, void *)
{
    self = nullptr;
    std::fflush(nullptr);
    std::cout.flush();
    const int found = report();
    _exit(found != 0 ? 1 : status);
}

/* Read what the program is to do, if isokern-gpu starts one with a host. */
static void begin_program()
{
    const char *const path = std::getenv("CUDA_EMULATOR_PROGRAM");
    if (path == nullptr)
        return;
    std::ifstream in(path);
    launch.program = true;
    guard = PROGRAM_GUARD;
    unsigned limit = 60;
    for (std::string line; std::getline(in, line);) {
        const std::size_t tab = line.find('\t');
        const std::string key = line.substr(0, tab), value = tab == std::string::npos ? "" : line.substr(tab + 1);
        if (key == "seed")
            launch.seed = launch.first_seed = std::strtoull(value.c_str(), nullptr, 10);
        else if (key == "check")
            launch.check = value == "1";
        else if (key == "limit")
            limit = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
        else if (key == "report")
            launch.json = value;
        else if (key == "earlier")
            launch.earlier = value;
        else if (key == "symbols")
            read_symbols(value.c_str());
    }
    map_dynamic();
    catch_signals(limit);
    on_exit(at_exit, nullptr);
}

/* It is read before the program's own variables are made: the emulator is linked in front of it. */
static const struct Begin {
    Begin() { begin_program(); }
} begin_now;

/* A host's access to the GPU's memory; returns an empty text if it is another one. */
std::string describe_host_access(const char *at)
{
    for (const Region &r : arrays)
        if (!r.host && at >= r.begin && at < r.begin + r.bytes)
            return "accesses offset " + std::to_string(at - r.begin) + " of " + r.name + ", which is memory of the GPU";
    return {};
}

std::string describe_freed(const char *at)
{
    for (const Freed &f : freed)
        if (at >= f.begin && at < f.begin + f.bytes)
            return "accesses offset " + std::to_string(at - f.begin) + " of " + f.name + ", which was freed";
    return {};
}

/* Whether a range that the host names is within one array, which is told if not; `what` is done with it. */
static bool holds(const void *p, std::size_t bytes, const char *what, Pc pc)
{
    if (bytes == 0)
        return true;
    Region *const r = array_at(p);
    const char *const at = static_cast<const char *>(p);
    if (r == nullptr) {
        const std::string was = describe_freed(at);
        find_host(rules::host_call, pc, std::string(what) + (was.empty() ? " memory that is not the GPU's" : ""), was);
        return false;
    }
    if (static_cast<std::size_t>(at - r->begin) + bytes > r->bytes) {
        find_host(rules::host_call, pc, what,
            std::to_string(bytes) + " bytes at offset " + std::to_string(at - r->begin) + " of " + r->name
                + ", which has " + std::to_string(r->bytes) + " bytes");
        return false;
    }
    return true;
}

static void mark_written(const void *p, std::size_t bytes)
{
    Region *const r = array_at(p);
    if (r == nullptr || r->written.empty() || bytes == 0)
        return;
    const auto offset = static_cast<const char *>(p) - r->begin;
    std::fill_n(r->written.begin() + offset, static_cast<std::ptrdiff_t>(bytes), 1);
}

/* Copy what is known of the contents, too. */
static void copy_written(void *to, const void *from, std::size_t bytes, Pc pc)
{
    const Region *const source = array_at(from);
    Region *const target = array_at(to);
    if (source == nullptr || source->written.empty()) {
        mark_written(to, bytes);
        return;
    }
    const auto begin = source->written.begin() + (static_cast<const char *>(from) - source->begin);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
    if (target != nullptr && !target->written.empty()) {
        std::copy(begin, end, target->written.begin() + (static_cast<char *>(to) - target->begin));
        return;
    }
    const auto missing = std::count(begin, end, 0);
    if (missing != 0)
        find_host(rules::unwritten, pc, "copies " + std::to_string(bytes) + " bytes of " + source->name,
            std::to_string(missing) + " of them were not written, the first at offset "
                + std::to_string(std::find(begin, end, 0) - source->written.begin()));
}

/* Whether a library's function may do that with an array. */
bool use(const void *p, std::size_t bytes, bool write, const char *name, Pc pc)
{
    const std::string what = std::string(name) + (write ? " writes" : " reads");
    if (!holds(p, bytes, what.c_str(), pc))
        return false;
    if (write && launch.check)
        mark_written(p, bytes);
    return true;
}

static int copy(void *to, const void *from, std::size_t bytes, int kind, Pc pc)
{
    const bool reads = kind == 2 || kind == 3, writes = kind == 1 || kind == 3;
    if (bytes == 0)
        return 0;
    if ((writes && !holds(to, bytes, "copies to", pc)) || (reads && !holds(from, bytes, "copies from", pc)))
        return 1;
    if (kind == 4
        && ((array_at(to) != nullptr && !holds(to, bytes, "copies to", pc))
            || (array_at(from) != nullptr && !holds(from, bytes, "copies from", pc))))
        return 1;
    for (const void *p :
        { static_cast<const void *>(kind == 0 || kind == 2 ? to : nullptr), kind < 2 ? from : nullptr })
        if (const Region *const r = array_at(p); r != nullptr && !r->host) {
            find_host(rules::host_call, pc, "copies as if " + r->name + " were memory of the host", "");
            return 1;
        }
    open_arrays(true);
    if (launch.check)
        copy_written(to, from, bytes, pc);
    std::memmove(to, from, bytes);
    open_arrays(false);
    return 0;
}

} // namespace cuda_emulator

using namespace cuda_emulator;

#define CALLER static_cast<Pc>(__builtin_return_address(0))

extern "C" void *cuda_emulator_allocate(std::size_t bytes, int kind, const char *name)
{
    Region r;
    r.bytes = bytes;
    r.begin = map_guarded(bytes);
    r.host = kind != CUDA_MEMORY_DEVICE;
    r.name = name[0] != 0 ? name : "array " + std::to_string(++unnamed);
    if (!r.host) {
        std::memset(r.begin, 0xff, bytes); /* nobody has written it: NaN */
        r.watched = launch.check;
        if (launch.check)
            r.written.assign(bytes, 0);
    }
    const char *const low = r.begin - guard, *const high = r.begin + bytes + guard;
    freed.erase(std::remove_if(freed.begin(), freed.end(),
                    [&](const Freed &f) { return f.begin + f.bytes > low && f.begin < high; }),
        freed.end()); /* their addresses are in use again */
    void *const made = r.begin;
    arrays.push_back(std::move(r));
    open_arrays(false);
    return made;
}

extern "C" int cuda_emulator_free(void *p)
{
    const auto found = std::find_if(arrays.begin(), arrays.end(), [&](const Region &r) { return r.begin == p; });
    if (found == arrays.end()) {
        const std::string was = describe_freed(static_cast<char *>(p));
        find_host(rules::host_call, CALLER, "frees what is not the begin of an array of the GPU", was);
        return 1;
    }
    freed.push_back({ found->begin, found->bytes, found->name });
    if (freed.size() > 64)
        freed.pop_front();
    unmap_guarded(found->begin, found->bytes);
    arrays.erase(found);
    return 0;
}

extern "C" int cuda_emulator_copy(void *to, const void *from, std::size_t bytes, int kind)
{ return copy(to, from, bytes, kind, CALLER); }

extern "C" int cuda_emulator_copy_rows(void *to, std::size_t to_pitch, const void *from, std::size_t from_pitch,
    std::size_t width, std::size_t height, int kind)
{
    for (std::size_t row = 0; row < height; row++)
        if (const int error = copy(static_cast<char *>(to) + row * to_pitch,
                static_cast<const char *>(from) + row * from_pitch, width, kind, CALLER);
            error != 0)
            return error;
    return 0;
}

extern "C" int cuda_emulator_fill(void *p, int value, std::size_t bytes)
{
    if (!holds(p, bytes, "fills", CALLER))
        return 1;
    open_arrays(true);
    std::memset(p, value, bytes);
    open_arrays(false);
    if (launch.check)
        mark_written(p, bytes);
    return 0;
}

extern "C" int cuda_emulator_kind(const void *p, void **begin, std::size_t *bytes)
{
    const Region *const r = array_at(p);
    if (r == nullptr)
        return CUDA_MEMORY_HOST;
    *begin = r->begin;
    *bytes = r->bytes;
    return r->host ? CUDA_MEMORY_PINNED : CUDA_MEMORY_DEVICE;
}

extern "C" double cuda_emulator_now()
{
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(since).count();
}

extern "C" void cuda_emulator_ask_shared(std::size_t bytes) { asked_shared = std::max(asked_shared, bytes); }

extern "C" int cuda_emulator_launch(const char *name, const unsigned *grid, const unsigned *block, std::size_t shared,
    void (*call)(void *), void *given, std::size_t bytes)
{
    const Pc pc = CALLER; /* not in `refused`, which returns to this function */
    if (self != nullptr) {
        find(rules::host_call, block_number, self->id, pc, "launches a kernel: that is not emulated", "");
        stop();
    }
    launch.kernel = name;
    const std::uint64_t threads_wanted = std::uint64_t{ 1 } * block[0] * block[1] * block[2];
    const auto refused = [&](const std::string &what) {
        find_host(rules::host_call, pc, "launches " + std::string(name) + " with " + what, "");
        return 9; /* cudaErrorInvalidConfiguration */
    };
    if (threads_wanted == 0 || threads_wanted > 1024 || block[2] > 64)
        return refused(std::to_string(threads_wanted) + " threads a block; allowed: 1 to 1024, of z at most 64");
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535)
        return refused("a grid of (" + std::to_string(grid[0]) + "," + std::to_string(grid[1]) + ","
            + std::to_string(grid[2]) + "); allowed: 1 to 2147483647, 65535 and 65535");
    if (shared > std::max(asked_shared, PLAIN_SHARED) || shared > MAX_SHARED)
        return refused(std::to_string(shared)
            + " bytes of dynamic shared memory; allowed: " + std::to_string(std::max(asked_shared, PLAIN_SHARED))
            + ", or up to 232448 if cudaFuncSetAttribute has asked for them");
    launch.grid = { grid[0], grid[1], grid[2] };
    launch.block = { block[0], block[1], block[2] };
    gridDim = launch.grid;
    blockDim = launch.block;
    dynamic.bytes = shared;
    kernel_call = call;
    kernel_given = given;
    kernel_given_bytes = bytes;
    launch.counts[launch.kernel]++;
    set_threads(static_cast<int>(threads_wanted));
    open_arrays(true);
    run_grid(launch.first_seed);
    if (launch.stopped) {
        std::fflush(nullptr);
        std::cout.flush();
        report();
        _exit(1);
    }
    open_arrays(false);
    return 0;
}
