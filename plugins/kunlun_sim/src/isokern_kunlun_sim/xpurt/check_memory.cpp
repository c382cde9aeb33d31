/* Single accesses of a checked kernel: what gcc's -fsanitize=thread inserts at each load and store (its own runtime is not linked), vectors
 * and atomics; and who touched what before. */
#include "check_state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace xpurt::check {

static constexpr std::uint8_t USABLE = WRITTEN | VECTOR | TARGET; /* of which a load wants only the first */
static constexpr std::uint8_t HELD = TARGET | SOURCE | FRAME;     /* what a store must not meet */

/* What an address is */

static const std::shared_ptr<const Allocation> *near(const void *p)
{
    for (const auto &a : state.near)
        if (a != nullptr && p >= a->start - RED_ZONE && p < a->start + a->bytes + RED_ZONE)
            return &a;
    auto found = memory().find(p);
    if (found == nullptr)
        return nullptr;
    if (found->shadow != nullptr && !found->shadow->touched) {
        found->shadow->touched = true;
        state.touched.push_back(found->shadow);
    }
    auto &slot = state.near[state.next_near++ % 4];
    slot = std::move(found);
    return &slot;
}

Where where(const Core &c, const void *p)
{
    const char *at = static_cast<const char *>(p);
    if (at >= c.low && at < c.high)
        return {at < c.base ? Kind::local : Kind::parameters, static_cast<std::size_t>(at - c.low), nullptr, c.id};
    if (state.sm != nullptr && at >= state.sm && at < state.sm + state.sm_bytes)
        return {Kind::shared, static_cast<std::size_t>(at - state.sm), nullptr, -1};
    if (const auto *a = near(p); a != nullptr)
        return {Kind::global, static_cast<std::size_t>(at - (*a)->start), *a, -1};
    for (int i = 0; i < state.count; i++)
        if (const auto &stack = state.group->stack(i); at >= stack.low() && at < stack.high())
            return {i == c.id ? Kind::local : Kind::others_local, 0, nullptr, i};
    if (state.library->contains(p))
        return {state.library->writable(p) ? Kind::variable : Kind::constant, 0, nullptr, -1};
    return {};
}

std::string describe(const Core &c, const Where &w, const void *p, std::uint64_t bytes)
{
    const std::string n = plural(bytes, "byte");
    char address[32];
    std::snprintf(address, sizeof address, "%p", p);
    switch (w.kind) {
    case Kind::local: return n + " of local memory, " + std::to_string(c.base - static_cast<const char *>(p)) + " below the kernel's entry";
    case Kind::parameters: return n + " of the kernel's parameters";
    case Kind::others_local: return n + " of core " + std::to_string(w.owner) + "'s local memory";
    case Kind::shared: {
        const Shared *s = state.library->shared(w.offset);
        return n + " of shared memory, " + (s == nullptr ? "offset " + std::to_string(w.offset) : s->name + " + " + std::to_string(w.offset - s->offset));
    }
    case Kind::global: {
        const auto offset = static_cast<long long>(w.offset);
        const std::string kind = w.allocation->kind == XPU_MEM_L3 ? "L3" : "global memory";
        return n + " at offset " + std::to_string(offset) + " of " + std::to_string(w.allocation->bytes) + " bytes of " + kind;
    }
    case Kind::constant: return n + " of a constant";
    case Kind::variable: return n + " of a global variable";
    case Kind::host: break;
    }
    return n + " at " + address + ", which is memory of the host or none";
}

bool of_group(std::size_t offset)
{
    const auto next = state.groups_own.upper_bound(offset);
    return next != state.groups_own.begin() && offset < std::prev(next)->first + std::prev(next)->second;
}

/* Order */

