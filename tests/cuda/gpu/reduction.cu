// Sums of blocks: a tree by warp shuffles, then one over the warps.
#include <cuda_runtime.h>

__device__ float warp_sum(float v)
{
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_down_sync(0xffffffffu, v, step);
    return v;
}

__global__ void __launch_bounds__(256) block_sums(const float *__restrict__ x, float *y, int n)
{
    __shared__ float sums[8];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float v = warp_sum(i < n ? x[i] : 0.0f);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float total = warp_sum(threadIdx.x < 8 ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0)
            y[blockIdx.x] = total;
    }
}
