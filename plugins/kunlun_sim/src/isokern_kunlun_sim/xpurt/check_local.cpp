/* Local memory of checked kernels: which bytes are written, fenced or in flight; stack frames; and how much of it a
 * core uses. */
#include "check_state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace xpurt::check
{

const Flight *flight_at(const Core &c, const char *at, std::size_t bytes, bool target)
{
    for (const Flight &f : c.flights) {
        const char *begin = target ? f.to : f.from;
        if (begin < at + bytes && at < begin + f.bytes)
            return &f;
    }
    return nullptr;
}

void reach(Core &c, char *at)
{
    if (at < c.deepest)
        c.deepest = at;
    if (at >= c.mark)
        return;
    c.mark = c.fast = at;
    std::ptrdiff_t used = c.base - at;
    for (const Zones &z : c.zones) /* which only the emulator has */
        used -= (z.array > at ? z.array - z.begin : 0) + (z.end > at ? z.end - z.array_end : 0)
            + (z.vectors && z.array >= at ? (z.array_end - z.array) / 2 : 0);
    c.reached = std::max(c.reached, static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(used, 0)));
    if (c.reached <= state.model.lm)
        c.counts.lm = c.reached;
}

/* Count the bytes of local memory that arrays and scalars take, and return addresses. What lies between them holds
 * vectors, which the compiler keeps on the stack and the card in registers. */
static std::uint64_t used_bytes(const Core &c)
{
    if (c.mark < c.low + 64)
        return c.reached; /* not watched that far */
    std::vector<bool> used(static_cast<std::size_t>(c.base - c.mark));
    const auto set = [&](const char *begin, const char *end, bool value) {
        begin = std::max<const char *>(begin, c.mark);
        for (end = std::min<const char *>(end, c.base); begin < end; begin++)
            used[static_cast<std::size_t>(begin - c.mark)] = value;
    };
    for (std::size_t i = 0; i < used.size(); i++)
        used[i] = (c.state[c.mark - c.low + static_cast<std::ptrdiff_t>(i)] & ~SILENT) != 0;
    for (const Declared &array : c.arrays)
        set(array.begin, array.end, true);
    for (const Zones &z : c.zones) {
        set(z.begin, z.array, false);
        set(z.array, z.array_end, true);
        for (const char *v = z.array; z.vectors && v < z.array_end; v += 2 * VECTOR_BYTES)
            set(v + VECTOR_BYTES, v + 2 * VECTOR_BYTES, false);
        set(z.array_end, z.end, false);
    }
    return static_cast<std::uint64_t>(std::count(used.begin(), used.end(), true));
}

void over_budget(Core &c, const Site &site)
{
    if (c.overflow || c.reached <= state.model.lm)
        return;
    c.counts.lm = std::max(c.counts.lm, used_bytes(c));
    if (c.counts.lm <= state.model.lm)
        return;
    c.overflow = true;
    report(rules::lm_overflow, c, site,
        "reaches " + std::to_string(c.counts.lm) + " bytes into its local memory of " + std::to_string(state.model.lm),
        "");
}

/* Whether an unwritten byte was written after all by an instruction that the compiler does not announce (a parameter
 * that it keeps in memory, a result that a function returns there): then its word has changed since it became
 * unwritten. */
bool silent(Core &c, const char *at)
{
    const auto offset = static_cast<std::size_t>(at - c.low), word = offset / 8 * 8;
    if ((c.state[offset] & BLANK) != 0)
        return false;
    bool changed = (c.state[offset] & SILENT) != 0;
    for (std::size_t i = word; i < word + 8; i++)
        changed |= (c.state[i] & (WRITTEN | BLANK)) == 0 && c.low[i] != c.stale[i];
    if (changed)
        for (std::size_t i = word; i < word + 8; i++)
            c.state[i] |= (c.state[i] & (WRITTEN | BLANK)) == 0 ? SILENT : 0;
    return changed;
}

/* Name the array, if an access meets one of the zones around it. */
static std::string describe_zoned(const Core &c, const char *at, std::size_t bytes)
{
    for (const Zones &z : c.zones)
        if (at < z.end && at + bytes > z.begin)
            return ", beside an array of " + plural(static_cast<std::uint64_t>(z.array_end - z.array), "byte");
    return "";
}

