/* Loads and stores of checked kernels: the functions that gcc's -fsanitize=thread calls at each of them (gcc's own
 * runtime is not linked). */
#include "check_state.h"

#include <algorithm>

namespace xpurt::check
{

static constexpr std::uint8_t USABLE = WRITTEN | VECTOR | TARGET; /* a load requires only the first */

void use_sm(Core &c, const Site &site, std::size_t offset, std::size_t bytes, const std::string &what)
{
    if (!state.library->has_names() || of_group(offset))
        return;
    Shared *s = state.library->shared(offset);
    if (s == nullptr || offset + bytes > s->offset + s->bytes) {
        report(rules::sm_bounds, c, site, what,
            describe(c, { Kind::shared, offset, nullptr, -1 }, state.sm + offset, bytes));
        return;
    }
    if (s->used == state.serial)
        return;
    s->used = state.serial;
    state.sm_used += (s->bytes + 63) / 64 * 64;
    if (state.sm_used > state.model.sm && !state.sm_reported) {
        state.sm_reported = true;
        report(rules::sm_overflow, c, site, what,
            "the shared arrays in use are " + std::to_string(state.sm_used) + " bytes, a cluster has "
                + std::to_string(state.model.sm));
    }
}

/* An access outside the core's own local memory, or one that the fast path cannot handle. */
void outside(Core &c, char *at, std::size_t bytes, bool write, const Site &site, Act act)
{
    if (c.depth == 0 && act == Act::scalar)
        return; /* the launch unpacks the parameters */
    const At runtime(IN_RUNTIME);
    const std::string what = act == Act::vector ? (write ? "stores a vector" : "loads a vector")
        : act == Act::atomic                    ? "operates atomically"
        : write                                 ? "stores"
                                                : "loads";
    const Where w = where(c, at);
    switch (w.kind) {
    case Kind::local: /* below the watched window */
        reach(c, at);
        over_budget(c, site);
        return;
    case Kind::parameters:
    case Kind::constant: return;
    case Kind::shared: {
        use_sm(c, site, w.offset, bytes, what);
        const std::size_t n = std::min(bytes, state.sm_bytes - w.offset);
        const bool ordered = touch(c, w, at, n,
            access(c, site, act, write,
                write && act != Act::atomic ? (of_group(w.offset) ? XPUSIM_LM | XPUSIM_SM : XPUSIM_SM) : 0));
        std::uint8_t *s = state.sm_written.data() + w.offset;
        if (ordered && (!write || act == Act::atomic) && act != Act::vector) {
            const auto missing = static_cast<std::size_t>(std::count(s, s + n, 0));
            if (missing != 0)
                report(rules::uninitialised, c, site, what,
                    plural(missing, "byte") + " that nobody wrote: " + describe(c, w, at, bytes));
        }
        if (write || act != Act::vector)
            std::memset(s, 1, n);
        return;
    }
    case Kind::global: {
        const Allocation &a = *w.allocation;
        if (act == Act::scalar) {
            (write ? c.counts.gm_stores : c.counts.gm_loads)++;
            if (state.model.name == "KUNLUN2")
                report(rules::gm_scalar, c, site, what, describe(c, w, at, bytes));
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
            if (ordered && (!write || act == Act::atomic)) {
                const auto missing = static_cast<std::size_t>(std::count(s, s + bytes, 0));
                if (missing != 0)
                    report(rules::uninitialised, c, site, what,
                        plural(missing, "byte") + " that nobody wrote: " + describe(c, w, at, bytes));
            }
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

void atomic(Core &c, char *at, std::size_t bytes, const Site &site)
{
    const At runtime(IN_RUNTIME);
    c.counts.atomics++;
    const auto [found, first] = state.atomics.try_emplace(at);
    ik_emulation::Knowledge &there = found->second;
    if (first)
        there.group = c.knowledge.group;
    c.knowledge.join(there);
    if (at != nullptr)
        outside(c, at, bytes, true, site, Act::atomic);
    c.knowledge.own.passed[c.id] = c.now++;
    there.join(c.knowledge);
}

template <class Word, bool WRITE>
static inline void scalar(void *p, const void *pc)
{
    Core *c = self;
    if (c == nullptr)
        return;
    (WRITE ? c->counts.scalar_stores : c->counts.scalar_loads)++;
    constexpr Word ones = static_cast<Word>(0x0101010101010101u);
    const auto offset = static_cast<std::size_t>(static_cast<char *>(p) - c->low);
    if (offset >= static_cast<std::size_t>(c->base - c->low)) {
        outside(*c, static_cast<char *>(p), sizeof(Word), WRITE, Site(pc), Act::scalar);
        return;
    }
    Word s;
    std::memcpy(&s, c->state + offset, sizeof s);
    if (p >= c->mark
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
    local(*c, static_cast<char *>(p), sizeof(Word), WRITE, Site(pc));
}

static void range(void *p, std::size_t bytes, bool write, const void *pc)
{
    Core *c = self;
    if (c == nullptr || bytes == 0)
        return;
    const auto offset = static_cast<std::size_t>(static_cast<char *>(p) - c->low);
    if (offset < static_cast<std::size_t>(c->base - c->low))
        local(*c, static_cast<char *>(p), std::min(bytes, static_cast<std::size_t>(c->base - static_cast<char *>(p))),
            write, Site(pc));
    else
        outside(*c, static_cast<char *>(p), bytes, write, Site(pc), Act::scalar);
}

} // namespace xpurt::check

using namespace xpurt;
using namespace xpurt::check;

extern "C" {

/* The function names are those that gcc calls. */
#define ACCESS(bytes, word) \
    void __tsan_read##bytes(void *p) { scalar<word, false>(p, __builtin_return_address(0)); } \
    void __tsan_write##bytes(void *p) { scalar<word, true>(p, __builtin_return_address(0)); } \
    void __tsan_unaligned_read##bytes(void *p) { scalar<word, false>(p, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##bytes(void *p) { scalar<word, true>(p, __builtin_return_address(0)); }
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

/* Kernels and this file are compiled with frame pointers: the frame above this function's is its caller's. */
void __tsan_func_entry(void *)
{
    if (self != nullptr)
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
    range(const_cast<void *>(from), bytes, false, __builtin_return_address(0));
    range(to, bytes, true, __builtin_return_address(0));
    return std::memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, std::size_t bytes)
{
    if (self == nullptr || self->depth == 0)
        return std::memmove(to, from, bytes);
    range(const_cast<void *>(from), bytes, false, __builtin_return_address(0));
    range(to, bytes, true, __builtin_return_address(0));
    return std::memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, std::size_t bytes)
{
    range(to, bytes, true, __builtin_return_address(0));
    return std::memset(to, value, bytes);
}
}
