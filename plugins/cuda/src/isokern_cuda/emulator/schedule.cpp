/* Running a launch: the threads of a block as fibers, what they wait for, and the program that isokern-gpu starts. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "emulator.h"
#include "isokern_half.h"

namespace cuda_emulator
{

constexpr std::size_t STACK = 256 << 10;
constexpr int WARP = 32;
constexpr int IDLE = 100; /* rounds of nothing but waiting loops, after which those at __activemask() go on */

Launch launch;
std::vector<std::unique_ptr<Thread>> threads;
Thread *self;
std::int64_t block_number;
std::vector<Region> arrays;
Region fixed, dynamic;
static Index block_index;
static std::mt19937_64 draws;
static void (*kernel_call)(void **);
static std::vector<void *> values;
static std::int64_t instant;

} // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {
Index threadIdx, blockIdx, blockDim, gridDim;
char *cuda_emulator_dynamic;
}

namespace cuda_emulator
{

static Index index_of(std::int64_t number, const Index &size)
{
    const auto n = static_cast<std::uint64_t>(number);
    return { static_cast<unsigned>(n % size.x), static_cast<unsigned>(n / size.x % size.y),
        static_cast<unsigned>(n / size.x / size.y) };
}

static std::string spell(const Index &i)
{ return '(' + std::to_string(i.x) + ',' + std::to_string(i.y) + ',' + std::to_string(i.z) + ')'; }

std::string place_of(std::int64_t block, int thread)
{ return "block " + spell(index_of(block, launch.grid)) + " thread " + spell(index_of(thread, launch.block)); }

void pass()
{
    self->atomics = 0;
    ik_emulation::Fiber::yield();
}

void stop()
{
    launch.stopped = true;
    ik_emulation::Fiber::yield();
    __builtin_unreachable();
}

static void thread_of(void *given)
{
    kernel_call(values.data());
    Thread *t = static_cast<Thread *>(given);
    if (launch.check)
        settle(*t);
    self->state = State::done;
}

static void resume(Thread &t)
{
    self = &t;
    threadIdx = t.index;
    t.fiber.resume();
    self = nullptr;
}

/* Wait in a state until the scheduler makes the thread ready again. */
static void wait(State state, Pc pc)
{
    if (launch.check)
        settle(*self);
    self->state = state;
    self->pc = pc;
    self->atomics = 0;
    ik_emulation::Fiber::yield();
}

/* Barriers */

static bool release_barrier()
{
    std::vector<Thread *> waiting;
    const Thread *gone = nullptr;
    int count = 0;
    for (const auto &t : threads) {
        if (t->state == State::done) {
            gone = t.get();
            continue;
        }
        if (t->state != State::barrier)
            return false;
        waiting.push_back(t.get());
        count += t->predicate;
    }
    if (waiting.empty())
        return false;
    const Thread &first = *waiting.front();
    if (gone != nullptr)
        find(rules::barrier_exited, block_number, first.id, first.pc,
            "waits with " + std::to_string(waiting.size()) + " of " + std::to_string(launch.threads)
                + " threads; the others have returned",
            "", block_number, gone->id, nullptr, "is the last of those that have returned");
    for (const Thread *t : waiting)
        if (t->pc != first.pc)
            find_divergence(rules::barrier_divergent, first, *t, "comes to one barrier",
                "comes to another, and the two are taken for one");
    if (launch.check)
        meet_all(waiting, true);
    for (Thread *t : waiting) {
        t->state = State::ready;
        t->result = static_cast<std::uint64_t>(count);
    }
    return true;
}

/* Warps */

static std::string lanes_text(unsigned mask)
{
    std::string text;
    for (int lane = 0; lane < WARP; lane++)
        if ((mask >> lane & 1) != 0) {
            int last = lane;
            while (last + 1 < WARP && (mask >> (last + 1) & 1) != 0)
                last++;
            text += (text.empty() ? "" : ", ") + std::to_string(lane) + (last > lane ? "-" + std::to_string(last) : "");
            lane = last;
        }
    return text;
}

static Thread *lane_of(int warp, int lane)
{
    const int id = warp * WARP + lane;
    return id < launch.threads ? threads[static_cast<std::size_t>(id)].get() : nullptr;
}

/* The lane from which a lane reads by a shuffle (Programming Guide, "Warp Shuffle Functions"). */
static int source_of(const Thread &t, int lane)
{
    const int begin = lane / t.width * t.width, end = begin + t.width;
    int from = lane;
    switch (t.operation) {
    case CUDA_SHUFFLE: return begin + (t.lane & (t.width - 1));
    case CUDA_SHUFFLE_UP: from = lane - t.lane; break;
    case CUDA_SHUFFLE_DOWN: from = lane + t.lane; break;
    default: from = lane ^ t.lane; return from < end ? from : lane; /* lower segments can be read, higher ones cannot */
    }
    return from < begin || from >= end ? lane : from;
}

static std::uint64_t result_of(const Thread &t, int warp, unsigned present)
{
    const auto at = [&](int lane) { return lane_of(warp, lane); };
    const int own = t.id % WARP;
    std::uint64_t mask = 0;
    if (t.operation <= CUDA_SHUFFLE_XOR) {
        const int from = source_of(t, own);
        if ((present >> from & 1) != 0)
            return at(from)->bits;
        find(rules::lane_read, block_number, t.id, t.pc,
            "shuffles from lane " + std::to_string(from) + ", which does not take part", "");
        return t.bits;
    }
    for (int lane = 0; lane < WARP; lane++)
        if ((present >> lane & 1) != 0) {
            if (t.operation == CUDA_REDUCE)
                t.given[lane] = at(lane)->bits;
            else if (t.operation == CUDA_BALLOT ? at(lane)->bits != 0 : at(lane)->bits == t.bits)
                mask |= std::uint64_t{ 1 } << lane;
        }
    if (t.operation == CUDA_REDUCE)
        return present;
    return t.operation == CUDA_MATCH_ALL && mask != present ? 0 : mask;
}

/* Release the threads that wait in one call of a warp function; `first` is one of them. */
static bool release_lanes(int warp, const Thread &first)
{
    unsigned present = 0;
    std::vector<Thread *> those;
    for (int lane = 0; lane < WARP; lane++) {
        Thread *t = lane_of(warp, lane);
        if ((first.mask >> lane & 1) == 0 || t == nullptr || t->state == State::done)
            continue;
        if (t->state != State::warp || t->mask != first.mask || t->operation != first.operation)
            return false;
        present |= 1u << lane;
        those.push_back(t);
    }
    for (const Thread *t : those)
        if (t->pc != first.pc)
            find_divergence(rules::lane_missing, first, *t, "calls a warp function with its lane in the mask",
                "is at another call, and the two are taken for one");
    for (Thread *t : those)
        t->result = result_of(*t, warp, present);
    if (launch.check && first.operation == CUDA_SYNC_WARP)
        meet_all(those, false);
    for (Thread *t : those)
        t->state = State::ready;
    return true;
}

static bool release_warps()
{
    bool moved = false;
    for (const auto &t : threads)
        moved |= t->state == State::warp && release_lanes(t->id / WARP, *t);
    return moved;
}

/* Where no other thread gets on, the lanes at one __activemask() are those that are active. */
static bool release_active()
{
    for (const auto &first : threads)
        if (first->state == State::active) {
            unsigned mask = 0;
            for (int lane = 0; lane < WARP; lane++)
                if (Thread *t = lane_of(first->id / WARP, lane);
                    t != nullptr && t->state == State::active && t->pc == first->pc)
                    mask |= 1u << lane;
            for (int lane = 0; lane < WARP; lane++)
                if ((mask >> lane & 1) != 0) {
                    Thread *t = lane_of(first->id / WARP, lane);
                    t->result = mask;
                    t->state = State::ready;
                }
            return true;
        }
    return false;
}

/* Nothing can be released: some lanes wait for others that never come. */
static void find_deadlock()
{
    for (const auto &t : threads) {
        if (t->state != State::warp)
            continue;
        unsigned missing = 0;
        const Thread *other = nullptr;
        for (int lane = 0; lane < WARP; lane++) {
            const Thread *there = lane_of(t->id / WARP, lane);
            if ((t->mask >> lane & 1) == 0 || there == nullptr || there->state == State::done)
                continue;
            if (there->state != State::warp || there->mask != t->mask || there->operation != t->operation) {
                missing |= 1u << lane;
                other = other == nullptr ? there : other;
            }
        }
        if (other == nullptr)
            continue;
        find(rules::lane_missing, block_number, t->id, t->pc,
            "waits for ever for lanes " + lanes_text(missing) + " of its warp", "", block_number, other->id, other->pc,
            other->state == State::barrier ? "waits at a barrier"
                                           : "waits in another warp function, or with another mask");
        return;
    }
}

/* Blocks */

static void begin_block(std::int64_t number)
{
    block_number = number;
    block_index = blockIdx = index_of(number, launch.grid);
    for (const Region *r : { &fixed, &dynamic })
        if (r->bytes != 0)
            std::memset(r->begin, 0xff, r->bytes);
    for (const auto &t : threads) {
        t->state = State::ready;
        t->atomics = 0;
        t->fiber.start(thread_of, t.get());
    }
    if (launch.check)
        begin_block_checks();
}

static void run_block(std::int64_t number)
{
    begin_block(number);
    std::vector<int> order(threads.size());
    for (std::size_t i = 0; i < order.size(); i++)
        order[i] = static_cast<int>(i);
    int idle = 0; /* rounds in which threads only looked whether another one has done something */
    while (!launch.stopped) {
        if (launch.seed != 0)
            for (std::size_t i = order.size(); i > 1; i--)
                std::swap(order[i - 1], order[draws() % i]);
        bool moved = false, live = false;
        idle++;
        for (const int i : order) {
            Thread &t = *threads[static_cast<std::size_t>(i)];
            if (t.state != State::ready)
                continue;
            resume(t);
            moved = true;
            if (t.state != State::ready)
                idle = 0;
            if (launch.stopped)
                return;
        }
        moved |= release_warps();
        moved |= release_barrier();
        for (const auto &t : threads)
            live |= t->state != State::done;
        if (!live)
            break;
        if ((!moved || idle > IDLE) && !release_active() && !moved) {
            find_deadlock();
            launch.stopped = true;
            return;
        }
    }
    if (launch.check)
        end_block_checks();
}

static void run_grid(std::uint64_t seed)
{
    launch.seed = seed;
    draws.seed(seed);
    launch.stopped = false;
    const std::int64_t count = std::int64_t{ 1 } * launch.grid.x * launch.grid.y * launch.grid.z;
    std::vector<std::int64_t> order(seed == 0 ? 0 : static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < order.size(); i++)
        order[i] = static_cast<std::int64_t>(i);
    for (std::size_t i = order.size(); i > 1; i--)
        std::swap(order[i - 1], order[draws() % i]);
    if (launch.check)
        begin_launch_checks();
    for (std::int64_t b = 0; b < count && !launch.stopped; b++)
        run_block(seed == 0 ? b : order[static_cast<std::size_t>(b)]);
    if (launch.check)
        end_launch_checks();
}

/* The program */

static void refuse(const std::string &text)
{
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(2);
}

/* Memory with pages around it that cannot be accessed. */
static char *map_guarded(std::size_t bytes)
{
    const std::size_t size = (bytes + 4095) / 4096 * 4096;
    void *memory = mmap(nullptr, size + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        refuse("there is no memory for an array of " + std::to_string(bytes) + " bytes; use a smaller one");
    char *begin = static_cast<char *>(memory) + GUARD;
    if (size != 0 && mprotect(begin, size, PROT_READ | PROT_WRITE) != 0)
        refuse("there is no memory for an array of " + std::to_string(bytes) + " bytes; use a smaller one");
    return begin;
}

/* A line of the description: an argument, or memory to which arguments point. */
struct Given {
    std::string kind, text, file, type, label;
    bool initialised = false, saved = false;
    std::size_t region = 0;
    long long integer = 0;
    double real = 0;
    std::vector<char> initial;
    alignas(8) char value[8] = {};
};

/* Whether an array of NumPy's kind and size, such as f4, is what a pointer of the kernel's type points to. */
static bool fits(std::string wanted, const std::string &given)
{
    wanted.erase(0, wanted[0] == '?');
    if (wanted.empty())
        return true;
    const bool integers = std::strchr("iub", given[0]) != nullptr && std::strchr("iu", wanted[0]) != nullptr;
    const bool bits = std::strchr("hb", wanted[0]) != nullptr && std::strchr("ui", given[0]) != nullptr;
    return wanted.substr(1) == given.substr(1)
        && (wanted[0] == given[0] || integers || bits || (wanted[0] == 'h' && given[0] == 'f'));
}

static const char *spell_type(const std::string &type)
{
    static const std::unordered_map<std::string, const char *> names{ { "f4", "float32" }, { "f8", "float64" },
        { "h2", "float16" }, { "b2", "uint16 (the bits of bfloat16)" }, { "i1", "int8" }, { "u1", "uint8" },
        { "i2", "int16" }, { "u2", "uint16" }, { "i4", "int32" }, { "u4", "uint32" }, { "i8", "int64" },
        { "u8", "uint64" } };
    const auto found = names.find(type.substr(type[0] == '?' ? 1 : 0));
    return found == names.end() ? "another type" : found->second;
}

static void store_number(Given &g, const std::string &type, int number)
{
    const std::string argument = "argument " + std::to_string(number) + ", " + g.text;
    const int size = type.size() > 1 ? type[1] - '0' : 0;
    if (type[0] == '?')
        refuse(argument + "; the kernel's parameter is a structure: pointers and numbers can be given");
    if (type[0] == 'i' || type[0] == 'u') {
        const int bits = 8 * size;
        const bool narrow = bits < 64
            && (type[0] == 'u' ? g.integer >> bits != 0
                               : (g.integer >> (bits - 1) != 0 && g.integer >> (bits - 1) != -1));
        if (g.kind != "int" || narrow || (type[0] == 'u' && g.integer < 0))
            refuse(argument + "; allowed: a whole number that " + spell_type(type) + " holds");
        std::memcpy(g.value, &g.integer, static_cast<std::size_t>(size));
        return;
    }
    if (g.kind != "int" && g.kind != "real")
        refuse(argument + "; allowed: a number");
    const auto single = static_cast<float>(g.real);
    const std::uint16_t half = type[0] == 'b' ? ik_f32_to_bf16(single) : ik_f32_to_f16(single);
    if (size == 8)
        std::memcpy(g.value, &g.real, 8);
    else if (size == 4)
        std::memcpy(g.value, &single, 4);
    else
        std::memcpy(g.value, &half, 2);
}

static void store(std::vector<Given> &given, std::size_t i, const std::string &type)
{
    Given &g = given[i];
    const std::string argument = "argument " + std::to_string(i + 1) + ", " + g.text;
    if (g.kind == "record")
        return;
    if (type[0] != 'p') {
        store_number(g, type, static_cast<int>(i) + 1);
        return;
    }
    if (g.kind == "null")
        return;
    if (g.kind != "array")
        refuse(argument + "; allowed: an array, or null");
    if (!g.type.empty() && !fits(type.substr(1), g.type))
        refuse(argument + "; the kernel's parameter points to " + spell_type(type.substr(1)) + ": convert the array");
    char *const at = arrays[g.region].begin + g.integer;
    std::memcpy(g.value, &at, sizeof at);
}

static void load_array(Given &g)
{
    std::ifstream in(g.file, std::ios::binary);
    g.initial.assign(std::istreambuf_iterator<char>(in), {});
    Region r;
    r.bytes = g.initial.size();
    r.begin = map_guarded(r.bytes);
    r.name = g.label;
    r.watched = !g.initialised;
    r.saved = g.saved;
    g.region = arrays.size();
    arrays.push_back(std::move(r));
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const auto *const c = static_cast<const ucontext_t *>(context);
#if defined(__x86_64__)
    Pc pc = reinterpret_cast<Pc>(c->uc_mcontext.gregs[REG_RIP]) + 1;
#else
    Pc pc = reinterpret_cast<Pc>(c->uc_mcontext.pc) + 1;
#endif
    signal(number, SIG_DFL);
    const int thread = self == nullptr ? 0 : self->id;
    if (launch.check && self != nullptr && self->pc != nullptr)
        pc = self->pc; /* the last access that was announced */
    const char *const at = static_cast<const char *>(info->si_addr);
    const ik_emulation::Rule *rule = &rules::crash;
    std::string what = number == SIGSEGV || number == SIGBUS ? "accesses memory that is not there"
                                                             : "causes signal " + std::to_string(number);
    if (number == SIGALRM) {
        rule = &rules::endless;
        what = "still runs when the time is over";
    } else if (number == SIGFPE) {
        rule = &rules::division;
        what = "divides an integer by zero";
    } else if (self != nullptr && self->fiber.stack().in_guard(at)) {
        what = "overflows its stack of " + std::to_string(STACK >> 10) + " KiB for local variables and calls";
    } else if (number == SIGSEGV) {
        rule = &rules::wild_pointer;
        for (const Region &r : arrays)
            if (at >= r.begin - GUARD && at < r.begin + r.bytes + GUARD) {
                rule = &rules::global_bounds;
                what = "accesses offset " + std::to_string(at - r.begin) + " of " + r.name + ", which has "
                    + std::to_string(r.bytes) + " bytes";
            }
    }
    find(*rule, block_number, thread, pc, what, "");
    launch.stopped = true;
    report();
    _exit(1);
}

static void catch_signals(unsigned seconds)
{
    static char stack[64 << 10];
    stack_t own{};
    own.ss_sp = stack;
    own.ss_size = sizeof stack;
    sigaltstack(&own, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int number : { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM })
        sigaction(number, &action, nullptr);
    alarm(seconds);
}

} // namespace cuda_emulator

extern "C" int cuda_emulator_main(char **argv, const char *const *types, int count, void (*call)(void **))
{
    std::ifstream in(argv[1]);
    std::vector<Given> given, memories;
    std::uint64_t seeds = 1, shared = 0;
    unsigned limit = 60;
    for (std::string line; std::getline(in, line);) {
        std::vector<std::string> f;
        std::stringstream parts(line);
        for (std::string part; std::getline(parts, part, '\t');)
            f.push_back(part);
        const auto number = [&](std::size_t i) { return std::strtoull(f[i].c_str(), nullptr, 10); };
        const auto index = [&] {
            return Index{ static_cast<unsigned>(number(1)), static_cast<unsigned>(number(2)),
                static_cast<unsigned>(number(3)) };
        };
        if (f[0] == "grid")
            gridDim = launch.grid = index();
        else if (f[0] == "block")
            blockDim = launch.block = index();
        else if (f[0] == "shared")
            shared = number(1);
        else if (f[0] == "seeds")
            launch.first_seed = number(1), seeds = number(2);
        else if (f[0] == "check")
            launch.check = number(1) != 0;
        else if (f[0] == "limit")
            limit = static_cast<unsigned>(number(1));
        else if (f[0] == "report")
            launch.json = f.size() > 1 ? f[1] : "";
        else if (f[0] == "kernel")
            launch.kernel = f[1];
        else {
            Given g;
            g.kind = f[0];
            g.text = f[1];
            if (g.kind == "array" || g.kind == "memory") {
                g.file = f[2];
                g.type = f[3];
                g.initialised = f[4] == "1";
                g.saved = f[5] == "1";
                g.label = f[6];
                load_array(g);
            } else if (g.kind == "same") {
                const auto of = static_cast<std::size_t>(number(2));
                g.kind = "array";
                g.type = given[of].type;
                g.region = given[of].region;
            } else if (g.kind == "pointer") {
                g.kind = "array";
                g.region = static_cast<std::size_t>(number(2));
                g.integer = static_cast<long long>(number(3));
            } else if (g.kind == "record") {
                std::ifstream bytes(f[2], std::ios::binary);
                g.initial.assign(std::istreambuf_iterator<char>(bytes), {});
            } else if (g.kind != "null") {
                g.integer = std::strtoll(f[2].c_str(), nullptr, 10);
                g.real = std::strtod(f[2].c_str(), nullptr);
            }
            (g.kind == "memory" ? memories : given).push_back(std::move(g));
        }
    }
    if (static_cast<int>(given.size()) != count)
        refuse(std::to_string(given.size()) + " arguments; allowed: the kernel takes " + std::to_string(count));
    for (std::size_t i = 0; i < given.size(); i++)
        store(given, i, types[i]);
    std::vector<const Given *> files;
    for (const std::vector<Given> *list : { &given, &memories })
        for (const Given &g : *list)
            if (!g.file.empty())
                files.push_back(&g);
    for (Given &g : given)
        values.push_back(g.kind == "record" ? g.initial.data() : g.value);
    kernel_call = call;
    launch.threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
    read_symbols(argv[2]);
    dynamic.begin = cuda_emulator_dynamic = map_guarded(shared);
    dynamic.bytes = shared;
    dynamic.shared = fixed.shared = true;
    dynamic.name = "the dynamic shared memory";
    if (fixed.bytes + shared > 227 << 10)
        refuse(std::to_string(fixed.bytes + shared) + " bytes of shared memory; a block has at most 232448");
    for (int i = 0; i < launch.threads; i++) {
        threads.push_back(std::make_unique<Thread>(STACK));
        threads.back()->id = i;
        threads.back()->index = index_of(i, launch.block);
    }
    catch_signals(limit);
    for (std::uint64_t seed = launch.first_seed; seed < launch.first_seed + seeds; seed++) {
        for (const Given *g : files)
            if (!g->initial.empty())
                std::memcpy(arrays[g->region].begin, g->initial.data(), g->initial.size());
        run_grid(seed);
        std::fflush(stdout);
        if (seed == launch.first_seed && !launch.stopped)
            for (const Given *g : files)
                if (g->saved)
                    std::ofstream(g->file, std::ios::binary)
                        .write(arrays[g->region].begin, static_cast<std::streamsize>(arrays[g->region].bytes));
        if (launch.stopped)
            break;
    }
    return report();
}

/* What kernels call */

extern "C" int cuda_emulator_barrier(int predicate)
{
    self->predicate = predicate != 0;
    wait(State::barrier, static_cast<Pc>(__builtin_return_address(0)));
    return static_cast<int>(self->result);
}

extern "C" std::uint64_t cuda_emulator_meet(
    int operation, unsigned mask, std::uint64_t bits, int lane, int width, std::uint64_t *given)
{
    Thread &t = *self;
    const auto pc = static_cast<Pc>(__builtin_return_address(0));
    if ((mask >> t.id % WARP & 1) == 0) {
        find(rules::lane_outside, block_number, t.id, pc,
            "gives the mask of lanes " + lanes_text(mask) + " and is lane " + std::to_string(t.id % WARP), "");
        stop();
    }
    if (width < 1 || width > WARP || (width & (width - 1)) != 0) {
        find(rules::shuffle_width, block_number, t.id, pc, "shuffles with width " + std::to_string(width), "");
        stop();
    }
    t.operation = operation;
    t.mask = mask;
    t.bits = bits;
    t.lane = lane;
    t.width = width;
    t.given = given;
    wait(State::warp, pc);
    return t.result;
}

extern "C" unsigned cuda_emulator_active()
{
    wait(State::active, static_cast<Pc>(__builtin_return_address(0)));
    return static_cast<unsigned>(self->result);
}

extern "C" void cuda_emulator_fence(int)
{
    if (!launch.check)
        return;
    settle(*self);
    auto known = self->known == nullptr ? std::make_shared<Known>() : std::make_shared<Known>(*self->known);
    known->blocks[block_number].join(self->id, self->stamp);
    self->fenced = join(known, self->fenced);
    self->stamp = new_stamp();
}

extern "C" std::uint64_t cuda_emulator_atomic_load(const volatile void *p, int bytes)
{
    if (++self->atomics > SPIN || (launch.seed != 0 && draws() % 4 == 0))
        pass();
    self->pc = static_cast<Pc>(__builtin_return_address(0));
    if (launch.check) {
        observe(p, static_cast<std::size_t>(bytes), Act::atomic, self->pc, true);
        acquire_and_release(p);
    }
    std::uint64_t bits = 0;
    std::memcpy(&bits, const_cast<const void *>(p), static_cast<std::size_t>(bytes));
    return bits;
}

extern "C" void cuda_emulator_atomic_store(volatile void *p, int bytes, std::uint64_t bits)
{ std::memcpy(const_cast<void *>(p), &bits, static_cast<std::size_t>(bytes)); }

extern "C" std::int64_t cuda_emulator_clock() { return ++instant; }

extern "C" void cuda_emulator_trap(const char *what)
{
    find(rules::trap, block_number, self->id, static_cast<Pc>(__builtin_return_address(0)),
        std::string("ends the launch by ") + what, "");
    stop();
}
