// Correct kernels of many forms, of which the checks have nothing to say.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cstdint>
#include <algorithm>
using namespace std;
__constant__ float weights[5] = { 0.1f, 0.2f, 0.4f, 0.2f, 0.1f };
struct Pair {
    float value;
    int index;
    char tag;
};
struct Acc {
    float v[4];
    __device__ Acc()
    {
        for (float &x : v)
            x = 0;
    }
    __device__ void add(float x, int i) { v[i & 3] += x; }
};
template <int N> __device__ __forceinline__ void load(float (&r)[N], const float *p)
{
#pragma unroll
    for (int i = 0; i < N; ++i)
        r[i] = p[i];
}
__device__ void fill(float *out, int n, float v)
{
    for (int i = 0; i < n; i++)
        out[i] = v;
}
__global__ void conv(const float *x, float *y, int n)
{
    __shared__ float s[256 + 4];
    int i = blockIdx.x * 256 + threadIdx.x, t = threadIdx.x;
    s[t + 2] = i < n ? x[i] : 0;
    if (t < 2) {
        s[t] = i >= 2 ? x[i - 2] : 0;
        s[t + 258] = i + 256 < n ? x[i + 256] : 0;
    }
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 5; k++)
        sum += weights[k] * s[t + k];
    if (i < n)
        y[i] = sum;
}
__global__ void bitonic(int *x)
{
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int k = 2; k <= 256; k <<= 1)
        for (int j = k >> 1; j > 0; j >>= 1) {
            __syncthreads();
            int o = t ^ j;
            if (o > t) {
                bool up = (t & k) == 0;
                int a = s[t], b = s[o];
                if ((a > b) == up) {
                    s[t] = b;
                    s[o] = a;
                }
            }
        }
    __syncthreads();
    x[t] = s[t];
}
__global__ void aggregated(const int *x, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        unsigned m = __activemask();
        int leader = __ffs(m) - 1, lane = threadIdx.x & 31, base;
        if (lane == leader)
            base = atomicAdd(count, __popc(m));
        base = __shfl_sync(m, base, leader);
        (void)base;
    }
}
__global__ void locals(const float *x, float *y, int n)
{
    float r[4];
    load(r, x + 4 * threadIdx.x);
    float z[8];
    fill(z, 8, 1.5f);
    Acc a;
    Acc b[2];
    for (int i = 0; i < 4; i++) {
        a.add(r[i], i);
        b[i & 1].add(z[i], i);
    }
    Pair p;
    p.value = a.v[0];
    p.index = n;
    p.tag = 'x';
    Pair q = p;
    auto f = [&](int k) { return a.v[k] + b[k & 1].v[k]; };
    float best, other;
    int where;
    if (r[0] > r[1]) {
        best = r[0];
        where = 0;
    } else {
        best = r[1];
        where = 1;
    }
    other = f(0) + f(3);
    switch (n % 3) {
    case 0: other += 1; break;
    case 1: {
        float t;
        t = 2;
        other += t;
        break;
    }
    default: other += q.value - q.value;
    }
    y[threadIdx.x] = best + other + where + q.index;
}
__global__ void doubled(const float *x, float *y, int tiles)
{
    __shared__ float buf[2][64];
    int t = threadIdx.x;
    float sum = 0;
    buf[0][t] = x[t];
    for (int k = 0; k < tiles; k++) {
        __syncthreads();
        if (k + 1 < tiles)
            buf[(k + 1) & 1][t] = x[(k + 1) * 64 + t];
        sum += buf[k & 1][63 - t];
    }
    y[t] = sum;
}
__global__ void structs(const Pair *in, Pair *out, int n)
{
    int i = threadIdx.x;
    if (i < n) {
        Pair p = in[i];
        p.value *= 2;
        out[i] = p;
    }
}
__global__ void bytes(const uint8_t *x, uint8_t *y, int n)
{
    extern __shared__ uint8_t raw[];
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        raw[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        y[i] = raw[n - 1 - i];
}
__global__ void warp_scan(const int *x, int *y)
{
    __shared__ int sums[8];
    int t = threadIdx.x, lane = t & 31, w = t >> 5, v = x[t];
    for (int d = 1; d < 32; d <<= 1) {
        int o = __shfl_up_sync(~0u, v, d);
        if (lane >= d)
            v += o;
    }
    if (lane == 31)
        sums[w] = v;
    __syncthreads();
    if (w == 0) {
        int s = lane < 8 ? sums[lane] : 0;
        for (int d = 1; d < 8; d <<= 1) {
            int o = __shfl_up_sync(~0u, s, d);
            if (lane >= d)
                s += o;
        }
        if (lane < 8)
            sums[lane] = s;
    }
    __syncthreads();
    y[t] = v + (w ? sums[w - 1] : 0);
}
__global__ void halves(const half2 *x, half2 *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        half2 v = x[i];
        y[i] = __hfma2(v, v, __float2half2_rn(1.0f));
    }
}
__global__ void warp_private(const float *x, float *y)
{
    __shared__ float s[4][32];
    int w = threadIdx.y, l = threadIdx.x;
    s[w][l] = x[w * 32 + l];
    __syncwarp();
    for (int d = 16; d; d >>= 1) {
        float v = 0;
        if (l < d)
            v = s[w][l + d];
        __syncwarp();
        if (l < d)
            s[w][l] += v;
        __syncwarp();
    }
    if (l == 0)
        y[w] = s[w][0];
}
__global__ void early_exit(float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    y[i] = i;
}
__global__ void spmv(const int *row, const int *col, const float *v, const float *x, float *y, int n)
{
    int r = threadIdx.x;
    if (r >= n)
        return;
    float s = 0;
    for (int j = row[r]; j < row[r + 1]; j++)
        s += v[j] * __ldg(x + col[j]);
    y[r] = s;
}
__global__ void max_cas(const float *x, int *m, int n)
{
    int i = threadIdx.x;
    if (i >= n)
        return;
    int old, assumed;
    old = atomicAdd(m, 0);
    do {
        assumed = old;
        if (__int_as_float(assumed) >= x[i])
            break;
        old = atomicCAS(m, assumed, __float_as_int(x[i]));
    } while (assumed != old);
}
