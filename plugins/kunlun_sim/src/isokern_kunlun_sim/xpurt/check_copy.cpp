/* Copies and fences of checked kernels: when copies land, and what may touch their ends until then. */
#include "check_state.h"

#include <algorithm>

namespace xpurt::check
{

const char *name_of(xpusim_direction d)
{
    static const char *const names[] = { "GM2LM", "LM2GM", "GM2SM", "SM2GM", "GM2GSM", "GSM2GM" };
    return names[d];
}

/* Group-shared memory is carved out of local memory and declared like SM. It is not public which fence is for it, so
 * either counts. */
int source_of(xpusim_direction d)
{
    static constexpr int spaces[] = { XPUSIM_GM, XPUSIM_LM, XPUSIM_GM, XPUSIM_SM, XPUSIM_GM, XPUSIM_LM | XPUSIM_SM };
    return spaces[d];
}

int target_of(xpusim_direction d)
{
    static constexpr int spaces[] = { XPUSIM_LM, XPUSIM_GM, XPUSIM_SM, XPUSIM_GM, XPUSIM_LM | XPUSIM_SM, XPUSIM_GM };
    return spaces[d];
}

/* Return how many bytes of one end of a copy can be moved, and report what is wrong with it. */
static std::size_t end_of(const Core &c, const Where &w, const char *at, std::size_t bytes, std::size_t rest,
    bool target, xpusim_direction d, const Site &site)
{
    const int space = target ? target_of(d) : source_of(d);
    const bool group_shared = (d == XPUSIM_GM2GSM && target) || (d == XPUSIM_GSM2GM && !target);
    const std::string what = std::string(target ? "writes by " : "reads by ") + name_of(d);
    const auto there = [&] { return describe(c, w, at, bytes); };
    const auto left = [&](bool too_long) {
        return too_long ? ", where its array has " + plural(rest, "byte") + " left" : std::string();
    };
    const auto wrong = [&] {
        report(rules::space, c, site, what, there() + ", which is not where the copy's name says");
    };
    switch (w.kind) {
    case Kind::local:
    case Kind::parameters: {
        if (space != XPUSIM_LM)
            wrong();
        if (at < c.low + 64)
            return 0;
        std::size_t usable = bytes; /* up to the first return address, or the end of the stack */
        for (int i = 0; i < std::min(c.depth, FRAMES); i++)
            if (at < c.records[i] + 16 && at + usable > c.records[i])
                usable = at < c.records[i] ? static_cast<std::size_t>(c.records[i] - at) : 0;
        usable = std::min(usable, static_cast<std::size_t>(std::max(at, c.arguments_end) - at));
        for (const Zones &z : c.zones)
            if (at < z.end && at + usable > z.begin) {
                const char *stop = at < z.begin ? z.begin : at >= z.array && at < z.array_end ? z.array_end : at;
                rest = std::min(rest, static_cast<std::size_t>(stop - at));
            }
        const bool longer = rest < usable;
        usable = std::min(usable, rest);
        if (usable == bytes)
            return bytes;
        report(rules::lm_bounds, c, site, what, there() + left(longer));
        for (std::size_t i = 0; i < usable && target && w.kind == Kind::local; i++)
            c.state[w.offset + i] |= WRITTEN; /* already reported: do not report it as unwritten, too */
        /* The bytes between the array and the return address belong to the function, too. */
        return 0;
    }
    case Kind::shared:
        if (space != XPUSIM_SM && !group_shared)
            wrong();
        if (const Shared *s = state.library->shared(w.offset); s != nullptr && !s->of_groups())
            rest = std::min(rest, s->offset + s->bytes - w.offset);
        if (in_segment(w.offset, bytes) && bytes <= rest)
            return bytes;
        report(rules::sm_bounds, c, site, what, there() + left(rest < bytes));
        return w.offset >= state.sm_bytes ? 0 : std::min({ bytes, rest, state.sm_bytes - w.offset });
    case Kind::global: {
        if (space != XPUSIM_GM)
            wrong();
        const Allocation &a = *w.allocation;
        if (a.freed) {
            report(rules::gm_freed, c, site, what, there());
            return 0;
        }
        if (a.device != state.launch->device)
            report(rules::other_device, c, site, what, there() + " on device " + std::to_string(a.device));
        if (w.offset >= a.bytes || bytes > a.bytes - w.offset)
            report(rules::gm_bounds, c, site, what, there());
        return w.offset >= a.bytes ? 0 : std::min<std::size_t>(bytes, a.bytes - w.offset);
    }
    case Kind::others_local: report(rules::lm_private, c, site, what, there()); return 0;
    case Kind::constant:
        if (target || space != XPUSIM_LM)
            wrong();
        if (const std::size_t there_is = std::min(rest, state.library->rest(at)); bytes > there_is && !target) {
            report(rules::lm_bounds, c, site, what, there() + left(true));
            return there_is;
        }
        return target ? 0 : bytes;
    case Kind::variable: report(rules::global_variable, c, site, what, there()); return 0;
    case Kind::host:
        report(memory().in_range(at) ? rules::gm_bounds : rules::host_pointer, c, site, what, there());
        return 0;
    }
    return 0;
}

void forget_moved(const char *begin, const char *end)
{
    if (!state.moved_bytes.empty())
        state.moved_bytes.erase(state.moved_bytes.lower_bound(begin), state.moved_bytes.lower_bound(end));
}

void mark_moved(const char *at, const std::uint8_t *written, std::size_t bytes)
{
    forget_moved(at, at + bytes);
    for (std::size_t i = 0; i < bytes; i++)
        if (written[i] == MOVED)
            state.moved_bytes.insert(at + i);
}

void gather(Core &c, const Where &w, std::size_t bytes, std::uint8_t *written)
{
    std::fill_n(written, bytes, SOMEBODYS);
    if (w.kind == Kind::local)
        for (std::size_t i = 0; i < bytes; i++) {
            std::uint8_t &s = c.state[w.offset + i];
            if ((s & (WRITTEN | TARGET | FRAME)) == 0 && silent(c, c.low + w.offset + i))
                s |= WRITTEN;
            written[i] = (s & (WRITTEN | SILENT)) != 0 && (s & BLANK) == 0 ? SOMEBODYS : NOBODYS;
        }
    else if (w.kind == Kind::shared)
        std::memcpy(written, state.sm_written.data() + w.offset, bytes);
    else if (w.kind == Kind::global && w.allocation->shadow != nullptr)
        for (std::size_t i = 0; i < bytes; i++) {
            const std::uint8_t there = w.allocation->shadow->written[w.offset + i];
            written[i] = there == 1 ? SOMEBODYS : there == 3 ? MOVED : NOBODYS;
        }
    if (state.moved_bytes.empty() || (w.kind != Kind::local && w.kind != Kind::shared))
        return;
    const char *at = (w.kind == Kind::local ? c.low : state.sm) + w.offset;
    for (std::size_t i = 0; i < bytes; i++)
        if (written[i] == NOBODYS && state.moved_bytes.count(at + i) != 0)
            written[i] = MOVED;
}

static const GmShadow::Blank *blank_at(const GmShadow &shadow, std::uint64_t begin, std::uint64_t end)
{
    const auto found = std::find_if(
        shadow.blanks.rbegin(), shadow.blanks.rend(), [=](const auto &b) { return b.begin < end && begin < b.end; });
    return found == shadow.blanks.rend() ? nullptr : &*found;
}

std::string describe_blank(const GmShadow &shadow, std::uint64_t begin, std::uint64_t end)
{
    const GmShadow::Blank *blank = blank_at(shadow, begin, end);
    return blank == nullptr
        ? ""
        : "; " + blank->deed->name + " " + blank->deed->what + " there what nobody wrote, at " + blank->deed->where;
}

void scatter(
    Core &c, const Where &w, std::size_t bytes, const std::uint8_t *written, const Site &site, const std::string &what)
{
    if (w.kind == Kind::local) {
        for (std::size_t i = 0; i < bytes; i++) {
            std::uint8_t &s = c.state[w.offset + i];
            s = static_cast<std::uint8_t>(
                (s & (SOURCE | FRAME | SILENT)) | (written[i] == SOMEBODYS ? WRITTEN : BLANK));
        }
        mark_moved(c.low + w.offset, written, bytes);
    } else if (w.kind == Kind::shared) {
        for (std::size_t i = 0; i < bytes; i++)
            state.sm_written[w.offset + i] = written[i] == SOMEBODYS;
        mark_moved(state.sm + w.offset, written, bytes);
    } else if (w.kind == Kind::global && w.allocation->shadow != nullptr) {
        constexpr std::size_t KEPT = 256;
        GmShadow &shadow = *w.allocation->shadow;
        for (std::size_t i = 0; i < bytes; i++)
            shadow.written[w.offset + i] = written[i] == SOMEBODYS ? 1 : written[i] == MOVED ? 3 : 2;
        const std::uint8_t *first =
            std::find_if(written, written + bytes, [](std::uint8_t whose) { return whose != SOMEBODYS; });
        if (first == written + bytes)
            return;
        const auto begin = w.offset + static_cast<std::size_t>(first - written);
        shadow.blanks.push_back({ begin, w.offset + bytes,
            std::make_shared<Deed>(Deed{ state.launch->name, what, state.cluster, c.id, spell(site) }) });
        if (shadow.blanks.size() > KEPT)
            shadow.blanks.pop_front();
    }
}

static void take(Core &c, Flight &f)
{
    if (f.read)
        return;
    f.read = true;
    f.data.assign(f.from, f.from + f.bytes);
    f.written.resize(f.bytes);
    gather(c, where(c, f.from), f.bytes, f.written.data());
}

/* Mark the source as free again. */
static void release(Core &c, const Flight &f)
{
    if (source_of(f.direction) != XPUSIM_LM || f.from < c.low || f.from >= c.high)
        return;
    for (std::size_t i = 0; i < f.bytes; i++)
        c.state[static_cast<std::size_t>(f.from - c.low) + i] &= static_cast<std::uint8_t>(~SOURCE);
}

static void move(Core &c, Flight &f)
{
    take(c, f);
    if (!f.landed)
        std::memcpy(f.to, f.data.data(), f.bytes);
    f.landed = true;
}

void land(Core &c, Flight &f)
{
    move(c, f);
    release(c, f);
    scatter(c, where(c, f.to), f.bytes, f.written.data(), f.site, std::string("writes by ") + name_of(f.direction));
}

void land_all(Core &c)
{
    for (Flight &f : c.flights)
        land(c, f);
    c.flights.clear();
}

static void fence(Core &c, int spaces)
{
    for (Flight &f : c.flights) {
        if ((target_of(f.direction) & spaces) != 0) {
            land(c, f);
            f.bytes = 0;
        } else if ((source_of(f.direction) & spaces) != 0) {
            take(c, f);
            release(c, f);
            f.fenced = true;
        }
    }
    c.flights.erase(std::remove_if(c.flights.begin(), c.flights.end(), [](const Flight &f) { return f.bytes == 0; }),
        c.flights.end());
    if ((spaces & XPUSIM_LM) != 0 && c.mark < c.base) {
        std::uint8_t *s = c.state + (std::max(c.mark, c.low) - c.low), *end = c.state + (c.base - c.low);
        for (; s + 8 <= end; s += 8) {
            std::uint64_t eight;
            std::memcpy(&eight, s, 8);
            eight &= ~(0x0101010101010101u * (VECTOR | SCALAR));
            std::memcpy(s, &eight, 8);
        }
        for (; s < end; s++)
            *s &= static_cast<std::uint8_t>(~(VECTOR | SCALAR));
    }
    for (int i = 0; i < ik_emulation::FENCED_SPACES; i++)
        if ((spaces >> i & 1) != 0)
            c.knowledge.own.fenced[i][c.id] = c.now;
    c.now++;
    settle(c);
}

/* Check and record the bytes of LM, SM or GM that a copy begins to read or write. */
static void begin_end(Core &c, const Where &w, char *at, std::size_t bytes, bool target, xpusim_direction d,
    bool asynchronous, const Site &site, const char *from)
{
    const std::string name = std::string(target ? "writes by " : "reads by ") + name_of(d);
    const std::string what = name + (asynchronous ? "_ASYNC" : "");
    if (w.kind == Kind::local) {
        reach(c, at);
        over_budget(c, site);
        if (!target) {
            read_lm(c, at, bytes, site, what.c_str(), true, true);
        } else {
            std::uint8_t seen = 0;
            for (std::size_t i = 0; i < bytes; i++)
                seen |= c.state[w.offset + i];
            for (const bool other_target : { true, false })
                if ((seen & (other_target ? TARGET : SOURCE)) != 0) {
                    const Flight *f = flight_at(c, at, bytes, other_target);
                    report(rules::copy_overlap, c, site, what, describe(c, w, at, bytes), c,
                        f == nullptr ? Site() : f->site,
                        std::string(other_target ? "still writes there by " : "still reads there by ")
                            + name_of(f == nullptr ? d : f->direction) + "_ASYNC");
                }
        }
        if (asynchronous)
            for (std::size_t i = 0; i < bytes; i++)
                c.state[w.offset + i] |= target ? TARGET : SOURCE;
        return;
    }
    if (w.kind == Kind::shared) {
        use_sm(c, site, w.offset, bytes, what);
        Stager &stager = state.stagers[static_cast<std::size_t>(state.interval)];
        if (target) {
            stager.core = stager.core == -1 || stager.core == c.id ? c.id : -2;
            stager.bytes[state.library->shared(w.offset)] += bytes;
        }
    }
    if (w.kind == Kind::shared || w.kind == Kind::global) {
        const int needs = !asynchronous ? 0 : target ? target_of(d) : source_of(d) | target_of(d);
        const bool ordered =
            touch(c, w, at, bytes, access(c, site, asynchronous ? Act::copy_async : Act::copy, target, needs, d), from);
        if (!ordered && !target)
            scatter(c, w, bytes, std::vector<std::uint8_t>(bytes, 1).data(), site, what);
    }
}

static void copy(Core &c, xpusim_direction d, const char *from, std::size_t from_rest, char *to, std::size_t to_rest,
    std::int64_t length, bool asynchronous, const Site &site)
{
    report_beyond(c, nullptr, 0, "computes an address");
    settle_move(c);
    asynchronous = asynchronous && !settings().fix_mfence;
    if (length <= 0) {
        report(rules::copy_length, c, site, std::string("copies ") + std::to_string(length) + " bytes by " + name_of(d),
            "");
        return;
    }
    if (length > INT32_MAX)
        report(rules::copy_truncated, c, site,
            std::string("copies ") + std::to_string(length) + " bytes by " + name_of(d), "");
    const int spaces = source_of(d) | target_of(d);
    const std::uint64_t max_bytes = (spaces & XPUSIM_LM) != 0 ? state.model.lm : state.model.sm;
    if (static_cast<std::uint64_t>(length) > max_bytes)
        report(rules::copy_size, c, site, std::string("copies ") + std::to_string(length) + " bytes by " + name_of(d),
            "of " + std::to_string(max_bytes) + " there are");
    auto bytes = static_cast<std::size_t>(length);
    const Where source = where(c, from), target = where(c, to);
    const std::size_t readable = end_of(c, source, from, bytes, from_rest, false, d, site),
                      writable = end_of(c, target, to, bytes, to_rest, true, d, site);
    if (readable < bytes) /* already reported: do not report the rest as unwritten, too */
        scatter(c, target, writable, std::vector<std::uint8_t>(writable, 1).data(), site, "");
    bytes = std::min(readable, writable);
    if (bytes == 0)
        return;
    const auto gm = reinterpret_cast<std::uintptr_t>(source_of(d) == XPUSIM_GM ? from : to);
    c.counts.copies[d]++;
    c.counts.bytes[d] += bytes;
    c.counts.lines[d] += (gm + bytes - 1) / 64 - gm / 64 + 1;
    begin_end(c, source, const_cast<char *>(from), bytes, false, d, asynchronous, site, nullptr);
    begin_end(c, target, to, bytes, true, d, asynchronous, site, from);
    Flight f{ d, from, to, bytes, site, false, false, {}, {}, false, false };
    if (!asynchronous) {
        land(c, f);
        for (Flight &earlier : c.flights) { /* its wait is a fence, which drains what the core has in flight */
            move(c, earlier);
            earlier.drained = true;
        }
        return;
    }
    if (seed() != 0 && (state.random() & 1) != 0)
        move(c, f); /* it lands early, but may be used only after the fence all the same */
    c.flights.push_back(std::move(f));
}

} // namespace xpurt::check

