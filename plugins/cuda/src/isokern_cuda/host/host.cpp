/* What kernels compiled with cuda_host.h call: the work-groups of core's emulation headers, behind C functions. One launch at a time. */
#include "work_groups.h"

static ik_emulation::WorkGroups blocks(128 << 10);
static int threads_of_block;

extern "C" std::int64_t cuda_host_block() { return blocks.group(); }
extern "C" int cuda_host_thread() { return blocks.item(); }
extern "C" void cuda_host_barrier(const char *site) { blocks.barrier(site); }

extern "C" std::uint64_t cuda_host_shuffle_down(std::uint64_t bits, unsigned mask, int lanes, int width, const char *site)
{
    const int first = blocks.item() / 32 * 32, there = std::min(32, threads_of_block - first);
    if (mask != 0xffffffffu >> (32 - there))
        blocks.stop("the mask of the shuffle at " + std::string(site) + " is not that of the " + std::to_string(there) + " threads of the warp");
    return blocks.shuffle_down(bits, lanes, width, site);
}

/* Null, or what the kernel did wrong. */
extern "C" const char *cuda_host_run(void (*thread)(void *), void *values, std::int64_t count, int threads, char *shared, std::size_t bytes, std::uint64_t seed)
{
    static std::string wrong;
    threads_of_block = threads;
    wrong = blocks.run(thread, values, count, threads, shared, bytes, seed);
    return wrong.empty() ? nullptr : wrong.c_str();
}
