/* Happens-before among the threads of blocks: what one thread knows to be done by the others.
 *
 * A stamp is a number that grows at each barrier, fence and atomic of the launch; an access has its thread's stamp. */
#ifndef ISOKERN_CUDA_KNOWN_H
#define ISOKERN_CUDA_KNOWN_H
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace cuda_emulator
{

/* What is known of one block: the accesses of all its threads up to a stamp, and of some threads up to a later one. */
struct KnownBlock {
    std::uint32_t all = 0;
    std::vector<std::pair<int, std::uint32_t>> some; /* by thread */

    bool knows(int thread, std::uint32_t stamp) const
    {
        if (stamp <= all)
            return true;
        const auto found = std::lower_bound(some.begin(), some.end(), std::pair(thread, std::uint32_t{ 0 }));
        return found != some.end() && found->first == thread && stamp <= found->second;
    }
    void join(int thread, std::uint32_t stamp)
    {
        const auto found = std::lower_bound(some.begin(), some.end(), std::pair(thread, std::uint32_t{ 0 }));
        if (found != some.end() && found->first == thread)
            found->second = std::max(found->second, stamp);
        else if (stamp > all)
            some.insert(found, { thread, stamp });
    }
    void join(const KnownBlock &other)
    {
        all = std::max(all, other.all);
        for (const auto &[thread, stamp] : other.some)
            join(thread, stamp);
        some.erase(
            std::remove_if(some.begin(), some.end(), [&](const auto &one) { return one.second <= all; }), some.end());
    }
};

/* What is known of all blocks. Many threads share one object, so it is not changed once it is shared. */
struct Known {
    std::map<std::int64_t, KnownBlock> blocks;

    bool knows(std::int64_t block, int thread, std::uint32_t stamp) const
    {
        const auto found = blocks.find(block);
        return found != blocks.end() && found->second.knows(thread, stamp);
    }
    void join(const Known &other)
    {
        for (const auto &[block, part] : other.blocks)
            blocks[block].join(part);
    }
};
using Knowledge = std::shared_ptr<const Known>;

/* Return both; the same object where one of them is all. */
inline Knowledge join(const Knowledge &a, const Knowledge &b)
{
    if (a == b || b == nullptr)
        return a;
    if (a == nullptr)
        return b;
    auto made = std::make_shared<Known>(*a);
    made->join(*b);
    return made;
}

} // namespace cuda_emulator
#endif
