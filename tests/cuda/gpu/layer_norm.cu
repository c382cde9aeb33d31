// Layer norm of rows by 1,024 threads, which load four floats at a time.
#include "sums.cuh"

__global__ void layer_norm(const float4 *x, const float4 *gain, float4 *y, int quads, float epsilon)
{
    __shared__ float2 partial[32];
    __shared__ float mean, scale;
    float2 own = { 0, 0 };
    for (int i = threadIdx.x; i < quads; i += blockDim.x) {
        const float4 v = __ldg(&x[blockIdx.x * quads + i]);
        own.x += v.x + v.y + v.z + v.w;
        own.y += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float2 all = warp_sum(partial[threadIdx.x]);
        if (threadIdx.x == 0) {
            mean = all.x / (4 * quads);
            scale = rsqrtf(all.y / (4 * quads) - mean * mean + epsilon);
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < quads; i += blockDim.x) {
        const float4 v = x[blockIdx.x * quads + i], g = gain[i];
        y[blockIdx.x * quads + i] = make_float4((v.x - mean) * scale * g.x, (v.y - mean) * scale * g.y,
            (v.z - mean) * scale * g.z, (v.w - mean) * scale * g.w);
    }
}
