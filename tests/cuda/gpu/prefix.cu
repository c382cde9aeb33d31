// The elements above a limit, packed: places by ballots of warps and one atomic for each block.
__global__ void pack(const int *x, int *y, int *count, int n, int limit)
{
    __shared__ int begins[33];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / warpSize, lane = threadIdx.x % warpSize;
    const int v = i < n ? x[i] : limit;
    const unsigned those = __ballot_sync(0xffffffffu, v > limit);
    if (lane == 0)
        begins[warp] = __popc(those);
    const int all = __syncthreads_count(v > limit);
    if (threadIdx.x == 0) {
        int begin = atomicAdd(count, all);
        for (int w = 0; w < blockDim.x / warpSize; w++) {
            const int own = begins[w];
            begins[w] = begin;
            begin += own;
        }
    }
    __syncthreads();
    if (v > limit)
        y[begins[warp] + __popc(those & ((1u << lane) - 1))] = v;
}