std::uint32_t access(Core &c, const Site &site, Act act, bool write, int needs, xpusim_direction direction)
{
    const auto make = [&] {
        state.origins.push_back({site, act, direction, state.interval});
        state.accesses.push_back({state.cluster, c.id, c.now, static_cast<std::uint8_t>(needs), write, act == Act::atomic, static_cast<std::uint32_t>(state.origins.size() - 1)});
        return static_cast<std::uint32_t>(state.accesses.size() - 1);
    };
    if (site.pc == nullptr)
        return make();
    auto &slot = c.recent[reinterpret_cast<std::uintptr_t>(site.pc) / 2 % 32];
    if (slot.pc != site.pc || slot.time != c.now || slot.write != write)
        slot = {site.pc, c.now, make(), write};
    return slot.id;
}

static std::string deed(const Access &a)
{
    const Origin &o = state.origins[a.origin];
    switch (o.act) {
    case Act::scalar: return a.write ? "stores" : "loads";
    case Act::vector: return a.write ? "stores a vector" : "loads a vector";
    case Act::copy: return std::string(a.write ? "writes by " : "reads by ") + name_of(o.direction);
    case Act::copy_async: return std::string(a.write ? "writes by " : "reads by ") + name_of(o.direction) + "_ASYNC";
    case Act::atomic: return "operates atomically";
    }
    return "";
}

static void race(Core &c, const Access &mine, const Access &theirs, const char *at, bool shared)
{
    const Rule &rule = shared ? rules::race_sm : rules::race_gm;
    const Site &here = state.origins[mine.origin].site, &there = state.origins[theirs.origin].site;
    if (repeated(rule, here, there))
        return;
    const ik_emulation::Clock *known = c.knowledge.of(theirs.group);
    std::string remedy;
    if (theirs.needs != 0 && known != nullptr && known->knows(theirs.member, theirs.time, 0)) {
        const bool copy = state.origins[theirs.origin].act == Act::copy_async;
        remedy = std::string(shared ? "mfence_sm()" : "mfence_gm()") + " on core " + std::to_string(theirs.member) + " after its " + (copy ? "copy" : "store") +
                 " and before the barrier: a barrier is not a fence";
    }
    const Where w = where(c, at);
    report_access(rule, c, here, deed(mine), describe(c, w, at, 1), theirs, deed(theirs) + (theirs.write ? "" : " what is written here"), remedy);
}

/* The same core did `before` to the byte, and now does `mine`. */
static void own(Core &c, const Access &mine, const Access &before, const char *at, bool shared)
{
    if (before.needs == 0 || c.knowledge.own.knows(c.id, before.time, before.needs))
        return;
    const Origin &now = state.origins[mine.origin], &then = state.origins[before.origin];
    const bool copies = now.act == Act::copy || now.act == Act::copy_async;
    const Rule *rule = nullptr;
    if (then.act == Act::copy_async)
        rule = copies && mine.write ? &rules::copy_overlap : before.write ? &rules::copy_destination : &rules::copy_source;
    else if (before.write && copies)
        rule = shared ? &rules::scalar_unfenced : &rules::gm_unfenced;
    if (rule == nullptr || repeated(*rule, now.site, then.site))
        return;
    report_access(*rule, c, now.site, deed(mine), describe(c, where(c, at), at, 1), before, deed(before));
}

static void judge(Core &c, const Access &mine, std::uint32_t mine_id, std::uint32_t theirs_id, char *at, bool shared, const char *from, std::size_t bytes)
{
    const Access &theirs = state.accesses[theirs_id];
    if (theirs.group == c.knowledge.group && theirs.member == c.id) {
        own(c, mine, theirs, at, shared);
        return;
    }
    if (mine.atomic && theirs.atomic)
        return;
    const ik_emulation::Clock *known = c.knowledge.of(theirs.group);
    if (known != nullptr && known->knows(theirs.member, theirs.time, theirs.needs)) {
        const Origin &o = state.origins[theirs.origin];
        const bool staged = shared && !mine.write && theirs.write && (o.act == Act::copy || o.act == Act::copy_async) && state.stagers[static_cast<std::size_t>(o.interval)] >= 0;
        if (staged && state.model.name == "KUNLUN3")
            report_access(rules::staging, c, state.origins[mine.origin].site, deed(mine), describe(c, where(c, at), at, 1), theirs, deed(theirs) + ", no other core copies");
        return;
    }
    if (mine.write && theirs.write && !mine.atomic && !theirs.atomic) {
        if (from != nullptr && *from == *at)
            return; /* a copy of the same value */
        if (from == nullptr && bytes <= sizeof Suspicion::before) { /* a store that has not happened yet */
            Suspicion s{at, bytes, {}, mine_id, theirs_id};
            std::memcpy(s.before, at, bytes);
            if (c.suspicions.empty() || c.suspicions.back().at != at || c.suspicions.back().mine != mine_id)
                c.suspicions.push_back(s);
            return;
        }
    }
    race(c, mine, theirs, at, shared);
}

