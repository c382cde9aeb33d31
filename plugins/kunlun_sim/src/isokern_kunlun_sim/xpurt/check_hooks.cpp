/* Loads and stores of checked kernels: the functions that gcc's -fsanitize=thread calls at each of them (gcc's own
 * runtime is not linked). */
#include "check_state.h"

#include <algorithm>

namespace xpurt::check
{

static constexpr std::uint8_t USABLE = WRITTEN | VECTOR | TARGET; /* a load requires only the first */

/* Count bytes of shared memory that the cluster uses from now on. */
static void count_sm(Core &c, const Site &site, std::uint64_t bytes, const std::string &what)
{
    state.sm_used += bytes;
    if (state.sm_used <= state.model.sm || state.sm_reported)
        return;
    state.sm_reported = true;
    report(rules::sm_overflow, c, site, what,
        "the shared arrays in use are " + std::to_string(state.sm_used) + " bytes, a cluster has "
            + std::to_string(state.model.sm));
}

bool use_sm(Core &c, const Site &site, std::size_t offset, std::size_t bytes, const std::string &what)
{
    const auto stray = [&](const char *whose) {
        report(rules::sm_bounds, c, site, what,
            describe(c, { Kind::shared, offset, nullptr, -1 }, state.sm + offset, bytes) + whose);
        return false;
    };
    if (!in_segment(offset, bytes))
        return stray("");
    if (const auto next = state.groups_own.upper_bound(offset); next != state.groups_own.begin()) {
        const auto &[start, object] = *std::prev(next);
        if (offset < start + object.bytes) {
            if (object.group != c.id / width_of_groups(state.launch->cores))
                return stray(", which is another group's");
            return offset + bytes <= start + object.bytes || stray("");
        }
    }
    if (!state.library->has_names())
        return true;
    Shared *s = state.library->shared(offset);
    if (s == nullptr || offset + bytes > s->offset + s->bytes || s->of_groups())
        return stray("");
    if (s->used == state.serial)
        return true;
    s->used = state.serial;
    count_sm(c, site, (s->bytes + 63) / 64 * 64, what);
    return true;
}

void use_lock(Core &c, const Site &site)
{
    if (state.sm_has_lock || state.model.name != "KUNLUN3")
        return;
    state.sm_has_lock = true;
    count_sm(c, site, 64, "takes the lock of the cluster");
}

/* Judge an access outside the core's own local memory, or one that the fast path cannot handle. */
static void judge_outside(Core &c, const Where &w, char *at, std::size_t bytes, bool write, const Site &site, Act act,
    bool moves, const char *what)
{
    switch (w.kind) {
    case Kind::local: /* below the watched window */
        reach(c, at);
        over_budget(c, site);
        return;
    case Kind::parameters:
        if (write && at + bytes > c.arguments_end)
            report(rules::lm_bounds, c, site, what, describe(c, w, at, bytes));
        return;
    case Kind::constant: return;
    case Kind::shared: {
        if (!use_sm(c, site, w.offset, bytes, what))
            return;
        const bool ordered = touch(c, w, at, bytes,
            access(c, site, act, write,
                write && act != Act::atomic ? (of_group(w.offset) ? XPUSIM_LM | XPUSIM_SM : XPUSIM_SM) : 0));
        std::uint8_t *s = state.sm_written.data() + w.offset;
        if (ordered && (!write || act == Act::atomic) && act != Act::vector) {
            const std::size_t missing = count_unwritten(at, bytes, [&](std::size_t i) { return s[i] != 0; });
            if (missing != 0 && moves)
                note_move(c, w, at, bytes);
            else if (missing != 0)
                report(rules::uninitialised, c, site, what,
                    plural(missing, "byte") + " that nobody wrote: " + describe(c, w, at, bytes));
        }
        if (write || (act != Act::vector && !moves))
            std::memset(s, 1, bytes);
        return;
    }
    case Kind::global: {
        const Allocation &a = *w.allocation;
        if (act == Act::scalar) {
            (write ? c.counts.gm_stores : c.counts.gm_loads)++;
            if (state.model.name == "KUNLUN2")
                report(rules::gm_scalar, c, site, what, describe(c, w, at, bytes));
            if (std::find(c.as_local.begin(), c.as_local.end(), &a) != c.as_local.end())
                report(rules::global_dereference, c, site, what, describe(c, w, at, bytes));
        }
        if (a.freed)
            report(rules::gm_freed, c, site, what, describe(c, w, at, bytes));
        else if (a.device != state.launch->device)
            report(rules::other_device, c, site, what,
                describe(c, w, at, bytes) + " on device " + std::to_string(a.device));
        else if (w.offset >= a.bytes || bytes > a.bytes - w.offset)
            report(rules::gm_bounds, c, site, what, describe(c, w, at, bytes));
        else if (a.shadow != nullptr) {
            const bool ordered =
                touch(c, w, at, bytes, access(c, site, act, write, write && act != Act::atomic ? XPUSIM_GM : 0));
            std::uint8_t *s = a.shadow->written + w.offset;
            if (ordered && (!write || act == Act::atomic) && !moves) {
                const std::size_t missing = count_unwritten(at, bytes, [&](std::size_t i) { return s[i] == 1; });
                if (missing != 0)
                    report(rules::uninitialised, c, site, what,
                        plural(missing, "byte") + " that nobody wrote: " + describe(c, w, at, bytes)
                            + describe_blank(*a.shadow, w.offset, w.offset + bytes));
            }
            if (write || !moves)
                std::memset(s, 1, bytes);
        }
        return;
    }
    case Kind::others_local: report(rules::lm_private, c, site, what, describe(c, w, at, bytes)); return;
    case Kind::variable: report(rules::global_variable, c, site, what, describe(c, w, at, bytes)); return;
    case Kind::host:
        report(
            memory().in_range(at) ? rules::gm_bounds : rules::host_pointer, c, site, what, describe(c, w, at, bytes));
        return;
    }
}

/* Whether a store there would destroy what the emulator needs to go on. */
static bool is_foreign(const Core &c, const Where &w, const char *at, std::size_t bytes)
{
    switch (w.kind) {
    case Kind::parameters: return at + bytes > c.arguments_end;
    case Kind::shared: return !in_segment(w.offset, bytes);
    case Kind::others_local: return true;
    case Kind::host: return !memory().in_range(at);
    default: return false;
    }
}

static bool judge_and_ask(Core &c, char *at, std::size_t bytes, bool write, const Site &site, Act act, bool moves)
{
    const char *what = act == Act::vector ? (write ? "stores a vector" : "loads a vector")
        : act == Act::atomic              ? "operates atomically"
        : write                           ? "stores"
                                          : "loads";
    const bool beyond = report_beyond(c, at, bytes, what);
    const Where w = where(c, at);
    if (!beyond)
        judge_outside(c, w, at, bytes, write, site, act, moves, what);
    return write && is_foreign(c, w, at, bytes);
}

void outside(Core &c, char *at, std::size_t bytes, bool write, const Site &site, Act act, bool moves)
{
    if (c.depth == 0 && act == Act::scalar)
        return; /* the launch unpacks the parameters */
    const At runtime(IN_RUNTIME);
    if (judge_and_ask(c, at, bytes, write, site, act, moves))
        wreck(site, "a store to memory that is not the kernel's");
}

void atomic(Core &c, char *at, std::size_t bytes, const Site &site)
{
    const At runtime(IN_RUNTIME);
    c.counts.atomics++;
    const auto [found, first] = state.atomics.try_emplace(at);
    ik_emulation::Knowledge &there = found->second.known;
    if (first)
        there.group = c.knowledge.group;
    /* Before the join: a plain access to the word is ordered with this operation only by something else, because
     * nothing keeps this operation from coming first. */
    if (at != nullptr)
        outside(c, at, bytes, true, site, Act::atomic);
    c.knowledge.join(there);
    c.knowledge.own.passed[c.id] = c.now++;
    there.join(c.knowledge);
}

/* A whole structure is loaded. That some of its bytes are unwritten, such as those between its members, is no finding:
 * if the compiler announced the store of an assignment just before (which it does), the marks go there. */
static void load_whole(Core &c, char *from, std::size_t bytes, const void *pc)
{
    constexpr std::ptrdiff_t NEXT = 64; /* bytes of code between the two announcements */
    const auto [stored_by, at, stored] = c.stored;
    const std::ptrdiff_t behind = static_cast<const char *>(pc) - static_cast<const char *>(stored_by);
    if (stored_by == nullptr || behind < 0 || behind >= NEXT || stored != bytes)
        return;
    const At runtime(IN_RUNTIME);
    const auto holds = [&](const Where &w) {
        const std::size_t end = w.kind == Kind::local ? static_cast<std::size_t>(c.base - c.low)
            : w.kind == Kind::shared                  ? state.sm_bytes
            : w.kind == Kind::global                  ? w.allocation->bytes
                                                      : 0;
        return w.offset < end && bytes <= end - w.offset;
    };
    const Where source = where(c, from), target = where(c, at);
    if (!holds(source) || !holds(target))
        return;
    std::vector<std::uint8_t> written(bytes);
    gather(c, source, bytes, written.data());
    if (std::count(written.begin(), written.end(), SOMEBODYS) == static_cast<std::ptrdiff_t>(bytes))
        return;
    if (target.kind != Kind::local) {
        scatter(c, target, bytes, written.data(), Site(pc), "stores");
        return;
    }
    for (std::size_t i = 0; i < bytes; i++) {
        std::uint8_t &s = c.state[target.offset + i];
        s = written[i] == SOMEBODYS ? s : static_cast<std::uint8_t>((s & ~WRITTEN) | BLANK);
    }
    mark_moved(at, written.data(), bytes);
}

/* Whether some of 8 bytes were written, and others not: as one value they would be none. */
static bool is_partly_written(Core &c, const char *at)
{
    constexpr std::uint64_t ones = 0x0101010101010101u * WRITTEN;
    const auto offset = static_cast<std::size_t>(at - c.low);
    std::uint64_t s;
    if (offset < static_cast<std::size_t>(c.base - c.low) - 8) {
        std::memcpy(&s, c.state + offset, sizeof s);
        return (s & ones) != ones && (s & ones) != 0;
    }
    if (state.sm != nullptr && at >= state.sm && at + 8 <= state.sm + state.sm_bytes) {
        std::memcpy(&s, state.sm_written.data() + (at - state.sm), sizeof s);
        return s != 0 && s != ones;
    }
    return false;
}

static void range(void *p, std::size_t bytes, bool write, const void *pc);

static constexpr std::uint64_t UNSET = 0xfff7fff3fff7fff3; /* what `poison` fills an element with */

static bool holds_poison(const char *at, std::size_t bytes)
{ return (bytes == 4 || bytes == 8) && std::memcmp(at, &UNSET, bytes) == 0; }

/* A core that has moved an unwritten element goes on: returns whether this is the load of such a move. The loads of an
 * index may come before it. */
static bool follow_move(Core &c, char *at, std::size_t bytes, bool write, const void *pc)
{
    settle_move(c);
    if (!write)
        return c.moving == at;
    c.moving = nullptr;
    c.moved = { at, bytes, pc };
    return false;
}

void note_move(Core &c, const Where &w, const char *at, std::size_t bytes)
{
    if (c.moving != at)
        return; /* a structure, which may have gaps */
    c.moving = nullptr;
    if (c.moving_site.file != nullptr)
        report(rules::uninitialised_move, c, c.moving_site, "moves", describe(c, w, at, bytes));
}

/* Whether there are bytes of the core's local memory, which are watched, or of shared memory. */
static bool is_watched(const Core &c, const char *at, std::size_t bytes)
{
    return (at >= c.low + 64 && at + bytes <= c.base)
        || (state.sm != nullptr && at >= state.sm && at + bytes <= state.sm + state.sm_bytes);
}

void settle_move(Core &c)
{
    const auto [at, bytes, pc] = c.moved;
    c.moved = {};
    if (at == nullptr || !holds_poison(at, bytes))
        return;
    const At runtime(IN_RUNTIME);
    const Where w = where(c, at);
    const std::uint8_t written[8] = { MOVED, MOVED, MOVED, MOVED, MOVED, MOVED, MOVED, MOVED };
    if (is_watched(c, at, bytes) || (w.kind == Kind::global && w.offset + bytes <= w.allocation->bytes))
        scatter(c, w, bytes, written, Site(pc), "stores");
}

static void misaligned(Core &c, const void *p, std::size_t bytes, const char *what, const Site &site)
{
    if (c.depth == 0)
        return; /* the launch unpacks the parameters */
    const At runtime(IN_RUNTIME);
    report(rules::scalar_alignment, c, site, what, describe(c, where(c, p), p, bytes));
}

/* 64-bit words are two of 32 bits to the device. `ANY`: the type promises no alignment, or gcc knows that it lies. */
template <class Word, bool WRITE, bool ANY = false>
static inline void scalar(void *p, const void *pc)
{
    Core *c = self;
    if (c == nullptr)
        return;
    if (!ANY && reinterpret_cast<std::uintptr_t>(p) % std::min<std::size_t>(sizeof(Word), 4) != 0)
        misaligned(*c, p, sizeof(Word), WRITE ? "stores" : "loads", Site(pc));
    (WRITE ? c->counts.scalar_stores : c->counts.scalar_loads)++;
    const bool moves = c->moves && follow_move(*c, static_cast<char *>(p), sizeof(Word), WRITE, pc);
    if (sizeof(Word) == 8 && WRITE)
        c->stored = { pc, static_cast<char *>(p), sizeof(Word) };
    if (sizeof(Word) == 8 && !WRITE && is_partly_written(*c, static_cast<char *>(p))) {
        range(p, sizeof(Word), WRITE, pc);
        return;
    }
    constexpr Word ones = static_cast<Word>(0x0101010101010101u);
    const auto offset = static_cast<std::size_t>(static_cast<char *>(p) - c->low);
    if (offset >= static_cast<std::size_t>(c->base - c->low)) {
        outside(*c, static_cast<char *>(p), sizeof(Word), WRITE, Site(pc), Act::scalar, moves);
        return;
    }
    Word s;
    std::memcpy(&s, c->state + offset, sizeof s);
    if (p >= c->fast
        && (s & static_cast<Word>(ones * (WRITE ? HELD : USABLE))) == static_cast<Word>(ones * (WRITE ? 0 : WRITTEN))) {
        if (p < c->deepest)
            c->deepest = static_cast<char *>(p);
        if (WRITE) {
            s = static_cast<Word>(
                (s & static_cast<Word>(ones * SILENT)) | static_cast<Word>(ones * (WRITTEN | SCALAR)));
            std::memcpy(c->state + offset, &s, sizeof s);
        }
        return;
    }
    local(*c, static_cast<char *>(p), sizeof(Word), WRITE, Site(pc), moves);
}

/* What the emulator's own functions need of a core's stack. */
static constexpr std::ptrdiff_t RESERVE = 48 * 1024;

/* End the kernel while its stack still has the space for saying why. */
static void end_deep(Core &c, const char *frame, const void *pc)
{
    if (frame - state.group->stack(c.id).low() >= RESERVE)
        return;
    const At runtime(IN_RUNTIME);
    c.depth = FRAMES; /* the frames need no more tracking */
    over_budget(c, Site(pc));
    wreck(
        Site(pc), "the core's stack, which is in its local memory, ran over: a recursion without end, or large arrays");
}

static void range(void *p, std::size_t bytes, bool write, const void *pc)
{
    Core *c = self;
    if (c == nullptr || bytes == 0)
        return;
    auto *at = static_cast<char *>(p);
    settle_move(*c);
    c->moving = nullptr;
    const auto offset = static_cast<std::size_t>(at - c->low);
    if (write)
        c->stored = { pc, at, bytes };
    else
        load_whole(*c, at, bytes, pc);
    if (offset < static_cast<std::size_t>(c->base - c->low))
        local(*c, at, std::min(bytes, static_cast<std::size_t>(c->base - at)), write, Site(pc), true);
    else
        outside(*c, at, bytes, write, Site(pc), Act::scalar, true);
}

} // namespace xpurt::check