bool xpurt::record_gm_read(const void *from, std::uint64_t bytes)
{
    using namespace check;
    const auto a = memory().find(from);
    if (a == nullptr || a->shadow == nullptr || !a->has(from))
        return true;
    GmShadow &shadow = *a->shadow;
    const auto first = static_cast<std::uint64_t>(static_cast<const char *>(from) - a->start);
    bool valid = true;
    const auto copied = [](std::uint8_t w) { return w > 1; };
    for (std::uint8_t *at = shadow.written + first, *end = at + bytes; (at = std::find_if(at, end, copied)) != end;) {
        std::uint8_t *stop = std::find_if_not(at, end, copied);
        const auto begin = static_cast<std::uint64_t>(at - shadow.written),
                   count = static_cast<std::uint64_t>(stop - at);
        const bool moved = std::find(at, stop, 3) != stop;
        std::memset(at, 1, count); /* report it only once */
        at = stop;
        const GmShadow::Blank *blank = blank_at(shadow, begin, begin + count);
        if ((begin + 3) / 4 * 4 + 4 > begin + count || blank == nullptr)
            continue; /* between the members of a structure */
        ik_emulation::Finding f;
        f.kernel = blank->deed->name;
        f.place = { blank->deed->cluster, blank->deed->core, blank->deed->where, blank->deed->what };
        f.bytes = plural(count, "byte") + " that nobody wrote, at offset " + std::to_string(begin) + " of "
            + plural(a->bytes, "byte") + " of device memory, which the host reads";
        /* Copies are rounded up to 64 bytes; an element that a statement moved to its place is meant to be there */
        const bool rounding = begin + count == a->bytes && count < 64 && !moved;
        report_once(rounding ? rules::uninitialised_rounding : rules::uninitialised_copy, std::move(f));
        valid = valid && rounding;
    }
    return valid;
}

