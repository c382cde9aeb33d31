/* What the types of the device mean, and those of the host do not: which memory a pointer is for, and how many bits a
 * variable has. */
#include "check_state.h"

using namespace xpurt;
using namespace xpurt::check;

extern "C" {

int xpusim_local_pointer_begins(const volatile void *pointer)
{
    Core *c = self;
    auto *at = static_cast<const char *>(const_cast<const void *>(pointer));
    if (c == nullptr || c->depth == 0 || (at >= c->low && at < c->high))
        return 0;
    const At runtime(IN_RUNTIME);
    const Where w = where(*c, at);
    if (w.kind != Kind::global)
        return 0;
    c->as_local.push_back(w.allocation.get());
    return 1;
}

void xpusim_local_pointers_end(int count)
{
    if (self == nullptr)
        return;
    const At runtime(IN_RUNTIME);
    auto &all = self->as_local;
    all.resize(all.size() - std::min(all.size(), static_cast<std::size_t>(count)));
}

void xpusim_local_pointer(const volatile void *pointer, xpusim_site site)
{
    Core *c = self;
    auto *at = static_cast<const char *>(const_cast<const void *>(pointer));
    if (c == nullptr || c->depth == 0 || (at >= c->low && at < c->high))
        return;
    const At runtime(IN_RUNTIME);
    if (const Where w = where(*c, at); w.kind == Kind::global)
        report(rules::global_dereference, *c, site, "dereferences a pointer", describe(*c, w, at, 1));
}

/* Addresses have more bits here than on the device. */
void xpusim_long(int64_t value, xpusim_site site)
{
    Core *c = self;
    if (c == nullptr || c->depth == 0)
        return;
    const At runtime(IN_RUNTIME);
    const auto *at = reinterpret_cast<const char *>(value);
    if (where(*c, at).kind == Kind::host && !memory().in_range(at))
        report(rules::long_truncated, *c, site, "gives " + std::to_string(value) + " to a variable of 32 bits", "");
}
}
