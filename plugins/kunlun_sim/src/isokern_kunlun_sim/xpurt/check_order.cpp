/* What an address is, and the order of accesses to SM and GM: who touched a byte before, and what must happen in
 * between. */
#include "check_state.h"

#include <cstdio>

namespace xpurt::check
{

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

/* An address this close to the shared arrays is meant to be in them. */
static constexpr std::ptrdiff_t AROUND = 64 * 1024;

bool in_segment(std::size_t offset, std::size_t bytes)
{ return offset < state.sm_bytes && bytes <= state.sm_bytes - offset; }

Where where(const Core &c, const void *p)
{
    const char *at = static_cast<const char *>(p);
    if (at >= c.low && at < c.high)
        return { at < c.base ? Kind::local : Kind::parameters, static_cast<std::size_t>(at - c.low), nullptr, c.id };
    if (state.sm != nullptr && at >= state.sm && at < state.sm + state.sm_bytes)
        return { Kind::shared, static_cast<std::size_t>(at - state.sm), nullptr, -1 };
    if (const auto *a = near(p); a != nullptr)
        return { Kind::global, static_cast<std::size_t>(at - (*a)->start), *a, -1 };
    for (int i = 0; i < state.count; i++)
        if (const auto &stack = state.group->stack(i); at >= stack.low() && at < stack.high())
            return { i == c.id ? Kind::local : Kind::others_local, 0, nullptr, i };
    if (state.library->contains(p))
        return { state.library->writable(p) ? Kind::variable : Kind::constant, 0, nullptr, -1 };
    if (state.sm != nullptr && at >= state.sm - AROUND && at < state.sm + state.sm_bytes + AROUND)
        return { Kind::shared, static_cast<std::size_t>(at - state.sm), nullptr, -1 };
    return {};
}

std::string describe(const Core &c, const Where &w, const void *p, std::uint64_t bytes)
{
    const std::string n = plural(bytes, "byte");
    char address[32];
    std::snprintf(address, sizeof address, "%p", p);
    switch (w.kind) {
    case Kind::local:
        return n + " of local memory, " + std::to_string(c.base - static_cast<const char *>(p))
            + " below the kernel's entry";
    case Kind::parameters: return n + " of the kernel's parameters";
    case Kind::others_local: return n + " of core " + std::to_string(w.owner) + "'s local memory";
    case Kind::shared: {
        const Shared *s = state.library->shared(w.offset);
        return n + " of shared memory, "
            + (s == nullptr ? "offset " + std::to_string(static_cast<long long>(w.offset))
                            : s->name + " + " + std::to_string(w.offset - s->offset));
    }
    case Kind::global: {
        const auto offset = static_cast<long long>(w.offset);
        const std::string kind = w.allocation->kind == XPU_MEM_L3 ? "L3" : "global memory";
        return n + " at offset " + std::to_string(offset) + " of " + std::to_string(w.allocation->bytes) + " bytes of "
            + kind;
    }
    case Kind::constant: return n + " of a constant";
    case Kind::variable: return n + " of a global variable";
    case Kind::host: break;
    }
    return n + " at " + address
        + (memory().in_range(p) ? ", which is device memory that nobody has allocated"
                                : ", which is memory of the host or none");
}

bool of_group(std::size_t offset)
{
    const auto next = state.groups_own.upper_bound(offset);
    return next != state.groups_own.begin() && offset < std::prev(next)->first + std::prev(next)->second.bytes;
}

/* Order */

std::uint32_t access(Core &c, const Site &site, Act act, bool write, int needs, xpusim_direction direction)
{
    const auto make = [&] {
        state.origins.push_back({ site, act, direction, state.interval });
        state.accesses.push_back(
            { state.cluster, c.id, c.now, static_cast<std::uint8_t>(settings().fix_mfence ? 0 : needs), write,
                act == Act::atomic, static_cast<std::uint32_t>(state.origins.size() - 1) });
        return static_cast<std::uint32_t>(state.accesses.size() - 1);
    };
    if (site.pc == nullptr)
        return make();
    auto &slot = c.recent[reinterpret_cast<std::uintptr_t>(site.pc) / 2 % 32];
    if (slot.pc != site.pc || slot.time != c.now || slot.write != write)
        slot = { site.pc, c.now, make(), write };
    return slot.id;
}

std::string describe_deed(const Access &a)
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
    if (is_repeated(rule, here, there))
        return;
    const ik_emulation::Clock *known = c.knowledge.of(theirs.group);
    std::string remedy;
    if (theirs.needs != 0 && known != nullptr && known->knows(theirs.member, theirs.time, 0)) {
        const bool copy = state.origins[theirs.origin].act == Act::copy_async;
        remedy = std::string(shared ? "mfence_sm()" : "mfence_gm()") + " on core " + std::to_string(theirs.member)
            + " after its " + (copy ? "copy" : "store") + " and before the barrier: a barrier is not a fence";
    }
    const Where w = where(c, at);
    report_access(rule, c, here, describe_deed(mine), describe(c, w, at, 1), theirs,
        describe_deed(theirs) + (theirs.write ? "" : " what is written here"), remedy);
}