void settle(Core &c)
{
    for (const Suspicion &s : c.suspicions)
        if (std::memcmp(s.at, s.before, s.bytes) != 0)
            race(c, state.accesses[s.mine], state.accesses[s.theirs], s.at, where(c, s.at).kind == Kind::shared);
    c.suspicions.clear();
}

bool touch(Core &c, const Where &w, char *at, std::size_t bytes, std::uint32_t id, const char *from)
{
    const bool shared = w.kind == Kind::shared;
    if (!shared && w.allocation->shadow == nullptr)
        return true;
    const std::uint64_t errors = state.errors;
    ik_emulation::Cells &cells = shared ? state.sm_cells : w.allocation->shadow->cells;
    const Access mine = state.accesses[id];
    ik_emulation::Cell last, next;
    bool known = false;
    cells.each(w.offset, bytes, [&](ik_emulation::Cell &cell, std::size_t offset) {
        if (known && cell == last && from == nullptr) {
            cell = next;
            return;
        }
        last = cell;
        char *byte = at + (offset - w.offset);
        const char *source = from == nullptr ? nullptr : from + (offset - w.offset);
        const std::size_t whole = offset == w.offset ? bytes : SIZE_MAX;
        if (cell.write != 0)
            judge(c, mine, id, cell.write, byte, shared, source, source == nullptr ? whole : 0);
        if (mine.write) {
            if (cell.read != 0)
                judge(c, mine, id, cell.read, byte, shared, nullptr, SIZE_MAX);
            if (cell.read_before != 0)
                judge(c, mine, id, cell.read_before, byte, shared, nullptr, SIZE_MAX);
            cell = {id, 0, 0};
        } else if (cell.read != 0 && state.accesses[cell.read].group == mine.group && state.accesses[cell.read].member == mine.member) {
            cell.read = id;
        } else {
            cell.read_before = cell.read;
            cell.read = id;
        }
        next = cell;
        known = true;
    });
    return state.errors == errors;
}

/* Local memory */

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
    c.mark = at;
    c.counts.lm = static_cast<std::uint64_t>(c.base - at);
}

void over_budget(Core &c, const Site &site)
{
    if (c.overflow || c.counts.lm <= state.model.lm)
        return;
    c.overflow = true;
    report(rules::lm_overflow, c, site, "reaches " + std::to_string(c.counts.lm) + " bytes into its local memory of " + std::to_string(state.model.lm), "");
}

/* Whether an unwritten byte was written all the same, by what the compiler does not announce (a parameter that it keeps in memory, a result that
 * a function returns there): then its word has changed since it became unwritten. */
static bool silent(Core &c, const char *at)
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

void read_lm(Core &c, const char *at, std::size_t bytes, const Site &site, const char *what, bool copy)
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
    const auto described = [&](const char *p, std::size_t n) { return describe(c, {Kind::local, 0, nullptr, c.id}, p, n); };
    if ((seen & TARGET) != 0) {
        const Flight *f = flight_at(c, at, bytes, true);
        const Site other = f == nullptr ? Site() : f->site;
        report(rules::copy_destination, c, site, what, described(at, bytes), c, other, "still writes there by " + std::string(name_of(f == nullptr ? XPUSIM_GM2LM : f->direction)) + "_ASYNC",
               "mfence_lm() on this core between the two");
    }
    if ((seen & VECTOR) != 0)
        report(rules::vector_unfenced, c, site, what, described(at, bytes));
    if (copy && (seen & SCALAR) != 0)
        report(rules::scalar_unfenced, c, site, what, described(at, bytes), "mfence_lm() between the stores and this");
    if ((seen & FRAME) != 0)
        report(rules::lm_bounds, c, site, what, described(at, bytes));
    if (unwritten != 0) {
        report(copy ? rules::uninitialised_copy : rules::uninitialised, c, site, what, plural(unwritten, "byte") + " that nobody wrote: " + described(at + first, bytes - first));
        for (std::size_t i = 0; i < bytes; i++)
            s[i] |= WRITTEN; /* once is enough */
    }
}

