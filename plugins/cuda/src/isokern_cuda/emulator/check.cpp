/* Loads and stores of checked kernels: bounds, contents, the order between threads, and what a warp's accesses cost.
 * gcc's -fsanitize=thread and -fsanitize=bounds call the functions at the end; their own runtimes are not linked. */
#include <cstdio>
#include <cstring>
#include <set>

#include "emulator.h"

extern "C" char __executable_start, _end; /* of the linker */

namespace cuda_emulator
{

using ik_emulation::Access;
using ik_emulation::Cell;

constexpr std::size_t NEAR = 4096; /* bytes beyond the `__shared__` variables that belong to no array */
constexpr std::size_t MAX_ACCESSES = 50000000, MAX_PENDING = 4096;

/* The accesses that cells refer to; those of shared memory are a block's. */
struct Accesses {
    std::vector<Access> all;
    std::vector<bool> raced;
    void clear()
    {
        all.assign(1, Access());
        raced.assign(1, false);
    }
};
static Accesses of_global, of_shared;
static std::vector<Pc> pcs;
static std::unordered_map<Pc, std::uint32_t> pc_numbers;
static std::uint32_t stamp;
static std::unordered_map<const volatile void *, Knowledge> published_global, published_shared;

/* A load of bytes that nobody has written yet; no finding if it turns out to be a race with the store. */
struct Pending {
    std::uint32_t id;
    bool shared;
    std::int64_t block;
    int thread;
    Pc pc;
    std::string bytes;
};
static std::vector<Pending> pending;

/* The accesses of a warp's lanes by one instruction. */
struct Request {
    std::uint32_t lanes = 0;
    std::size_t bytes = 0;
    std::array<std::uint64_t, 32> at{};
};
constexpr std::size_t MAX_EVENTS = 100000; /* of a thread between two barriers; costs of later ones are not counted */
std::unordered_map<Pc, Cost> costs;

static std::uint64_t count_distinct(std::uint64_t *values, std::size_t n)
{
    std::sort(values, values + n);
    return static_cast<std::uint64_t>(std::unique(values, values + n) - values);
}

/* The wavefronts of one request to shared memory: 128 bytes at most, and one word of each bank. */
static std::pair<std::uint64_t, std::uint64_t> wavefronts(const Request &r)
{
    const std::size_t words = r.bytes < 4 ? 1 : r.bytes / 4, lanes = 32 / words;
    std::uint64_t took = 0, needed = 0;
    for (std::size_t first = 0; first < 32; first += lanes) {
        std::array<std::vector<std::uint64_t>, 32> banks;
        bool active = false;
        for (std::size_t lane = first; lane < first + lanes; lane++)
            for (std::size_t w = 0; (r.lanes >> lane & 1) != 0 && w < words; w++) {
                const std::uint64_t word = r.at[lane] / 4 + w;
                banks[word % 32].push_back(word);
                active = true;
            }
        std::uint64_t deepest = 0;
        for (auto &bank : banks)
            deepest = std::max(deepest, count_distinct(bank.data(), bank.size()));
        took += deepest;
        needed += active;
    }
    return { took, needed };
}

/* The sectors of 32 bytes of one request to global memory, and how many would hold its bytes. */
static std::pair<std::uint64_t, std::uint64_t> sectors(const Request &r)
{
    std::array<std::uint64_t, 64> touched{}, places{};
    std::size_t n = 0, m = 0;
    for (std::size_t lane = 0; lane < 32; lane++)
        if ((r.lanes >> lane & 1) != 0) {
            places[m++] = r.at[lane];
            touched[n++] = r.at[lane] / 32;
            touched[n++] = (r.at[lane] + r.bytes - 1) / 32;
        }
    return { count_distinct(touched.data(), n), (count_distinct(places.data(), m) * r.bytes + 31) / 32 };
}

static void evaluate(Pc pc, const Request &r, bool shared, int warp)
{
    const auto [took, needed] = shared ? wavefronts(r) : sectors(r);
    Cost &cost = costs[pc];
    cost.shared = shared;
    cost.requests++;
    cost.moved += took;
    cost.needed += needed;
    if (took > cost.worst) {
        cost.worst = took;
        cost.block = block_number;
        cost.thread = 32 * warp + __builtin_ctz(r.lanes);
        cost.kernel = launch.kernel;
    }
}

static void record(Thread &t, const Event &event)
{
    if (launch.seed == launch.first_seed && t.events.size() < MAX_EVENTS)
        t.events.push_back(event);
}

/* Put the lanes' events together as a warp executes them: of the lanes, those at the lowest address go on, so lanes
 * that have left a loop or a branch early wait behind it. */
static void evaluate_warp(int warp, const std::vector<Thread *> &lanes)
{
    std::array<std::size_t, 32> next{};
    while (true) {
        Pc lowest = nullptr;
        for (std::size_t lane = 0; lane < lanes.size(); lane++)
            if (const auto &events = lanes[lane]->events; next[lane] < events.size())
                lowest = lowest == nullptr ? events[next[lane]].pc : std::min(lowest, events[next[lane]].pc);
        if (lowest == nullptr)
            return;
        Request r;
        bool shared = false;
        for (std::size_t lane = 0; lane < lanes.size(); lane++)
            if (const auto &events = lanes[lane]->events;
                next[lane] < events.size() && events[next[lane]].pc == lowest) {
                const Event &event = events[next[lane]++];
                r.lanes |= 1u << lane;
                r.bytes = event.bytes;
                r.at[lane] = event.at;
                shared = event.shared;
            }
        if (r.bytes != 0)
            evaluate(lowest, r, shared, warp);
    }
}

static void evaluate_all()
{
    for (std::size_t first = 0; first < threads.size(); first += 32) {
        std::vector<Thread *> lanes;
        for (std::size_t i = first; i < std::min(first + 32, threads.size()); i++)
            lanes.push_back(threads[i].get());
        evaluate_warp(static_cast<int>(first / 32), lanes);
        for (Thread *t : lanes)
            t->events.clear();
    }
}

/* Text */

static std::string plural(std::size_t n, const char *what)
{ return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s"); }

/* The array at an offset of the shared memory, or else the one that ends before it. */
static const SharedArray *shared_at(std::size_t offset, bool gaps)
{
    const SharedArray *found = nullptr;
    for (const SharedArray &a : shared_arrays)
        if (a.offset <= offset && (gaps || (!a.is_gap() && !a.is_guard()))
            && (found == nullptr || a.offset >= found->offset))
            found = &a;
    return found;
}

static std::string describe(const Region &r, const char *at, std::size_t bytes)
{
    const std::string n = plural(bytes, "byte");
    const long long offset = at - r.begin;
    if (&r != &fixed)
        return n + " at offset " + std::to_string(offset) + " of " + r.name + ", which has " + std::to_string(r.bytes)
            + " bytes";
    const SharedArray *a = offset < 0 ? nullptr : shared_at(static_cast<std::size_t>(offset), false);
    if (a == nullptr)
        return n + " of shared memory, in front of its arrays";
    return n + " of shared memory, " + a->name + " + " + std::to_string(offset - static_cast<long long>(a->offset))
        + ", which has " + std::to_string(a->bytes) + " bytes";
}

static const char *spell(Act act)
{
    switch (act) {
    case Act::load:
    case Act::volatile_load: return "loads";
    case Act::store:
    case Act::volatile_store: return "stores";
    case Act::atomic: break;
    }
    return "operates atomically on";
}

static bool is_store(Act act) { return act == Act::store || act == Act::atomic || act == Act::volatile_store; }
static bool is_load(Act act) { return act == Act::load || act == Act::atomic || act == Act::volatile_load; }

/* Order */

std::uint32_t new_stamp() { return ++stamp; }

void meet_all(const std::vector<Thread *> &those, bool whole_block)
{
    const auto known = std::make_shared<Known>(), fenced = std::make_shared<Known>();
    std::set<const Known *> joined;
    for (const Thread *t : those) {
        if (t->known != nullptr && joined.insert(t->known.get()).second)
            known->join(*t->known);
        if (t->fenced != nullptr && joined.insert(t->fenced.get()).second)
            fenced->join(*t->fenced);
    }
    KnownBlock &own = known->blocks[block_number];
    if (whole_block)
        own = { stamp, {} };
    else
        for (const Thread *t : those)
            own.join(t->id, t->stamp);
    new_stamp();
    for (Thread *t : those) {
        t->known = known;
        t->fenced = fenced;
        t->stamp = stamp;
    }
    if (whole_block)
        evaluate_all();
}

static bool in_shared(const volatile void *p)
{
    for (const Region *r : { &fixed, &dynamic })
        if (r->bytes != 0 && p >= r->begin && p < r->begin + r->bytes)
            return true;
    return false;
}

void acquire_and_release(const volatile void *p)
{
    Knowledge &there = (in_shared(p) ? published_shared : published_global)[p];
    self->known = join(self->known, there);
    there = join(there, self->fenced);
}

static std::uint32_t access_of(Thread &t, Pc pc, Act act, bool shared)
{
    auto &slot = t.recent[reinterpret_cast<std::uintptr_t>(pc) / 2 % t.recent.size()];
    if (slot.pc == pc && slot.stamp == t.stamp && slot.write == is_store(act) && slot.shared == shared)
        return slot.id;
    Accesses &table = shared ? of_shared : of_global;
    if (table.all.size() >= MAX_ACCESSES) {
        find(rules::no_order, block_number, t.id, pc, "is where the watching of races ends", "");
        return 0;
    }
    const auto [number, added] = pc_numbers.try_emplace(pc, static_cast<std::uint32_t>(pcs.size()));
    if (added)
        pcs.push_back(pc);
    const bool atomic = act == Act::atomic || (!shared && (act == Act::volatile_load || act == Act::volatile_store));
    slot = { pc, t.stamp, static_cast<std::uint32_t>(table.all.size()), is_store(act), shared };
    table.all.push_back({ static_cast<int>(block_number), t.id, t.stamp, 0, is_store(act), atomic, number->second });
    table.raced.push_back(false);
    return slot.id;
}

static const char *spell(const Access &a)
{ return a.atomic && a.write ? "operates atomically" : a.write ? "stores" : "loads"; }

static void find_race(const Region &r, std::uint32_t mine_id, std::uint32_t theirs_id, const char *at)
{
    const Accesses &table = r.shared ? of_shared : of_global;
    const Access &mine = table.all[mine_id], &theirs = table.all[theirs_id];
    find(r.shared ? rules::race_shared : rules::race_global, mine.group, mine.member, pcs[mine.origin], spell(mine),
        describe(r, at, 1), theirs.group, theirs.member, pcs[theirs.origin],
        std::string(spell(theirs)) + (theirs.write ? " there" : " what is written here"));
}

/* The array or shared memory that an address is in, or in front of or behind. */
static Region *region_of(const char *at)
{
    const auto is_near = [&](const Region &r, std::size_t distance) {
        return r.begin != nullptr && at >= r.begin - distance && at < r.begin + r.bytes + distance;
    };
    if (is_near(fixed, NEAR))
        return &fixed;
    if (is_near(dynamic, guard))
        return &dynamic;
    for (Region &r : arrays)
        if (is_near(r, guard))
            return &r;
    return nullptr;
}

void settle(Thread &t)
{
    for (const Suspicion &s : t.suspicions)
        if (std::memcmp(s.at, s.before.data(), s.bytes) != 0)
            find_race(*region_of(s.at), s.mine, s.theirs, s.at);
    t.suspicions.clear();
}

static void judge(Thread &t, Region &r, std::uint32_t mine_id, std::uint32_t theirs_id, char *at, std::size_t bytes)
{
    Accesses &table = r.shared ? of_shared : of_global;
    const Access &mine = table.all[mine_id], &theirs = table.all[theirs_id];
    if ((theirs.group == mine.group && theirs.member == mine.member) || (mine.atomic && theirs.atomic))
        return;
    if (t.known != nullptr && t.known->knows(theirs.group, theirs.member, theirs.time))
        return;
    table.raced[mine_id] = table.raced[theirs_id] = true;
    if (mine.write && theirs.write && !mine.atomic && !theirs.atomic && bytes <= sizeof Suspicion::before) {
        Suspicion s{ at, bytes, {}, mine_id, theirs_id };
        std::memcpy(s.before.data(), at, bytes);
        if (t.suspicions.empty() || t.suspicions.back().mine != mine_id)
            t.suspicions.push_back(s);
        return;
    }
    find_race(r, mine_id, theirs_id, at);
}

/* Judge an access by those before it; returns its number. */
static std::uint32_t order(Thread &t, Region &r, char *at, std::size_t bytes, Act act, Pc pc)
{
    const std::uint32_t id = access_of(t, pc, act, r.shared);
    if (id == 0)
        return 0;
    const std::vector<Access> &all = (r.shared ? of_shared : of_global).all;
    const Access mine = all[id];
    Cell last, next;
    bool known = false;
    r.cells.each(static_cast<std::size_t>(at - r.begin), bytes, [&](Cell &cell, std::size_t offset) {
        if (known && cell == last) {
            cell = next;
            return;
        }
        last = cell;
        char *const byte = r.begin + offset;
        const std::size_t whole = byte == at ? bytes : 1;
        if (cell.write != 0)
            judge(t, r, id, cell.write, byte, whole);
        if (mine.write) {
            if (cell.read != 0)
                judge(t, r, id, cell.read, byte, SIZE_MAX);
            if (cell.read_before != 0)
                judge(t, r, id, cell.read_before, byte, SIZE_MAX);
            cell = { id, 0, 0 };
        } else if (cell.read != 0 && all[cell.read].group == mine.group && all[cell.read].member == mine.member) {
            cell.read = id;
        } else {
            cell.read_before = cell.read;
            cell.read = id;
        }
        next = cell;
        known = true;
    });
    return id;
}

/* Launches and blocks */

void begin_launch_checks()
{
    of_global.clear();
    published_global.clear();
    stamp = 1;
    pending.clear();
    for (Region &r : arrays) {
        r.cells.clear();
    }
}

/* The contents of memory that is not initialised are unspecified again. */
void forget_contents()
{
    for (Region &r : arrays)
        if (r.watched)
            r.written.assign(r.bytes, 0);
}

void begin_block_checks()
{
    of_shared.clear();
    published_shared.clear();
    for (Region *r : { &fixed, &dynamic }) {
        r->cells.clear();
        r->written.assign(r->bytes, 0);
    }
    new_stamp();
    for (const auto &t : threads) {
        t->known = t->fenced = nullptr;
        t->stamp = stamp;
        t->depth = 0;
        t->watched.clear();
        t->suspicions.clear();
        t->events.clear();
        t->recent.fill({});
    }
}

static void find_pending(bool shared)
{
    std::vector<Pending> others;
    for (Pending &p : pending)
        if (p.shared != shared)
            others.push_back(std::move(p));
        else if (!(shared ? of_shared : of_global).raced[p.id])
            find(rules::uninitialised, p.block, p.thread, p.pc, "loads", p.bytes);
    pending.swap(others);
}

void end_block_checks()
{
    evaluate_all();
    find_pending(true);
}

void end_launch_checks()
{
    find_pending(true);
    find_pending(false);
    for (const Region &r : arrays)
        if (r.watched && r.saved && !launch.stopped) {
            const auto missing = static_cast<std::size_t>(std::count(r.written.begin(), r.written.end(), 0));
            const auto first = std::find(r.written.begin(), r.written.end(), 0) - r.written.begin();
            if (missing != 0)
                find(rules::unwritten, -1, 0, nullptr,
                    plural(missing, "byte") + " of " + r.name + ", which has " + std::to_string(r.bytes)
                        + ", were not written, the first at offset " + std::to_string(first),
                    "");
        }
}

/* Local memory */

static void observe_local(Thread &t, const char *at, std::size_t bytes, Act act, Pc pc)
{
    for (Watched &w : t.watched) {
        if (at < w.begin || at >= w.begin + w.written.size())
            continue;
        const auto offset = static_cast<std::size_t>(at - w.begin);
        const auto begin = w.written.begin() + static_cast<std::ptrdiff_t>(offset);
        const auto end = begin + static_cast<std::ptrdiff_t>(std::min(bytes, w.written.size() - offset));
        const std::ptrdiff_t missing = is_load(act) ? std::count(begin, end, 0) : 0;
        if (missing != 0)
            find(rules::uninitialised, block_number, t.id, pc, "loads",
                plural(static_cast<std::size_t>(missing), "byte") + " that nobody wrote, at offset "
                    + std::to_string(offset) + " of the local " + w.name);
        std::fill(begin, end, 1);
        return;
    }
}

/* An address that is in no array: the program's own variables and constants are allowed. */
static void observe_elsewhere(const Thread &t, const char *at, std::size_t bytes, Act act, Pc pc)
{
    if (at >= &__executable_start && at < &_end)
        return;
    const char *const given = static_cast<const char *>(kernel_given);
    if (at >= given && at < given + kernel_given_bytes)
        return;
    char text[64];
    std::snprintf(text, sizeof text, "%zu byte%s at address %#zx", bytes, bytes == 1 ? "" : "s",
        reinterpret_cast<std::size_t>(at));
    for (const auto &other : threads)
        if (at >= other->fiber.stack().low() && at < other->fiber.stack().high()) {
            find(rules::local_private, block_number, t.id, pc, spell(act), text, block_number, other->id, nullptr,
                "owns that memory");
            stop();
        }
    const std::string was = describe_freed(at);
    find(rules::wild_pointer, block_number, t.id, pc, was.empty() ? spell(act) : was, text);
    stop();
}

void observe(const volatile void *p, std::size_t bytes, Act act, Pc pc, bool aligned)
{
    Thread &t = *self;
    char *const at = static_cast<char *>(const_cast<void *>(p));
    t.pc = pc;
    if (!t.suspicions.empty())
        settle(t);
    const ik_emulation::Stack &stack = t.fiber.stack();
    if (at >= stack.low() && at < stack.high()) {
        observe_local(t, at, bytes, act, pc);
        return;
    }
    Region *const r = region_of(at);
    const bool shared = r == &fixed || r == &dynamic;
    if (r == nullptr) {
        observe_elsewhere(t, at, bytes, act, pc);
        return;
    }
    const auto offset = static_cast<std::size_t>(at - r->begin);
    bool within = at >= r->begin && offset + bytes <= r->bytes;
    if (r == &fixed) {
        const SharedArray *a = shared_at(offset, true);
        if (a != nullptr && a->is_guard())
            return;
        within = a != nullptr && !a->is_gap() && at >= r->begin && offset + bytes <= a->offset + a->bytes;
    }
    if (!within) {
        find(shared ? rules::shared_bounds : rules::global_bounds, block_number, t.id, pc, spell(act),
            describe(*r, at, bytes));
        stop();
    }
    if (aligned && reinterpret_cast<std::uintptr_t>(at) % bytes != 0) {
        find(rules::misaligned, block_number, t.id, pc, spell(act), describe(*r, at, bytes));
        stop();
    }
    if (!shared)
        (is_store(act) ? launch.stored : launch.loaded) += bytes;
    const std::uint32_t id = order(t, *r, at, bytes, act, pc);
    if (!r->written.empty()) {
        const auto begin = r->written.begin() + static_cast<std::ptrdiff_t>(offset);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        const std::ptrdiff_t missing = is_load(act) ? std::count(begin, end, 0) : 0;
        if (missing != 0 && id != 0 && pending.size() < MAX_PENDING)
            pending.push_back({ id, shared, block_number, t.id, pc,
                plural(static_cast<std::size_t>(missing), "byte") + " that nobody wrote: " + describe(*r, at, bytes) });
        if (is_store(act))
            std::fill(begin, end, 1);
    }
    if (act != Act::atomic && (bytes & (bytes - 1)) == 0 && bytes <= 16)
        record(t, { pc, reinterpret_cast<std::uint64_t>(at), static_cast<std::uint8_t>(bytes), shared });
}

} // namespace cuda_emulator

using namespace cuda_emulator;

static void observe_volatile(void *p, std::size_t bytes, bool write, Pc pc)
{
    if (self == nullptr || !launch.check)
        return;
    if (!write && ++self->atomics > SPIN)
        pass();
    observe(p, bytes, write ? Act::volatile_store : Act::volatile_load, pc, true);
    if (const Region *r = region_of(static_cast<const char *>(p)); r != nullptr && !r->shared)
        acquire_and_release(p);
}

static inline void observe_plain(const void *p, std::size_t bytes, Act act, void *pc, bool aligned)
{
    if (self != nullptr && launch.check && bytes != 0)
        observe(p, bytes, act, static_cast<Pc>(pc), aligned);
}

#define HERE __builtin_return_address(0)
extern "C" {

/* The function names are those that gcc calls. */
#define ACCESS(bytes) \
    void __tsan_read##bytes(void *p) { observe_plain(p, bytes, Act::load, HERE, true); } \
    void __tsan_write##bytes(void *p) { observe_plain(p, bytes, Act::store, HERE, true); } \
    void __tsan_unaligned_read##bytes(void *p) { observe_plain(p, bytes, Act::load, HERE, false); } \
    void __tsan_unaligned_write##bytes(void *p) { observe_plain(p, bytes, Act::store, HERE, false); } \
    void __tsan_volatile_read##bytes(void *p) { observe_volatile(p, bytes, false, static_cast<Pc>(HERE)); } \
    void __tsan_volatile_write##bytes(void *p) { observe_volatile(p, bytes, true, static_cast<Pc>(HERE)); } \
    void __tsan_unaligned_volatile_read##bytes(void *p) { observe_volatile(p, bytes, false, static_cast<Pc>(HERE)); } \
    void __tsan_unaligned_volatile_write##bytes(void *p) { observe_volatile(p, bytes, true, static_cast<Pc>(HERE)); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void *p, std::size_t bytes) { observe_plain(p, bytes, Act::load, HERE, false); }
void __tsan_write_range(void *p, std::size_t bytes) { observe_plain(p, bytes, Act::store, HERE, false); }
void __tsan_init() {}
void __tsan_vptr_update(void **, void *) {} /* of classes with virtual functions */
void __tsan_vptr_read(void **) {}

/* The processor's atomics, which the host's part of a program uses. */
#define ATOMICS(bits) \
    using Word##bits = std::uint##bits##_t; \
    Word##bits __tsan_atomic##bits##_load(const volatile Word##bits *p, int) { return __atomic_load_n(p, SEQ); } \
    void __tsan_atomic##bits##_store(volatile Word##bits *p, Word##bits v, int) { __atomic_store_n(p, v, SEQ); } \
    ATOMIC(bits, exchange, __atomic_exchange_n) \
    ATOMIC(bits, fetch_add, __atomic_fetch_add) \
    ATOMIC(bits, fetch_sub, __atomic_fetch_sub) \
    ATOMIC(bits, fetch_and, __atomic_fetch_and) \
    ATOMIC(bits, fetch_or, __atomic_fetch_or) \
    ATOMIC(bits, fetch_xor, __atomic_fetch_xor) \
    COMPARE(bits, strong) \
    COMPARE(bits, weak)
#define ATOMIC(bits, name, function) \
    Word##bits __tsan_atomic##bits##_##name(volatile Word##bits *p, Word##bits v, int) { return function(p, v, SEQ); }
#define COMPARE(bits, name) \
    int __tsan_atomic##bits##_compare_exchange_##name( \
        volatile Word##bits *p, Word##bits *expected, Word##bits v, int, int) \
    { return __atomic_compare_exchange_n(p, expected, v, false, SEQ, SEQ); }
constexpr int SEQ = __ATOMIC_SEQ_CST;
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(SEQ); }
void __tsan_atomic_signal_fence(int) {}

void __sanitizer_cov_trace_pc()
{
    if (self != nullptr && launch.check)
        record(*self, { static_cast<Pc>(HERE), 0, 0, false });
}

void __tsan_func_entry(void *)
{
    if (self != nullptr)
        self->depth++;
}

void __tsan_func_exit()
{
    if (self == nullptr)
        return;
    self->depth--;
    while (!self->watched.empty() && self->watched.back().depth > self->depth)
        self->watched.pop_back();
}

void cuda_emulator_watch(const volatile void *variable, std::uint64_t bytes, const char *name)
{
    if (self == nullptr || !launch.check)
        return;
    for (Watched &w : self->watched)
        if (w.begin == variable) {
            w.written.assign(bytes, 0);
            w.name = name;
            return;
        }
    self->watched.push_back(
        { static_cast<char *>(const_cast<void *>(variable)), std::vector<std::uint8_t>(bytes), name, self->depth });
}

void *cuda_emulator_memcpy(void *to, const void *from, std::size_t bytes)
{
    observe_plain(from, bytes, Act::load, HERE, false);
    observe_plain(to, bytes, Act::store, HERE, false);
    return std::memmove(to, from, bytes);
}

void *cuda_emulator_memset(void *to, int value, std::size_t bytes)
{
    observe_plain(to, bytes, Act::store, HERE, false);
    return std::memset(to, value, bytes);
}

/* What -fsanitize=bounds passes (gcc's libsanitizer, ubsan_handlers.h). */
struct Type {
    std::uint16_t kind, info;
    char name[1];
};
struct OutOfBounds {
    const char *file;
    std::uint32_t line, column;
    const Type *array, *index;
};

void __ubsan_handle_out_of_bounds(const OutOfBounds *data, std::uintptr_t index)
{
    if (self == nullptr)
        return;
    const int bits = 1 << (data->index->info >> 1);
    const bool negative = (data->index->info & 1) != 0;
    const auto value = static_cast<long long>(index << (64 - bits)) >> (64 - bits);
    find(rules::array_bounds, block_number, self->id, static_cast<Pc>(HERE),
        "indexes with " + (negative ? std::to_string(value) : std::to_string(index)),
        "an array of the type " + std::string(data->array->name));
    stop();
}

void __ubsan_handle_divrem_overflow(const void *, std::uintptr_t, std::uintptr_t)
{
    if (self == nullptr)
        return;
    find(rules::division, block_number, self->id, static_cast<Pc>(HERE), "divides an integer by zero", "");
    stop();
}
}
