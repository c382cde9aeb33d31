/* The functions that kernels compiled with cuda_host.h call: the work-groups of core's emulation headers, behind C
 * functions. One launch at a time. */
#include <deque>

#include "work_groups.h"

using Given = ik_emulation::WorkGroups::Given;

static ik_emulation::WorkGroups blocks(128 << 10);
static int threads_of_block;
static const char *shared_begin, *shared_end;

extern "C" std::int64_t cuda_host_block() { return blocks.group(); }
extern "C" int cuda_host_thread() { return blocks.item(); }
extern "C" void cuda_host_barrier(const char *site) { blocks.barrier(site); }

extern "C" std::uint64_t cuda_host_shuffle_down(
    std::uint64_t bits, unsigned mask, int lanes, int width, const char *site)
{
    const int first = blocks.item() / 32 * 32, there = std::min(32, threads_of_block - first);
    if (mask != 0xffffffffu >> (32 - there))
        blocks.stop("the mask of the shuffle at " + std::string(site) + " is not that of the " + std::to_string(there)
            + " threads of the warp");
    return blocks.shuffle_down(bits, lanes, width, site);
}

/* Passes to `read` what the 32 threads of the warp gave, beginning with its first thread. */
template <class Read>
static void meet_warp(const Given &given, const char *site, Read read)
{
    const int first = blocks.item() / 32 * 32;
    if (threads_of_block - first < 32)
        blocks.stop(
            "a warp of " + std::to_string(threads_of_block - first) + " threads is at " + site + ", which takes 32");
    blocks.meet(given, 32, site, [&](const std::vector<Given> &all) { read(all.data() + first); });
}

static void need_shared(const void *place, std::size_t bytes, const char *site)
{
    const char *const at = static_cast<const char *>(place);
    if (at < shared_begin || at + bytes > shared_end || (at - shared_begin) % 16 != 0)
        blocks.stop("what is named at " + std::string(site)
            + " is not 16 bytes of shared memory that begin at a multiple of 16");
}

/* mma.m16n8k16 (PTX ISA): sums += left × right, with the fragments that mma.h describes; rounded to F32 after each
 * product, in the order of k. */
extern "C" void cuda_host_mma(float *sums, const float *given, const char *site)
{
    static_assert(12 * sizeof(float) <= sizeof(Given));
    Given own{};
    std::memcpy(own.data(), given, 12 * sizeof(float));
    meet_warp(own, site, [&](const Given *warp) {
        const auto element = [&](int lane, int i) {
            float v;
            std::memcpy(&v, reinterpret_cast<const char *>(warp + lane) + 4 * i, 4);
            return v;
        };
        const int g = blocks.item() % 32 / 4, t = blocks.item() % 4;
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 16; k++) {
                const float left = element(4 * g + k % 8 / 2, k % 2 + i / 2 * 2 + k / 8 * 4);
                const float right = element(4 * (2 * t + i % 2) + k % 8 / 2, 8 + k % 2 + k / 8 * 2);
                sums[i] += left * right;
            }
    });
}

/* ldmatrix.x4 (PTX ISA). */
extern "C" void cuda_host_load_matrices(unsigned *loaded, const void *row, int transposed, const char *site)
{
    need_shared(row, 16, site);
    meet_warp({ reinterpret_cast<std::uintptr_t>(row) }, site, [&](const Given *warp) {
        const int g = blocks.item() % 32 / 4, t = blocks.item() % 4;
        for (int matrix = 0; matrix < 4; matrix++) {
            loaded[matrix] = 0;
            for (int i = 0; i < 2; i++) {
                const int from = transposed ? 2 * t + i : g, at = transposed ? g : 2 * t + i;
                const auto *const elements = reinterpret_cast<const std::uint16_t *>(warp[8 * matrix + from][0]);
                loaded[matrix] |= static_cast<unsigned>(elements[at]) << (16 * i);
            }
        }
    });
}

/* Copies happen as late as they may, at the wait for their group: a kernel that does not wait reads the old contents.
 * With an odd seed they happen at once: a kernel that still needs the old contents does not find them. */
struct Copy {
    void *to;
    const void *from;
    std::size_t bytes;

    void perform() const
    {
        std::memset(to, 0, 16);
        std::memcpy(to, from, bytes);
    }
};
static std::vector<std::deque<std::vector<Copy>>> copies; /* the groups of each thread, the last one not committed */
static bool at_once;

extern "C" void cuda_host_copy_async(void *to, const void *from, int bytes, const char *site)
{
    need_shared(to, 16, site);
    if (bytes < 0 || bytes > 16 || (bytes != 0 && reinterpret_cast<std::uintptr_t>(from) % 16 != 0))
        blocks.stop(
            "the copy at " + std::string(site) + " is not one of at most 16 bytes that begin at a multiple of 16");
    const Copy made{ to, from, static_cast<std::size_t>(bytes) };
    if (at_once)
        made.perform();
    else
        copies[static_cast<std::size_t>(blocks.item())].back().push_back(made);
}

extern "C" void cuda_host_commit_copies() { copies[static_cast<std::size_t>(blocks.item())].emplace_back(); }

extern "C" void cuda_host_wait_copies(int groups)
{
    auto &own = copies[static_cast<std::size_t>(blocks.item())];
    for (; own.size() > static_cast<std::size_t>(groups) + 1; own.pop_front())
        for (const Copy &c : own.front())
            c.perform();
}

struct Launch {
    void (*thread)(void *);
    void *values;
};

/* Run a thread of the kernel, which begins with no copies in flight. */
static void thread_of(void *given)
{
    copies[static_cast<std::size_t>(blocks.item())].assign(1, {});
    const auto *const launch = static_cast<const Launch *>(given);
    launch->thread(launch->values);
}

/* Returns null, or what the kernel did wrong. */
extern "C" const char *cuda_host_run(void (*thread)(void *), void *values, std::int64_t count, int threads,
    char *shared, std::size_t bytes, std::uint64_t seed)
{
    static std::string wrong;
    threads_of_block = threads;
    at_once = seed % 2 == 1;
    shared_begin = shared;
    shared_end = shared + bytes;
    copies.resize(std::max(copies.size(), static_cast<std::size_t>(threads)));
    Launch launch{ thread, values };
    wrong = blocks.run(thread_of, &launch, count, threads, shared, bytes, seed);
    return wrong.empty() ? nullptr : wrong.c_str();
}
