/* Cooperative groups ("Cooperative Groups" of the CUDA C++ Programming Guide) by barriers and shuffles. */
#ifndef ISOKERN_COOPERATIVE_GROUPS_H
#define ISOKERN_COOPERATIVE_GROUPS_H
#include "cuda_runtime.h"

namespace cooperative_groups
{

#define CUDA_EMULATOR_MEMBER inline __attribute__((always_inline, unused))

/* The threads of a block, in the order of their number. */
class thread_block
{
  public:
    CUDA_EMULATOR_MEMBER static void sync() { __syncthreads(); }
    CUDA_EMULATOR_MEMBER static unsigned thread_rank()
    { return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
    CUDA_EMULATOR_MEMBER static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    CUDA_EMULATOR_MEMBER static unsigned size() { return num_threads(); }
    CUDA_EMULATOR_MEMBER static dim3 group_index() { return blockIdx; }
    CUDA_EMULATOR_MEMBER static dim3 thread_index() { return threadIdx; }
    CUDA_EMULATOR_MEMBER static dim3 dim_threads() { return blockDim; }
    CUDA_EMULATOR_MEMBER static dim3 group_dim() { return blockDim; }
};
CUDA_EMULATOR_INLINE thread_block this_thread_block() { return {}; }
CUDA_EMULATOR_INLINE void sync(const thread_block &) { __syncthreads(); }

/* All blocks. They run one after the other, so they cannot wait for each other. */
class grid_group
{
  public:
    CUDA_EMULATOR_MEMBER static void sync()
    {
        if (gridDim.x * gridDim.y * gridDim.z != 1)
            cuda_emulator_trap("the sync() of a grid of several blocks, which is not emulated");
        __threadfence();
        __syncthreads();
    }
    CUDA_EMULATOR_MEMBER static bool is_valid() { return true; }
    CUDA_EMULATOR_MEMBER static unsigned long long block_rank()
    { return (1ull * blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
    CUDA_EMULATOR_MEMBER static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
    CUDA_EMULATOR_MEMBER static unsigned long long thread_rank()
    { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    CUDA_EMULATOR_MEMBER static unsigned long long num_threads() { return num_blocks() * thread_block::size(); }
    CUDA_EMULATOR_MEMBER static unsigned long long size() { return num_threads(); }
    CUDA_EMULATOR_MEMBER static dim3 dim_blocks() { return gridDim; }
    CUDA_EMULATOR_MEMBER static dim3 block_index() { return blockIdx; }
};
CUDA_EMULATOR_INLINE grid_group this_grid() { return {}; }
CUDA_EMULATOR_INLINE void sync(const grid_group &g) { g.sync(); }

/* Some lanes of a warp; a lane's rank is its place among them. */
class lanes_group
{
  public:
    CUDA_EMULATOR_MEMBER explicit lanes_group(unsigned mask) : mask_(mask) {}
    CUDA_EMULATOR_MEMBER void sync() const { __syncwarp(mask_); }
    CUDA_EMULATOR_MEMBER unsigned thread_rank() const { return __popc(mask_ & ((1u << lane()) - 1)); }
    CUDA_EMULATOR_MEMBER unsigned num_threads() const { return __popc(mask_); }
    CUDA_EMULATOR_MEMBER unsigned size() const { return __popc(mask_); }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl(T value, unsigned rank) const
    { return __shfl_sync(mask_, value, lane_of(rank % size())); }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl_up(T value, unsigned delta) const
    { return __shfl_sync(mask_, value, lane_of(thread_rank() < delta ? thread_rank() : thread_rank() - delta)); }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl_down(T value, unsigned delta) const
    {
        const unsigned rank = thread_rank() + delta;
        return __shfl_sync(mask_, value, lane_of(rank < size() ? rank : thread_rank()));
    }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl_xor(T value, unsigned bits) const
    {
        const unsigned rank = thread_rank() ^ bits;
        return __shfl_sync(mask_, value, lane_of(rank < size() ? rank : thread_rank()));
    }
    CUDA_EMULATOR_MEMBER int any(int predicate) const { return __any_sync(mask_, predicate); }
    CUDA_EMULATOR_MEMBER int all(int predicate) const { return __all_sync(mask_, predicate); }
    CUDA_EMULATOR_MEMBER unsigned ballot(int predicate) const { return packed(__ballot_sync(mask_, predicate)); }
    template <class T>
    CUDA_EMULATOR_MEMBER unsigned match_any(T value) const
    { return packed(__match_any_sync(mask_, value)); }
    template <class T>
    CUDA_EMULATOR_MEMBER unsigned match_all(T value, int &all) const
    { return packed(__match_all_sync(mask_, value, &all)); }
    CUDA_EMULATOR_MEMBER unsigned mask() const { return mask_; }

  private:
    CUDA_EMULATOR_MEMBER static int lane() { return static_cast<int>(thread_block::thread_rank() % 32); }
    CUDA_EMULATOR_MEMBER int lane_of(unsigned rank) const
    {
        unsigned rest = mask_;
        for (unsigned i = 0; i < rank; i++)
            rest &= rest - 1;
        return __builtin_ctz(rest);
    }
    /* The bits of the group's lanes, by rank. */
    CUDA_EMULATOR_MEMBER unsigned packed(unsigned lanes) const
    {
        unsigned result = 0, rank = 0;
        for (unsigned rest = mask_; rest != 0; rest &= rest - 1)
            result |= (lanes >> __builtin_ctz(rest) & 1u) << rank++;
        return result;
    }
    unsigned mask_;
};

class coalesced_group : public lanes_group
{
  public:
    using lanes_group::lanes_group;
    CUDA_EMULATOR_MEMBER static unsigned meta_group_rank() { return 0; }
    CUDA_EMULATOR_MEMBER static unsigned meta_group_size() { return 1; }
};
CUDA_EMULATOR_INLINE coalesced_group coalesced_threads() { return coalesced_group(__activemask()); }

/* SIZE neighbouring threads of a block; SIZE is a power of two of at most 32. */
template <unsigned SIZE, class Parent = thread_block>
class thread_block_tile : public lanes_group
{
    static_assert(SIZE <= 32 && (SIZE & (SIZE - 1)) == 0, "a tile has a power of two of at most 32 threads here");

  public:
    CUDA_EMULATOR_MEMBER thread_block_tile() : lanes_group(own_mask()) {}
    CUDA_EMULATOR_MEMBER static constexpr unsigned size() { return SIZE; }
    CUDA_EMULATOR_MEMBER static constexpr unsigned num_threads() { return SIZE; }
    CUDA_EMULATOR_MEMBER static unsigned thread_rank() { return thread_block::thread_rank() % SIZE; }
    CUDA_EMULATOR_MEMBER static unsigned meta_group_rank() { return thread_block::thread_rank() / SIZE; }
    CUDA_EMULATOR_MEMBER static unsigned meta_group_size() { return (thread_block::size() + SIZE - 1) / SIZE; }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl(T value, int rank) const
    { return __shfl_sync(mask(), value, rank, SIZE); }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl_up(T value, unsigned delta) const
    { return __shfl_up_sync(mask(), value, delta, SIZE); }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl_down(T value, unsigned delta) const
    { return __shfl_down_sync(mask(), value, delta, SIZE); }
    template <class T>
    CUDA_EMULATOR_MEMBER T shfl_xor(T value, unsigned bits) const
    { return __shfl_xor_sync(mask(), value, static_cast<int>(bits), SIZE); }

  private:
    CUDA_EMULATOR_MEMBER static unsigned own_mask()
    { return (SIZE == 32 ? ~0u : (1u << SIZE % 32) - 1) << thread_block::thread_rank() % 32 / SIZE * SIZE; }
};
/* A part of the block whose size is known when it runs. */
class thread_group : public lanes_group
{
  public:
    using lanes_group::lanes_group;
    CUDA_EMULATOR_MEMBER thread_group(const lanes_group &other) : lanes_group(other) {}
};
template <unsigned SIZE, class Parent>
CUDA_EMULATOR_INLINE thread_block_tile<SIZE, Parent> tiled_partition(const Parent &)
{ return {}; }
CUDA_EMULATOR_INLINE thread_group tiled_partition(const thread_block &, unsigned size)
{ return thread_group((size == 32 ? ~0u : (1u << size) - 1) << thread_block::thread_rank() % 32 / size * size); }
template <class G>
CUDA_EMULATOR_INLINE coalesced_group binary_partition(const G &group, bool predicate)
{
    const unsigned those = __ballot_sync(group.mask(), predicate);
    return coalesced_group(predicate ? those : group.mask() & ~those);
}
template <class G, class T>
CUDA_EMULATOR_INLINE coalesced_group labeled_partition(const G &group, T label)
{ return coalesced_group(__match_any_sync(group.mask(), label)); }
template <class G>
CUDA_EMULATOR_INLINE void sync(const G &group)
{ group.sync(); }

/* Operators, and what is made with them */
#define CUDA_EMULATOR_OPERATOR(name, expression) \
    template <class T> \
    struct name { \
        CUDA_EMULATOR_MEMBER T operator()(T a, T b) const { return expression; } \
    };
CUDA_EMULATOR_OPERATOR(plus, a + b)
CUDA_EMULATOR_OPERATOR(less, b < a ? b : a)
CUDA_EMULATOR_OPERATOR(greater, a < b ? b : a)
CUDA_EMULATOR_OPERATOR(bit_and, a &b)
CUDA_EMULATOR_OPERATOR(bit_or, a | b)
CUDA_EMULATOR_OPERATOR(bit_xor, a ^ b)
template <class G, class T, class F>
CUDA_EMULATOR_INLINE T reduce(const G &group, T value, F function)
{
    /* Pairs of halves, as the tree of a warp does; ranks beyond the last one are left out */
    for (unsigned step = 1; step < group.size(); step *= 2) {
        const unsigned rank = group.thread_rank();
        const T other = group.shfl(value, (rank ^ step) < group.size() ? rank ^ step : rank);
        if ((rank ^ step) < group.size())
            value = function(value, other);
    }
    return (group.size() & (group.size() - 1)) == 0 ? value : group.shfl(value, 0);
}
template <class G, class T, class F>
CUDA_EMULATOR_INLINE T inclusive_scan(const G &group, T value, F function)
{
    for (unsigned step = 1; step < group.size(); step *= 2) {
        const T other = group.shfl_up(value, step);
        if (group.thread_rank() >= step)
            value = function(other, value);
    }
    return value;
}
template <class G, class T>
CUDA_EMULATOR_INLINE T inclusive_scan(const G &group, T value)
{ return inclusive_scan(group, value, plus<T>()); }
template <class G, class T, class F>
CUDA_EMULATOR_INLINE T exclusive_scan(const G &group, T value, F function)
{
    const T sum = inclusive_scan(group, value, function), before = group.shfl_up(sum, 1);
    return group.thread_rank() == 0 ? T() : before;
}
template <class G, class T>
CUDA_EMULATOR_INLINE T exclusive_scan(const G &group, T value)
{ return exclusive_scan(group, value, plus<T>()); }
template <class G, class F>
CUDA_EMULATOR_INLINE void invoke_one(const G &group, F function)
{
    if (group.thread_rank() == 0)
        function();
}

/* Copies by all threads of a group; done when they have waited. */
template <class G>
CUDA_EMULATOR_INLINE void memcpy_async(const G &group, void *to, const void *from, size_t bytes)
{
    for (size_t i = group.thread_rank(); i < bytes; i += group.size())
        cuda_emulator_copy_async(static_cast<char *>(to) + i, static_cast<const char *>(from) + i, 1, 1);
    cuda_emulator_commit_copies();
}
template <class G>
CUDA_EMULATOR_INLINE void wait(const G &group)
{
    cuda_emulator_wait_copies(0);
    group.sync();
}
template <unsigned STAGES, class G>
CUDA_EMULATOR_INLINE void wait_prior(const G &group)
{
    cuda_emulator_wait_copies(STAGES);
    group.sync();
}

} // namespace cooperative_groups
#endif