void read_lm(Core &c, const char *at, std::size_t bytes, const Site &site, const char *what, bool copy, bool moves)
{
    std::uint8_t *s = c.state + (at - c.low);
    std::size_t unwritten = 0, first = 0;
    std::uint8_t seen = 0;
    for (std::size_t i = 0; i < bytes; i++) {
        seen |= s[i];
        if ((s[i] & (WRITTEN | TARGET | FRAME)) != 0)
            continue;
        if (silent(c, at + i)) {
            s[i] |= WRITTEN;
            continue;
        }
        first = unwritten++ == 0 ? i : first;
    }
    const auto explain = [&](const char *p, std::size_t n) {
        return describe(c, { Kind::local, 0, nullptr, c.id }, p, n);
    };
    if ((seen & TARGET) != 0) {
        const Flight *f = flight_at(c, at, bytes, true);
        const Site other = f == nullptr ? Site() : f->site;
        report(f != nullptr && f->drained ? rules::copy_drained : rules::copy_destination, c, site, what,
            explain(at, bytes), c, other,
            "still writes there by " + std::string(name_of(f == nullptr ? XPUSIM_GM2LM : f->direction)) + "_ASYNC",
            "mfence_lm() on this core between the two");
    }
    if ((seen & VECTOR) != 0 && !settings().fix_mfence)
        report(rules::vector_unfenced, c, site, what, explain(at, bytes));
    if (copy && (seen & SCALAR) != 0 && !settings().fix_mfence)
        report(rules::scalar_unfenced, c, site, what, explain(at, bytes), "mfence_lm() between the stores and this");
    if ((seen & FRAME) != 0)
        report(rules::lm_bounds, c, site, what, explain(at, bytes) + describe_zoned(c, at, bytes));
    if (unwritten == 0)
        return;
    if (moves) {
        note_move(c, { Kind::local, 0, nullptr, c.id }, at, bytes);
        return;
    }
    unwritten = count_unwritten(at, bytes, [&](std::size_t i) { return (s[i] & (WRITTEN | TARGET | FRAME)) != 0; });
    if (unwritten != 0) {
        report(rules::uninitialised, c, site, what,
            plural(unwritten, "byte") + " that nobody wrote: " + explain(at + first, bytes - first));
        for (std::size_t i = 0; i < bytes; i++)
            s[i] |= WRITTEN; /* report it only once */
    }
}

/* The array does not count as used yet: the accesses to it do. */
static void begin_array(Core &c, char *at, std::size_t bytes)
{
    if (at < c.low + 64 || at > c.base || bytes > static_cast<std::size_t>(c.base - at))
        return;
    const auto offset = static_cast<std::size_t>(at - c.low);
    if (bytes > 8 && std::none_of(c.arrays.begin(), c.arrays.end(), [=](const Declared &a) { return a.begin == at; }))
        c.arrays.push_back({ at, at + bytes });
    forget_moved(at, at + bytes);
    poison(at, bytes);
    std::memcpy(c.stale + offset, at, bytes);
    for (std::size_t i = offset; i < offset + bytes; i++)
        c.state[i] &= HELD;
}

/* Write file:line to a buffer; returns the position of the colon. */
static std::size_t write_location(const Site &site, char *buffer, std::size_t size)
{
    const std::string text = spell(site);
    std::snprintf(buffer, size, "%s", text.c_str());
    return text.rfind(':');
}

static constexpr char BEYOND[] = "a store beyond its array in local memory";

void wreck(const Site &site, const char *what)
{
    static char file[256]; /* not allocated: the exception leaves without freeing anything */
    const std::size_t colon = std::min(write_location(site, file, sizeof file), sizeof file - 1);
    file[colon] = '\0';
    xpusim_raise(XPUSIM_MEMORY_EXCEEDED, what, { file, std::atoi(file + colon + 1) });
}

