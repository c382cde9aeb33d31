/* Indices and pointers that leave their arrays: gcc's -fsanitize=bounds,object-size calls the functions below before
 * the access (gcc's own runtime is not linked). Only the access itself, which is announced next, says for certain which
 * memory that is. */
#include <cstdint>
#include <cstdlib>

#include "check_state.h"
#include "fault.h"

namespace xpurt::check
{

/* What gcc passes: a place in the source, and a type. The lowest bit of `layout` of an integer type is its sign, the
 * bits above are the logarithm of its width. */
struct Described {
    std::uint16_t kind, layout;
    char name[1]; /* in quotes */
};
struct Place {
    const char *file;
    std::uint32_t line, column;
};
struct OutOfBounds {
    Place place;
    const Described *array, *index;
};
struct Mismatch {
    Place place;
    const Described *type;
    unsigned char alignment, kind;
};

static long long value_of(const Described &type, std::uintptr_t value)
{
    const int width = 1 << (type.layout >> 1);
    if ((type.layout & 1) == 0 || width >= 64)
        return static_cast<long long>(value);
    return static_cast<long long>(value << (64 - width)) >> (64 - width);
}

/* Keep the first of a statement's announcements: the index, which the pointer follows from. */
static void announce(const Place &place, const Beyond &found)
{
    Core *c = self;
    if (c == nullptr || c->depth == 0 || place.file == nullptr)
        return;
    const At runtime(IN_RUNTIME);
    if (of_the_language(place.file))
        return; /* its functions announce what they access, with the author's line */
    if (c->beyond.site.file != nullptr && found.pointer != nullptr) {
        c->beyond.pointer = found.pointer;
        return;
    }
    /* An element that is moved is named twice, the first time without an access. */
    const Beyond &b = c->beyond;
    const bool again = b.site.file != nullptr && std::strcmp(b.site.file, place.file) == 0
        && b.site.line == static_cast<int>(place.line) && b.type != nullptr && found.type != nullptr
        && std::strcmp(b.type, found.type) == 0 && b.index == found.index;
    if (!again)
        report_beyond(*c, nullptr, 0, "computes an address");
    c->beyond = found;
    c->beyond.site = { place.file, static_cast<int>(place.line) };
    c->fast = c->high;
}

/* How far an address is from a range. */
static std::uint64_t distance(const char *at, const char *begin, const char *end)
{ return at < begin ? static_cast<std::uint64_t>(begin - at) : at >= end ? static_cast<std::uint64_t>(at - end) : 0; }

/* An index is one of a declared array, which is not in global memory. */
static const Rule &rule_of(const Core &c, const Where &w, const char *at, bool pointer)
{
    switch (w.kind) {
    case Kind::shared: return rules::sm_bounds;
    case Kind::global: return rules::gm_bounds;
    case Kind::host:
        if (pointer && memory().in_range(at))
            return rules::gm_bounds;
        return state.sm != nullptr && distance(at, state.sm, state.sm + state.sm_bytes) < distance(at, c.low, c.high)
            ? rules::sm_bounds
            : rules::lm_bounds;
    default: return rules::lm_bounds;
    }
}

bool report_beyond(Core &c, const char *at, std::size_t bytes, const char *what)
{
    const Beyond b = c.beyond;
    if (b.site.file == nullptr)
        return false;
    c.beyond = {};
    c.fast = c.mark;
    if (b.pointer != nullptr)
        at = b.pointer;
    const Where w = where(c, at);
    std::string text = at == nullptr ? "" : describe(c, w, at, bytes);
    if (b.type != nullptr)
        text += (text.empty() ? "" : ", ") + ("index " + std::to_string(b.index)) + " of an array " + b.type;
    else
        text += ", beyond the array that the pointer was computed from";
    /* An index may lead to any memory: its array is where index 0 is. */
    const char *array = b.type == nullptr || at == nullptr ? at : at - b.index * static_cast<long long>(bytes);
    report(array == nullptr ? rules::lm_bounds : rule_of(c, where(c, array), array, b.type == nullptr), c, b.site, what,
        text);
    return true;
}

} // namespace xpurt::check

using namespace xpurt;
using namespace xpurt::check;

extern "C" {

void __ubsan_handle_out_of_bounds(const OutOfBounds *at, std::uintptr_t index)
{ announce(at->place, { {}, nullptr, at->array->name, value_of(*at->index, index) }); }

void __ubsan_handle_type_mismatch_v1(const Mismatch *at, std::uintptr_t pointer)
{ announce(at->place, { {}, reinterpret_cast<const char *>(pointer), nullptr, 0 }); }
}