/* file:line in a buffer; where the colon is. */
static std::size_t spelled(const Site &site, char *buffer, std::size_t size)
{
    const std::string text = spell(site);
    std::snprintf(buffer, size, "%s", text.c_str());
    return text.rfind(':');
}

void meet_lm(Core &c, char *at, std::size_t bytes, const Site &site, const char *what)
{
    std::uint8_t seen = 0;
    for (std::size_t i = 0; i < bytes; i++)
        seen |= c.state[at - c.low + static_cast<std::ptrdiff_t>(i)];
    if ((seen & HELD) == 0)
        return;
    const std::string there = describe(c, {Kind::local, 0, nullptr, c.id}, at, bytes);
    for (const bool target : {true, false})
        if ((seen & (target ? TARGET : SOURCE)) != 0) {
            const Flight *f = flight_at(c, at, bytes, target);
            const Site other = f == nullptr ? Site() : f->site;
            const std::string name = std::string(name_of(f == nullptr ? XPUSIM_GM2LM : f->direction)) + "_ASYNC";
            report(target ? rules::copy_destination : rules::copy_source, c, site, what, there, c, other, (target ? "still writes there by " : "still reads there by ") + name,
                   "mfence_lm() on this core between the two");
        }
    if ((seen & FRAME) != 0) {
        report(rules::lm_bounds, c, site, what, there);
        static char file[256]; /* what is allocated here would never be freed */
        const std::size_t colon = std::min(spelled(site, file, sizeof file), sizeof file - 1);
        file[colon] = '\0';
        xpusim_raise(XPUSIM_MEMORY_EXCEEDED, "a store beyond its array in local memory", {file, std::atoi(file + colon + 1)});
    }
}

static void local(Core &c, char *at, std::size_t bytes, bool write, const Site &site)
{
    const At runtime(IN_RUNTIME);
    const char *what = write ? "stores" : "loads";
    reach(c, at);
    over_budget(c, site);
    if (at < c.low + 64)
        return; /* beyond what is watched: far over budget */
    if (write) {
        meet_lm(c, at, bytes, site, what);
        for (std::size_t i = 0; i < bytes; i++) {
            std::uint8_t &s = c.state[at - c.low + static_cast<std::ptrdiff_t>(i)];
            s = static_cast<std::uint8_t>((s & (SILENT | TARGET | SOURCE)) | WRITTEN | SCALAR);
        }
    } else {
        read_lm(c, at, bytes, site, what, false);
    }
}

void use_sm(Core &c, const Site &site, std::size_t offset, std::size_t bytes, const std::string &what)
{
    if (!state.library->has_names() || of_group(offset))
        return;
    Shared *s = state.library->shared(offset);
    if (s == nullptr || offset + bytes > s->offset + s->bytes) {
        report(rules::sm_bounds, c, site, what, describe(c, {Kind::shared, offset, nullptr, -1}, state.sm + offset, bytes));
        return;
    }
    if (s->used == state.serial)
        return;
    s->used = state.serial;
    state.sm_used += (s->bytes + 63) / 64 * 64;
    if (state.sm_used > state.model.sm && !state.sm_reported) {
        state.sm_reported = true;
        report(rules::sm_overflow, c, site, what, "the shared arrays in use are " + std::to_string(state.sm_used) + " bytes, a cluster has " + std::to_string(state.model.sm));
    }
}

