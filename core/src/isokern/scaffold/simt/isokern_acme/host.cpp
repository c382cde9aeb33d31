/* The functions that kernels call: the work-groups of core's emulation headers, behind C functions. One launch at a
 * time. */
#include "work_groups.h"

static ik_emulation::WorkGroups work_groups(128 << 10);

extern "C" std::int64_t acme_group() { return work_groups.group(); }
extern "C" int acme_item() { return work_groups.item(); }
extern "C" void acme_barrier(const char *site) { work_groups.barrier(site); }
extern "C" std::uint64_t acme_shuffle_down(std::uint64_t bits, int lanes, int width, const char *site)
{ return work_groups.shuffle_down(bits, lanes, width, site); }

/* Returns null, or what the kernel did wrong. */
extern "C" const char *acme_run(void (*item)(void *), void *values, std::int64_t groups, int local, char *memory,
    std::size_t bytes, std::uint64_t seed)
{
    static std::string wrong;
    wrong = work_groups.run(item, values, groups, local, memory, bytes, seed);
    return wrong.empty() ? nullptr : wrong.c_str();
}