/* Report what a store meets, and return whether that is a function's stack frame. */
static bool meet(Core &c, char *at, std::size_t bytes, const Site &site, const char *what)
{
    std::uint8_t seen = 0;
    for (std::size_t i = 0; i < bytes; i++)
        seen |= c.state[at - c.low + static_cast<std::ptrdiff_t>(i)];
    if ((seen & HELD) == 0)
        return false;
    const std::string there = describe(c, { Kind::local, 0, nullptr, c.id }, at, bytes);
    for (const bool target : { true, false })
        if ((seen & (target ? TARGET : SOURCE)) != 0) {
            const Flight *f = flight_at(c, at, bytes, target);
            const Site other = f == nullptr ? Site() : f->site;
            const std::string name = std::string(name_of(f == nullptr ? XPUSIM_GM2LM : f->direction)) + "_ASYNC";
            const bool drained = f != nullptr && f->drained;
            report(drained   ? rules::copy_drained
                    : target ? rules::copy_destination
                             : rules::copy_source,
                c, site, what, there, c, other, (target ? "still writes there by " : "still reads there by ") + name,
                "mfence_lm() on this core between the two");
        }
    if ((seen & FRAME) != 0)
        report(rules::lm_bounds, c, site, what, there + describe_zoned(c, at, bytes));
    return (seen & FRAME) != 0;
}

void meet_lm(Core &c, char *at, std::size_t bytes, const Site &site, const char *what)
{
    if (meet(c, at, bytes, site, what))
        wreck(site, BEYOND);
}

void local(Core &c, char *at, std::size_t bytes, bool write, const Site &site, bool moves)
{
    const At runtime(IN_RUNTIME);
    const char *what = write ? "stores" : "loads";
    const bool beyond = report_beyond(c, at, bytes, what);
    if (beyond && !write)
        return;
    reach(c, at);
    if (!beyond)
        over_budget(c, site);
    if (at < c.low + 64)
        return; /* below the watched window: far over budget */
    if (write) {
        if (beyond)
            wreck(site, BEYOND);
        meet_lm(c, at, bytes, site, what);
        for (std::size_t i = 0; i < bytes; i++) {
            std::uint8_t &s = c.state[at - c.low + static_cast<std::ptrdiff_t>(i)];
            s = static_cast<std::uint8_t>((s & (SILENT | TARGET | SOURCE)) | WRITTEN | SCALAR);
        }
    } else {
        read_lm(c, at, bytes, site, what, false, moves);
    }
}

#if defined(__x86_64__)
/* The kernel itself begins. Its arguments lie above its frame, below that of the caller, whose frame pointer it saved.
 * An argument that is 4 bytes of the parameter block is 8 on the stack. */
static void begin_kernel(Core &c, char *record)
{
    c.base = c.mark = c.fast = c.deepest = record + 16;
    char *callers;
    std::memcpy(&callers, record, sizeof callers);
    c.arguments_end = c.base + 2 * state.launch->parameters.size();
    if (callers > c.base && callers < c.arguments_end)
        c.arguments_end = callers;
}
#endif

/* A function begins: `record` has the caller's frame pointer and the return address; `pc` is in the function. */
void enter_function(Core &c, char *record, const void *pc)
{
    if (c.depth >= FRAMES) {
        c.depth++;
        return;
    }
#if defined(__x86_64__)
    char *top = record + 16; /* arrays lie below the record */
    if (c.depth == 0)
        begin_kernel(c, record);
#else
    char *top = c.depth == 0 ? c.base : c.records[c.depth - 1]; /* arrays lie above the record */
#endif
    c.tops[c.depth] = top;
    c.records[c.depth++] = record;
    if (record < c.low || record + 16 > c.high)
        return;
    for (int i = 0; i < 16; i++)
        c.state[record - c.low + i] |= FRAME;
    /* Also for a function of vectors alone, which stores nothing else there: its record must be forgotten, too. */
    c.deepest = std::min(c.deepest, record);
    if (record >= c.mark)
        return;
    const At runtime(IN_RUNTIME);
    reach(c, record);
    over_budget(c, Site(pc));
}

