// Sums over the lanes of a warp.
#pragma once

static __device__ __forceinline__ float2 warp_sum(float2 v)
{
    for (int step = 16; step > 0; step >>= 1) {
        v.x += __shfl_xor_sync(0xffffffffu, v.x, step);
        v.y += __shfl_xor_sync(0xffffffffu, v.y, step);
    }
    return v;
}