using namespace xpurt;
using namespace xpurt::check;

extern "C" {

void xpusim_result(const void *from, std::uint64_t bytes, const char *name)
{
    const auto a = memory().find(from);
    if (a == nullptr || a->shadow == nullptr)
        return;
    const std::uint8_t *const begin = a->shadow->written + (static_cast<const char *>(from) - a->start),
                              *const end = begin + bytes, *const missing = std::find(begin, end, 0);
    if (missing == end)
        return;
    ik_emulation::Finding f;
    f.place.what = "the kernels end";
    f.bytes = plural(static_cast<std::uint64_t>(std::count(missing, end, 0)), "byte")
        + " that nobody wrote, the first at offset " + std::to_string(missing - begin) + " of " + name;
    report_once(rules::unwritten, std::move(f));
}

void xpusim_copy(xpusim_direction direction, const void *from, size_t from_rest, void *to, size_t to_rest,
    int64_t bytes, int asynchronous, xpusim_site site)
{
    if (self == nullptr)
        return;
    const At runtime(IN_RUNTIME);
    copy(*self, direction, static_cast<const char *>(from), from_rest, static_cast<char *>(to), to_rest, bytes,
        asynchronous != 0, site);
}

void xpusim_fence(int spaces, xpusim_site)
{
    if (self == nullptr)
        return;
    const At runtime(IN_RUNTIME);
    self->counts.fences++;
    fence(*self, spaces);
}
}