using namespace xpurt;
using namespace xpurt::check;

extern "C" {

/* The function names are those that gcc calls. */
#define ACCESS(bytes, word) \
    void __tsan_read##bytes(void *p) { scalar<word, false>(p, __builtin_return_address(0)); } \
    void __tsan_write##bytes(void *p) { scalar<word, true>(p, __builtin_return_address(0)); } \
    void __tsan_unaligned_read##bytes(void *p) { scalar<word, false, true>(p, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##bytes(void *p) { scalar<word, true, true>(p, __builtin_return_address(0)); }
ACCESS(1, std::uint8_t)
ACCESS(2, std::uint16_t)
ACCESS(4, std::uint32_t)
ACCESS(8, std::uint64_t)

void __tsan_read16(void *p) { range(p, 16, false, __builtin_return_address(0)); }
void __tsan_write16(void *p) { range(p, 16, true, __builtin_return_address(0)); }
void __tsan_unaligned_read16(void *p) { range(p, 16, false, __builtin_return_address(0)); }
void __tsan_unaligned_write16(void *p) { range(p, 16, true, __builtin_return_address(0)); }
void __tsan_read_range(void *p, std::size_t bytes) { range(p, bytes, false, __builtin_return_address(0)); }
void __tsan_write_range(void *p, std::size_t bytes) { range(p, bytes, true, __builtin_return_address(0)); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_init(void) {}

void xpusim_moved(const volatile void *from, size_t bytes, xpusim_site site)
{
    Core *c = self;
    if (c == nullptr || c->depth == 0)
        return;
    settle_move(*c);
    c->moving = nullptr;
    auto *at = static_cast<char *>(const_cast<void *>(from));
    if (!is_watched(*c, at, bytes) || !holds_poison(at, bytes))
        return;
    const At runtime(IN_RUNTIME);
    std::uint8_t written[8];
    gather(*c, where(*c, at), bytes, written);
    if (std::count(written, written + bytes, SOMEBODYS) == static_cast<std::ptrdiff_t>(bytes))
        return;
    c->moving = at; /* noted when it is loaded, which shows if it is within its array */
    c->moving_site = site;
    c->moves = true;
}

void xpusim_moved_to(const volatile void *)
{
    if (self != nullptr)
        settle_move(*self);
}

/* Kernels and this file are compiled with frame pointers: the frame above this function's is its caller's. */
void __tsan_func_entry(void *)
{
    if (self == nullptr)
        return;
    end_deep(*self, static_cast<char *>(__builtin_frame_address(0)), __builtin_return_address(0));
    enter_function(*self, *static_cast<char **>(__builtin_frame_address(0)), __builtin_return_address(0));
}

void __tsan_func_exit(void)
{
    if (self != nullptr)
        leave_function(*self, __builtin_return_address(0));
}

/* The linker redirects a checked library's calls of these functions to here. */
void *__wrap_memcpy(void *to, const void *from, std::size_t bytes)
{
    if (self == nullptr || self->depth == 0)
        return std::memcpy(to, from, bytes);
    range(to, bytes, true, __builtin_return_address(0));
    range(const_cast<void *>(from), bytes, false, __builtin_return_address(0));
    return std::memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, std::size_t bytes)
{
    if (self == nullptr || self->depth == 0)
        return std::memmove(to, from, bytes);
    range(to, bytes, true, __builtin_return_address(0));
    range(const_cast<void *>(from), bytes, false, __builtin_return_address(0));
    return std::memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, std::size_t bytes)
{
    range(to, bytes, true, __builtin_return_address(0));
    return std::memset(to, value, bytes);
}
}
