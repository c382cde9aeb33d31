/* Vectors of checked kernels: the checks that the language's headers call for each vector load and store. */
#include "check_state.h"

#include <algorithm>

using namespace xpurt;
using namespace xpurt::check;

static int space_of(const Where &w)
{
    switch (w.kind) {
    case Kind::local:
    case Kind::parameters: return XPUSIM_LM;
    /* The intrinsics for group-shared memory name no space of a fence. */
    case Kind::shared: return of_group(w.offset) ? 0 : XPUSIM_SM;
    case Kind::global: return XPUSIM_GM;
    default: return 0;
    }
}

static Where vector_at(Core &c, const void *p, int bytes, int space, bool write, const Site &site)
{
    const Where w = where(c, p);
    const char *what = write ? "stores a vector" : "loads a vector";
    if (space_of(w) != space && space_of(w) != 0)
        report(rules::space, c, site,
            std::string(what) + " of "
                + (space == XPUSIM_LM        ? "local"
                        : space == XPUSIM_SM ? "shared"
                                             : "global")
                + " memory",
            describe(c, w, p, static_cast<std::uint64_t>(bytes)));
    return w;
}

/* A gather and a scatter access lane by lane. */
static void check_lane(Core &c, const Where &w, const char *at, std::size_t bytes, const char *what, const Site &site)
{
    if (bytes == 4 && reinterpret_cast<std::uintptr_t>(at) % 4 != 0)
        report(rules::scalar_alignment, c, site, what, describe(c, w, at, bytes));
}

extern "C" {

uint64_t xpusim_vector_load(const void *from, int bytes, int space, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr || bytes <= 0 || bytes > 64)
        return 0;
    const At runtime(IN_RUNTIME);
    settle_move(*c);
    c->counts.vector_loads++;
    const Where w = vector_at(*c, from, bytes, space, false, place);
    auto *at = static_cast<char *>(const_cast<void *>(from));
    const auto n = static_cast<std::size_t>(bytes);
    check_lane(*c, w, at, n, "loads a vector", place);
    std::uint64_t unwritten = 0;
    if (w.kind == Kind::local) {
        reach(*c, at);
        over_budget(*c, place);
        if (at < c->low + 64)
            return 0;
        std::uint8_t seen = 0, *s = c->state + w.offset;
        const std::size_t usable = static_cast<std::size_t>(c->high - at);
        for (std::size_t i = 0; i < std::min(n, usable); i++) {
            seen |= s[i];
            if ((s[i] & (WRITTEN | TARGET)) != 0)
                continue;
            if (silent(*c, at + i))
                s[i] |= WRITTEN;
            else
                unwritten |= std::uint64_t{ 1 } << i;
        }
        if ((seen & TARGET) != 0)
            read_lm(*c, at, n, place, "loads a vector", false, true);
        if ((seen & SCALAR) != 0 && !settings().fix_mfence)
            report(rules::scalar_unfenced, *c, place, "loads a vector", describe(*c, w, at, n),
                "mfence_lm() between the stores and this");
        return unwritten;
    }
    outside(*c, at, n, false, place, Act::vector);
    if (w.kind == Kind::shared)
        for (std::size_t i = 0; i < n && w.offset + i < state.sm_bytes; i++)
            unwritten |= state.sm_written[w.offset + i] != 0 ? 0 : std::uint64_t{ 1 } << i;
    return unwritten;
}

void xpusim_vector_store(void *to, int bytes, int space, uint64_t unwritten, uint64_t enabled, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr || bytes <= 0 || bytes > 64)
        return;
    const At runtime(IN_RUNTIME);
    settle_move(*c);
    c->counts.vector_stores++;
    const Where w = vector_at(*c, to, bytes, space, true, place);
    auto *at = static_cast<char *>(to);
    check_lane(*c, w, at, static_cast<std::size_t>(bytes), "stores a vector", place);
    for (int i = 0, run = 0; i < bytes; i += run) {
        run = 1;
        if ((enabled >> i & 1) == 0)
            continue;
        while (i + run < bytes && (enabled >> (i + run) & 1) != 0)
            run++;
        forget_moved(at + i, at + i + run);
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
            s = static_cast<std::uint8_t>(
                (s & (TARGET | SOURCE)) | VECTOR | ((unwritten >> k & 1) != 0 ? BLANK : WRITTEN));
        }
    }
}

void xpusim_use(uint64_t unwritten, xpusim_site place)
{
    Core *c = self;
    if (c == nullptr || unwritten == 0)
        return;
    const At runtime(IN_RUNTIME);
    report(rules::uninitialised, *c, place, "computes a result",
        plural(static_cast<std::uint64_t>(__builtin_popcountll(unwritten)), "byte") + " of a vector that nobody wrote");
}
}