/* A function ends: nothing in its frame is valid any more. */
void leave_function(Core &c, const void *pc)
{
    if (c.depth == 0)
        return;
    if (c.moves)
        settle_move(c);
    if (c.reached > state.model.lm) {
        const At runtime(IN_RUNTIME);
        over_budget(c, Site(pc));
    }
    if (--c.depth >= FRAMES)
        return;
    char *top = c.tops[c.depth];
    c.arrays.erase(std::remove_if(c.arrays.begin(), c.arrays.end(), [=](const Declared &a) { return a.begin < top; }),
        c.arrays.end());
    if (c.depth == 0) { /* the kernel itself ends: land its copies while its arrays still exist */
        const At runtime(IN_RUNTIME);
        for (const Flight &f : c.flights)
            if (!f.drained && !f.fenced)
                report(rules::copy_end, c, f.site,
                    std::string("copies by ") + name_of(f.direction)
                        + "_ASYNC and returns from the kernel without a fence",
                    plural(f.bytes, "byte"));
        land_all(c);
        return;
    }
    char *from = std::max(c.deepest, c.low);
    if (from >= top || top > c.high)
        return;
    if (!c.flights.empty()) {
        const At runtime(IN_RUNTIME);
        for (Flight &f : c.flights) {
            const bool target = f.to >= from && f.to < top, source = !f.read && f.from >= from && f.from < top;
            if (!target && !source)
                continue;
            report(f.drained ? rules::copy_drained : rules::copy_scope, c, Site(pc), "returns from a function",
                describe(c, where(c, target ? f.to : f.from), target ? f.to : f.from, f.bytes), c, f.site,
                std::string(target ? "still writes its array by " : "still reads its array by ") + name_of(f.direction)
                    + "_ASYNC");
            land(c, f);
            f.bytes = 0;
        }
        c.flights.erase(
            std::remove_if(c.flights.begin(), c.flights.end(), [](const Flight &f) { return f.bytes == 0; }),
            c.flights.end());
    }
    const auto offset = static_cast<std::size_t>(from - c.low), bytes = static_cast<std::size_t>(top - from);
    forget_moved(from, top);
    std::memcpy(c.stale + offset, from, bytes);
    for (std::size_t i = offset; i < offset + bytes; i++)
        c.state[i] &= SILENT;
    c.deepest = top;
}

} // namespace xpurt::check

using namespace xpurt::check;

/* Change the states of the bytes in an array's zones, if they are watched. */
template <class Change>
static void change_zones(Core &c, const Zones &z, const Change &change)
{
    if (z.begin < c.low + 64 || z.end > c.base)
        return;
    for (char *at = z.begin; at < z.end; at = at + 1 == z.array ? z.array_end : at + 1)
        change(c.state[at - c.low], at);
}

extern "C" {

void xpusim_zones_begin(
    const volatile void *whole, size_t bytes, const volatile void *array, size_t array_bytes, int vectors)
{
    Core *c = self;
    if (c == nullptr || c->depth == 0)
        return;
    const xpurt::At runtime(xpurt::IN_RUNTIME);
    auto *at = static_cast<char *>(const_cast<void *>(whole)), *inner = static_cast<char *>(const_cast<void *>(array));
    c->zones.push_back({ at, inner, inner + array_bytes, at + bytes, vectors != 0 });
    c->deepest = std::min(c->deepest, at);
    c->lowest_zone = std::min(c->lowest_zone, at);
    change_zones(*c, c->zones.back(), [](std::uint8_t &s, char *) { s = (s & (TARGET | SOURCE)) | FRAME; });
}

void xpusim_zones_end(const volatile void *whole)
{
    Core *c = self;
    if (c == nullptr)
        return;
    const xpurt::At runtime(xpurt::IN_RUNTIME);
    const auto found =
        std::find_if(c->zones.rbegin(), c->zones.rend(), [=](const Zones &z) { return z.begin == whole; });
    if (found == c->zones.rend())
        return;
    change_zones(*c, *found, [c](std::uint8_t &s, char *at) {
        s &= TARGET | SOURCE;
        c->stale[at - c->low] = *at;
    });
    for (char *v = found->array; found->vectors && v < found->array_end && v >= c->low; v += 2 * VECTOR_BYTES)
        for (std::ptrdiff_t i = VECTOR_BYTES; i < 2 * VECTOR_BYTES; i++)
            c->state[v + i - c->low] &= HELD | SILENT; /* it counts no longer */
    c->zones.erase(std::prev(found.base()));
}

void xpusim_fresh(const volatile void *array, size_t bytes)
{
    if (self == nullptr || self->depth == 0)
        return;
    const xpurt::At runtime(xpurt::IN_RUNTIME);
    begin_array(*self, static_cast<char *>(const_cast<void *>(array)), bytes);
}
}
