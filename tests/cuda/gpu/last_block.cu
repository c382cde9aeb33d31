// A sum over all blocks in one launch: the last block to finish adds what the others left (threadFenceReduction).
__device__ unsigned finished;

__global__ void sum(const float *x, float *partial, float *total, int n)
{
    __shared__ float own[128];
    __shared__ bool last;
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    own[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step)
            own[threadIdx.x] += own[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = own[0];
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    if (threadIdx.x == 0) {
        float all = 0;
        for (int b = 0; b < gridDim.x; b++)
            all += partial[b];
        *total = all;
    }
}
