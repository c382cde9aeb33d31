// Cooperative groups and CUB's primitives, each beside what it has to be.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cub/cub.cuh>
#include <stdio.h>
#include <assert.h>

namespace cg = cooperative_groups;

__global__ void groups(int *sums)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(warp);
    const int rank = block.thread_rank();
    assert(warp.meta_group_rank() == rank / 32 && warp.meta_group_size() == 3 && warp.thread_rank() == rank % 32);
    const int sum = cg::reduce(warp, rank, cg::plus<int>());
    assert(sum == 32 * (rank / 32 * 32) + 496);
    assert(cg::reduce(eight, rank, cg::greater<int>()) == rank / 8 * 8 + 7);
    assert(cg::reduce(eight, rank, cg::less<int>()) == rank / 8 * 8);
    assert(eight.shfl(rank, 3) == rank / 8 * 8 + 3 && eight.shfl_xor(rank, 1) == (rank ^ 1));
    assert(cg::inclusive_scan(warp, 1) == rank % 32 + 1 && cg::exclusive_scan(warp, 2) == rank % 32 * 2);
    assert(eight.ballot(rank % 8 < 3) == 7 && eight.any(rank % 8 == 5) && !eight.all(rank % 8 == 5));
    if (rank % 3 == 0) {
        cg::coalesced_group active = cg::coalesced_threads();
        const int count = active.size();
        assert(count == (rank / 32 == 2 ? 10 : 11));
        assert(cg::reduce(active, 1, cg::plus<int>()) == count);
        assert(active.shfl(rank, 0) == (rank / 32 * 32 + 2) / 3 * 3);
    }
    block.sync();
    if (warp.thread_rank() == 0)
        sums[warp.meta_group_rank()] = sum;
}

__global__ void blocks(const int *x, int *total, int *scanned)
{
    using Reduce = cub::BlockReduce<int, 96>;
    using Scan = cub::BlockScan<int, 96>;
    using Warp = cub::WarpReduce<int>;
    __shared__ typename Reduce::TempStorage reduce;
    __shared__ typename Scan::TempStorage scan;
    __shared__ Warp::TempStorage warps[3];
    const int i = threadIdx.x, sum = Reduce(reduce).Sum(x[i]);
    __syncthreads();
    const int most = Reduce(reduce).Reduce(x[i], cub::Max());
    if (i == 0)
        total[0] = sum, total[1] = most;
    Scan(scan).ExclusiveSum(x[i], scanned[i]);
    const int of_warp = Warp(warps[i / 32]).Sum(1);
    assert(i % 32 != 0 || of_warp == 32);
}

int main()
{
    int *sums, *x, *total, *scanned, host[96], results[96];
    cudaMalloc(&sums, 3 * sizeof(int));
    cudaMalloc(&x, sizeof host);
    cudaMalloc(&total, 2 * sizeof(int));
    cudaMalloc(&scanned, sizeof host);
    groups<<<1, 96>>>(sums);
    cudaMemcpy(results, sums, 3 * sizeof(int), cudaMemcpyDeviceToHost);
    bool right = results[2] == 32 * 64 + 496;
    int wanted = 0;
    for (int i = 0; i < 96; i++)
        host[i] = i * 7 % 50, wanted += host[i];
    cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
    blocks<<<1, 96>>>(x, total, scanned);
    cudaMemcpy(results, total, 2 * sizeof(int), cudaMemcpyDeviceToHost);
    right = right && results[0] == wanted && results[1] == 49;
    cudaMemcpy(results, scanned, sizeof results, cudaMemcpyDeviceToHost);
    right = right && results[0] == 0 && results[95] == wanted - host[95];
    void *workspace = nullptr;
    size_t bytes = 0;
    cub::DeviceReduce::Sum(workspace, bytes, x, total, 96);
    cudaMalloc(&workspace, bytes);
    cub::DeviceReduce::Sum(workspace, bytes, x, total, 96);
    cub::DeviceScan::InclusiveSum(workspace, bytes, x, scanned, 96);
    cudaMemcpy(results, scanned, sizeof results, cudaMemcpyDeviceToHost);
    int sum = 0;
    cudaMemcpy(&sum, total, sizeof sum, cudaMemcpyDeviceToHost);
    right = right && sum == wanted && results[95] == wanted && results[1] == 7;
    printf(right ? "all of it\n" : "wrong\n");
    return !right;
}