/* Check two accesses of the same core: `before` and then `mine`. */
static void own(Core &c, const Access &mine, const Access &before, const char *at, bool shared)
{
    if (before.needs == 0 || c.knowledge.own.knows(c.id, before.time, before.needs))
        return;
    const Origin &now = state.origins[mine.origin], &then = state.origins[before.origin];
    const bool copies = now.act == Act::copy || now.act == Act::copy_async;
    const Rule *rule = nullptr;
    if (then.act == Act::copy_async)
        rule = copies && mine.write ? &rules::copy_overlap
            : before.write          ? &rules::copy_destination
                                    : &rules::copy_source;
    else if (before.write && shared && then.act == Act::vector && now.act != Act::vector)
        rule = &rules::vector_unfenced;
    else if (before.write && copies)
        rule = shared ? &rules::scalar_unfenced : &rules::gm_unfenced;
    if (rule == nullptr || is_repeated(*rule, now.site, then.site))
        return;
    report_access(
        *rule, c, now.site, describe_deed(mine), describe(c, where(c, at), at, 1), before, describe_deed(before));
}

static void judge(Core &c, const Access &mine, std::uint32_t mine_id, std::uint32_t theirs_id, char *at, bool shared,
    const char *from, std::size_t bytes)
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
        const bool staged = shared && !mine.write && theirs.write && (o.act == Act::copy || o.act == Act::copy_async)
            && state.stagers[static_cast<std::size_t>(o.interval)].alone();
        if (staged && state.model.name == "KUNLUN3")
            report_access(rules::staging, c, state.origins[mine.origin].site, describe_deed(mine),
                describe(c, where(c, at), at, 1), theirs, describe_deed(theirs) + ", no other core copies");
        return;
    }
    if (mine.write && theirs.write && !mine.atomic && !theirs.atomic) {
        if (from != nullptr && *from == *at)
            return; /* a copy that writes the same value */
        if (from == nullptr && bytes <= sizeof Suspicion::before) { /* a store, which has not happened yet */
            Suspicion s{ at, bytes, {}, mine_id, theirs_id };
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
        if (mine.atomic && offset == w.offset) {
            std::uint32_t &stored = state.atomics[at].stored;
            if (!state.accesses[cell.write].atomic)
                stored = cell.write;
            else if (stored != 0)
                judge(c, mine, id, stored, byte, shared, nullptr, SIZE_MAX);
        }
        if (mine.write) {
            if (cell.read != 0)
                judge(c, mine, id, cell.read, byte, shared, nullptr, SIZE_MAX);
            if (cell.read_before != 0)
                judge(c, mine, id, cell.read_before, byte, shared, nullptr, SIZE_MAX);
            cell = { id, 0, 0 };
        } else if (cell.read != 0 && state.accesses[cell.read].group == mine.group
            && state.accesses[cell.read].member == mine.member) {
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

} // namespace xpurt::check
