// Softmax of rows of half, a warp for each row, two elements at a time.
#include <cuda_fp16.h>

__global__ void softmax(const __half *x, __half *y, int rows, int length)
{
    const int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= rows)
        return;
    const __half2 *in = reinterpret_cast<const __half2 *>(x + row * length);
    __half2 *out = reinterpret_cast<__half2 *>(y + row * length);
    float highest = -CUDART_INF_F;
    for (int i = lane; i < length / 2; i += warpSize) {
        const float2 v = __half22float2(in[i]);
        highest = fmaxf(highest, fmaxf(v.x, v.y));
    }
    for (int step = 16; step > 0; step >>= 1)
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, step));
    float sum = 0;
    for (int i = lane; i < length / 2; i += warpSize) {
        const float2 v = __half22float2(in[i]);
        sum += __expf(v.x - highest) + __expf(v.y - highest);
    }
    for (int step = 16; step > 0; step >>= 1)
        sum += __shfl_xor_sync(0xffffffff, sum, step);
    for (int i = lane; i < length / 2; i += warpSize) {
        const float2 v = __half22float2(in[i]);
        out[i] = __floats2half2_rn(__expf(v.x - highest) / sum, __expf(v.y - highest) / sum);
    }
}