/* What is neither its own local memory nor fast. */
static void outside(Core &c, char *at, std::size_t bytes, bool write, const Site &site, Act act)
{
    if (c.depth == 0 && act == Act::scalar)
        return; /* the launch takes the parameters apart */
    const At runtime(IN_RUNTIME);
    const std::string what = act == Act::vector ? (write ? "stores a vector" : "loads a vector") : act == Act::atomic ? "operates atomically" : write ? "stores" : "loads";
    const Where w = where(c, at);
    switch (w.kind) {
    case Kind::local: /* below the window */
        reach(c, at);
        over_budget(c, site);
        return;
    case Kind::parameters: case Kind::constant: return;
    case Kind::shared: {
        use_sm(c, site, w.offset, bytes, what);
        const std::size_t n = std::min(bytes, state.sm_bytes - w.offset);
        const bool ordered = touch(c, w, at, n, access(c, site, act, write, write && act != Act::atomic ? (of_group(w.offset) ? XPUSIM_LM | XPUSIM_SM : XPUSIM_SM) : 0));
        std::uint8_t *s = state.sm_written.data() + w.offset;
        if (ordered && (!write || act == Act::atomic) && act != Act::vector) {
            const auto missing = static_cast<std::size_t>(std::count(s, s + n, 0));
            if (missing != 0)
                report(rules::uninitialised, c, site, what, plural(missing, "byte") + " that nobody wrote: " + describe(c, w, at, bytes));
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
            report(rules::other_device, c, site, what, describe(c, w, at, bytes) + " on device " + std::to_string(a.device));
        else if (w.offset >= a.bytes || bytes > a.bytes - w.offset)
            report(rules::gm_bounds, c, site, what, describe(c, w, at, bytes));
        else if (a.shadow != nullptr) {
            const bool ordered = touch(c, w, at, bytes, access(c, site, act, write, write && act != Act::atomic ? XPUSIM_GM : 0));
            std::uint8_t *s = a.shadow->written + w.offset;
            if (ordered && (!write || act == Act::atomic)) {
                const auto missing = static_cast<std::size_t>(std::count(s, s + bytes, 0));
                if (missing != 0)
                    report(rules::uninitialised, c, site, what, plural(missing, "byte") + " that nobody wrote: " + describe(c, w, at, bytes));
            }
            std::memset(s, 1, bytes);
        }
        return;
    }
    case Kind::others_local: report(rules::lm_private, c, site, what, describe(c, w, at, bytes)); return;
    case Kind::variable: report(rules::global_variable, c, site, what, describe(c, w, at, bytes)); return;
    case Kind::host: report(rules::host_pointer, c, site, what, describe(c, w, at, bytes)); return;
    }
}

template <class Word, bool WRITE>
static inline void scalar(void *p, const void *pc)
{
    Core *c = self;
    if (c == nullptr)
        return;
    constexpr Word ones = static_cast<Word>(0x0101010101010101u);
    const auto offset = static_cast<std::size_t>(static_cast<char *>(p) - c->low);
    if (offset >= static_cast<std::size_t>(c->base - c->low)) {
        outside(*c, static_cast<char *>(p), sizeof(Word), WRITE, Site(pc), Act::scalar);
        return;
    }
    Word s;
    std::memcpy(&s, c->state + offset, sizeof s);
    if (p >= c->mark && (s & static_cast<Word>(ones * (WRITE ? HELD : USABLE))) == static_cast<Word>(ones * (WRITE ? 0 : WRITTEN))) {
        if (p < c->deepest)
            c->deepest = static_cast<char *>(p);
        if (WRITE) {
            s = static_cast<Word>((s & static_cast<Word>(ones * SILENT)) | static_cast<Word>(ones * (WRITTEN | SCALAR)));
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
        local(*c, static_cast<char *>(p), std::min(bytes, static_cast<std::size_t>(c->base - static_cast<char *>(p))), write, Site(pc));
    else
        outside(*c, static_cast<char *>(p), bytes, write, Site(pc), Act::scalar);
}

/* A function begins, with the caller's frame pointer and its return address at `record`; `pc` is in it. */
static void enter_function(Core &c, char *record, const void *pc)
{
    if (c.depth >= FRAMES) {
        c.depth++;
        return;
    }
#if defined(__x86_64__)
    char *top = record + 16; /* arrays lie below the record */
    if (c.depth == 0)
        c.base = c.mark = c.deepest = top;
#else
    char *top = c.depth == 0 ? c.base : c.records[c.depth - 1]; /* and above it */
#endif
    c.tops[c.depth] = top;
    c.records[c.depth++] = record;
    if (record < c.low || record + 16 > c.high)
        return;
    for (int i = 0; i < 16; i++)
        c.state[record - c.low + i] |= FRAME;
    if (record >= c.mark)
        return;
    const At runtime(IN_RUNTIME);
    reach(c, record);
    over_budget(c, Site(pc));
}

/* It ends: what its frame held is nobody's. */
static void leave_function(Core &c, const void *pc)
{
    if (c.depth == 0 || --c.depth >= FRAMES)
        return;
    char *top = c.tops[c.depth];
    if (c.depth == 0)
        return; /* the kernel's own: its copies may land yet */
    char *from = std::max(c.deepest, c.low);
    if (from >= top || top > c.high)
        return;
    if (!c.flights.empty()) {
        const At runtime(IN_RUNTIME);
        for (Flight &f : c.flights) {
            const bool target = f.to >= from && f.to < top, source = !f.read && f.from >= from && f.from < top;
            if (!target && !source)
                continue;
            report(rules::copy_scope, c, Site(pc), "returns from a function", describe(c, where(c, target ? f.to : f.from), target ? f.to : f.from, f.bytes), c, f.site,
                   std::string(target ? "still writes its array by " : "still reads its array by ") + name_of(f.direction) + "_ASYNC");
            land(c, f);
        }
        c.flights.erase(std::remove_if(c.flights.begin(), c.flights.end(), [](const Flight &f) { return f.read && f.landed; }), c.flights.end());
    }
    const auto offset = static_cast<std::size_t>(from - c.low), bytes = static_cast<std::size_t>(top - from);
    std::memcpy(c.stale + offset, from, bytes);
    for (std::size_t i = offset; i < offset + bytes; i++)
        c.state[i] &= SILENT;
    c.deepest = top;
}

} // namespace xpurt::check

using namespace xpurt;
using namespace xpurt::check;

extern "C" {

/* The names are those that gcc calls. */
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

/* Kernels and this file are compiled with frame pointers: behind this function's own is its caller's. */
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

/* The linker sends a checked library's calls of these here. */
void *__wrap_memcpy(void *to, const void *from, std::size_t bytes)
{
    range(const_cast<void *>(from), bytes, false, __builtin_return_address(0));
    range(to, bytes, true, __builtin_return_address(0));
    return std::memcpy(to, from, bytes);
}

void *__wrap_memmove(void *to, const void *from, std::size_t bytes)
{
    range(const_cast<void *>(from), bytes, false, __builtin_return_address(0));
    range(to, bytes, true, __builtin_return_address(0));
    return std::memmove(to, from, bytes);
}

void *__wrap_memset(void *to, int value, std::size_t bytes)
{
    range(to, bytes, true, __builtin_return_address(0));
    return std::memset(to, value, bytes);
}

static int space_of(const Where &w)
{
    switch (w.kind) {
    case Kind::local: case Kind::parameters: return XPUSIM_LM;
    case Kind::shared: return of_group(w.offset) ? 0 : XPUSIM_SM; /* the intrinsics for group-shared memory name no space of a fence */
    case Kind::global: return XPUSIM_GM;
    default: return 0;
    }
}

static Where vector_at(Core &c, const void *p, int bytes, int space, bool write, const Site &site)
{
    const Where w = where(c, p);
    const char *what = write ? "stores a vector" : "loads a vector";
    if (space_of(w) != space && space_of(w) != 0)
        report(rules::space, c, site, std::string(what) + " of " + (space == XPUSIM_LM ? "local" : space == XPUSIM_SM ? "shared" : "global") + " memory", describe(c, w, p, static_cast<std::uint64_t>(bytes)));
    return w;
}

uint64_t xpusim_vector_load(const void *from, int bytes, int space, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr || bytes <= 0 || bytes > 64)
        return 0;
    const At runtime(IN_RUNTIME);
    c->counts.vector_loads++;
    const Where w = vector_at(*c, from, bytes, space, false, place);
    auto *at = static_cast<char *>(const_cast<void *>(from));
    const auto n = static_cast<std::size_t>(bytes);
    std::uint64_t unwritten = 0;
    if (w.kind == Kind::local) {
        reach(*c, at);
        over_budget(*c, place);
        if (at < c->low + 64)
            return 0;
        std::uint8_t seen = 0, *s = c->state + w.offset;
        const std::size_t room = static_cast<std::size_t>(c->high - at);
        for (std::size_t i = 0; i < std::min(n, room); i++) {
            seen |= s[i];
            if ((s[i] & (WRITTEN | TARGET)) != 0)
                continue;
            if (silent(*c, at + i))
                s[i] |= WRITTEN;
            else
                unwritten |= std::uint64_t{1} << i;
        }
        if ((seen & TARGET) != 0)
            read_lm(*c, at, n, place, "loads a vector", false);
        if ((seen & SCALAR) != 0)
            report(rules::scalar_unfenced, *c, place, "loads a vector", describe(*c, w, at, n), "mfence_lm() between the stores and this");
        return unwritten;
    }
    outside(*c, at, n, false, place, Act::vector);
    if (w.kind == Kind::shared)
        for (std::size_t i = 0; i < n && w.offset + i < state.sm_bytes; i++)
            unwritten |= state.sm_written[w.offset + i] != 0 ? 0 : std::uint64_t{1} << i;
    return unwritten;
}

void xpusim_vector_store(void *to, int bytes, int space, uint64_t unwritten, uint64_t enabled, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr || bytes <= 0 || bytes > 64)
        return;
    const At runtime(IN_RUNTIME);
    c->counts.vector_stores++;
    const Where w = vector_at(*c, to, bytes, space, true, place);
    auto *at = static_cast<char *>(to);
    for (int i = 0, run = 0; i < bytes; i += run) {
        run = 1;
        if ((enabled >> i & 1) == 0)
            continue;
        while (i + run < bytes && (enabled >> (i + run) & 1) != 0)
            run++;
        if (w.kind != Kind::local) {
            outside(*c, at + i, static_cast<std::size_t>(run), true, place, Act::vector);
            for (int k = i; k < i + run && w.kind == Kind::shared; k++)
                if ((unwritten >> k & 1) != 0 && w.offset + static_cast<std::size_t>(k) < state.sm_bytes)
                    state.sm_written[w.offset + static_cast<std::size_t>(k)] = 0;
            continue;
        }
        reach(*c, at + i);
        over_budget(*c, place);
        if (at + i < c->low + 64)
            continue;
        meet_lm(*c, at + i, static_cast<std::size_t>(run), place, "stores a vector");
        for (int k = i; k < i + run; k++) {
            std::uint8_t &s = c->state[w.offset + static_cast<std::size_t>(k)];
            s = static_cast<std::uint8_t>((s & (TARGET | SOURCE)) | VECTOR | ((unwritten >> k & 1) != 0 ? BLANK : WRITTEN));
        }
    }
}

void xpusim_use(uint64_t unwritten, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr || unwritten == 0)
        return;
    const At runtime(IN_RUNTIME);
    report(rules::uninitialised, *c, place, "computes a result", plural(static_cast<std::uint64_t>(__builtin_popcountll(unwritten)), "byte") + " of a vector that nobody wrote");
}

void xpusim_atomic(const void *address, int bytes, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr)
        return;
    const At runtime(IN_RUNTIME);
    c->counts.atomics++;
    const auto [found, first] = state.atomics.try_emplace(address);
    ik_emulation::Knowledge &there = found->second;
    if (first)
        there.group = c->knowledge.group;
    c->knowledge.join(there);
    if (address != nullptr)
        outside(*c, static_cast<char *>(const_cast<void *>(address)), static_cast<std::size_t>(bytes), true, place, Act::atomic);
    c->knowledge.own.passed[c->id] = c->now++;
    there.join(c->knowledge);
}
}
