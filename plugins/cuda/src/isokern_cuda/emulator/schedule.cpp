/* Running a launch: the threads of a block as fibers, what they wait for, and the functions that kernels call. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator.h"

namespace cuda_emulator
{

constexpr int WARP = 32;
constexpr int IDLE = 100; /* rounds of nothing but waiting loops, after which those at __activemask() go on */
constexpr std::int64_t MAX_SHUFFLED = std::int64_t{ 1 } << 24; /* blocks; those of a larger grid run in order */

Launch launch;
std::vector<std::unique_ptr<Thread>> threads;
Thread *self;
std::int64_t block_number;
std::vector<Region> arrays;
Region fixed, dynamic;
static std::mt19937_64 draws;
std::size_t guard = LAUNCH_GUARD;
void (*kernel_call)(void *);
void *kernel_given;
std::size_t kernel_given_bytes;
static std::vector<std::unique_ptr<Thread>> spare;
static std::int64_t instant;

} // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" {
Index threadIdx, blockIdx, blockDim, gridDim;
char *cuda_emulator_dynamic;
[[noreturn]] void cuda_emulator_trap(const char *what);
}

namespace cuda_emulator
{

Index index_of(std::int64_t number, const Index &size)
{
    const auto n = static_cast<std::uint64_t>(number);
    return { static_cast<unsigned>(n % size.x), static_cast<unsigned>(n / size.x % size.y),
        static_cast<unsigned>(n / size.x / size.y) };
}

static std::string spell(const Index &i)
{ return '(' + std::to_string(i.x) + ',' + std::to_string(i.y) + ',' + std::to_string(i.z) + ')'; }

std::string place_of(std::int64_t block, int thread, const Index &grid, const Index &block_size)
{ return "block " + spell(index_of(block, grid)) + " thread " + spell(index_of(thread, block_size)); }

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
    kernel_call(kernel_given);
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

static bool started; /* a block of the launch; shared memory has been filled then */

static void begin_block(std::int64_t number)
{
    block_number = number;
    blockIdx = index_of(number, launch.grid);
    /* Without checks, a later block finds what the one before has left, as on a GPU */
    for (const Region *r : { &fixed, &dynamic })
        if (r->bytes != 0 && (launch.check || !started))
            std::memset(r->begin, 0xff, r->bytes);
    started = true;
    for (const auto &t : threads) {
        t->state = State::ready;
        t->atomics = 0;
        t->copies.clear();
        t->groups = 0;
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

/* Have as many threads as a block has; those that are not needed are kept with their stacks. */
void set_threads(int count)
{
    launch.threads = count;
    while (threads.size() > static_cast<std::size_t>(count)) {
        spare.push_back(std::move(threads.back()));
        threads.pop_back();
    }
    while (threads.size() < static_cast<std::size_t>(count)) {
        if (spare.empty()) {
            threads.push_back(std::make_unique<Thread>(STACK));
        } else {
            threads.push_back(std::move(spare.back()));
            spare.pop_back();
        }
    }
    for (int i = 0; i < count; i++) {
        threads[static_cast<std::size_t>(i)]->id = i;
        threads[static_cast<std::size_t>(i)]->index = index_of(i, launch.block);
    }
}

void run_grid(std::uint64_t seed)
{
    started = false;
    launch.seed = seed;
    draws.seed(seed);
    launch.stopped = false;
    const std::int64_t count = std::int64_t{ 1 } * launch.grid.x * launch.grid.y * launch.grid.z;
    std::vector<std::int64_t> order(seed == 0 || count > MAX_SHUFFLED ? 0 : static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < order.size(); i++)
        order[i] = static_cast<std::int64_t>(i);
    for (std::size_t i = order.size(); i > 1; i--)
        std::swap(order[i - 1], order[draws() % i]);
    if (launch.check)
        begin_launch_checks();
    for (std::int64_t b = 0; b < count && !launch.stopped; b++)
        run_block(order.empty() ? b : order[static_cast<std::size_t>(b)]);
    if (launch.check)
        end_launch_checks();
}

} // namespace cuda_emulator

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

/* Asynchronous copies are done as late as allowed, at the wait for their group, and with an odd seed at once: so a
 * kernel that does not wait finds the old content, and one that still needs the old content does not find it. */
static void do_copy(const AsyncCopy &c)
{
    if (launch.check) {
        if (c.given != 0)
            observe(c.from, c.given, Act::load, c.pc, c.given == c.bytes);
        observe(c.to, c.bytes, Act::store, c.pc, true);
    }
    std::memset(c.to, 0, c.bytes);
    std::memcpy(c.to, c.from, c.given);
}

extern "C" void cuda_emulator_copy_async(void *to, const void *from, int bytes, int given)
{
    const AsyncCopy c{ static_cast<char *>(to), static_cast<const char *>(from), static_cast<std::size_t>(bytes),
        static_cast<std::size_t>(given), self->groups, static_cast<Pc>(__builtin_return_address(0)) };
    if (launch.seed % 2 != 0)
        do_copy(c);
    else
        self->copies.push_back(c);
}

extern "C" void cuda_emulator_commit_copies() { self->groups++; }

extern "C" void cuda_emulator_wait_copies(int pending)
{
    std::size_t done = 0;
    for (; done < self->copies.size() && self->copies[done].group < self->groups - pending; done++)
        do_copy(self->copies[done]);
    self->copies.erase(self->copies.begin(), self->copies.begin() + static_cast<std::ptrdiff_t>(done));
}

[[noreturn]] static void end_by(const char *what, Pc pc)
{
    if (self == nullptr) {
        std::fprintf(stderr, "the host ends the program by %s\n", what);
        std::abort();
    }
    find(rules::trap, block_number, self->id, pc, std::string("ends the launch by ") + what, "");
    stop();
}

/* Addresses of shared memory have 32 bits: an offset behind a number that says which memory it is. */
constexpr unsigned FIXED_BASE = 1u << 24, DYNAMIC_BASE = 2u << 24;

extern "C" unsigned cuda_emulator_shared_address(const void *p)
{
    const char *const at = static_cast<const char *>(p);
    if (at >= dynamic.begin && at <= dynamic.begin + MAX_SHARED)
        return DYNAMIC_BASE + static_cast<unsigned>(at - dynamic.begin);
    if (fixed.begin == nullptr || at < fixed.begin || at > fixed.begin + fixed.bytes)
        end_by("the conversion of an address that is not one of shared memory",
            static_cast<Pc>(__builtin_return_address(0)));
    return FIXED_BASE + static_cast<unsigned>(at - fixed.begin);
}

extern "C" int cuda_emulator_is_shared(const void *p)
{
    const char *const at = static_cast<const char *>(p);
    return (at >= dynamic.begin && at < dynamic.begin + MAX_SHARED)
        || (fixed.begin != nullptr && at >= fixed.begin && at < fixed.begin + fixed.bytes);
}

extern "C" void *cuda_emulator_shared_pointer(unsigned address)
{
    if (address >= DYNAMIC_BASE)
        return dynamic.begin + (address - DYNAMIC_BASE);
    return fixed.begin + (static_cast<std::ptrdiff_t>(address) - static_cast<std::ptrdiff_t>(FIXED_BASE));
}

extern "C" std::int64_t cuda_emulator_clock() { return ++instant; }

extern "C" void cuda_emulator_trap(const char *what) { end_by(what, static_cast<Pc>(__builtin_return_address(0))); }
