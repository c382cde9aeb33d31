// What kernels use of CUDA's language, each result with what it has to be: expect(a, b) asserts.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>

#define expect(a, b) assert((a) == (b))

__constant__ float table[4] = { 1, 2, 3, 4 };

template <typename T, int N>
struct Pack {
    T v[N];
    __device__ T &operator[](int i) { return v[i]; }
};

template <typename T>
__device__ void atomics(T *place)
{
    const int t = threadIdx.x;
    if (t == 0)
        for (int i = 0; i < 8; i++)
            place[i] = 5;
    __syncthreads();
    atomicAdd(&place[0], 2);
    atomicSub(&place[1], 1);
    atomicMin(&place[2], T(t));
    atomicMax(&place[3], T(t));
    atomicExch(&place[4], T(t));
    atomicCAS(&place[5], T(5), T(9));
    __syncthreads();
    if (t == 0) {
        expect(place[0], T(5 + 2 * blockDim.x));
        expect(place[1], T(5 - T(blockDim.x)));
        expect(place[2], T(0));
        expect(place[3], T(blockDim.x - 1));
        assert(place[4] >= 0 && place[4] < blockDim.x);
        expect(place[5], T(9));
    }
    __syncthreads();
}

template <typename T>
__device__ void bits(T *place)
{
    const int t = threadIdx.x;
    if (t < 8)
        place[t] = 0xf0;
    __syncthreads();
    atomicAnd(&place[0], T(0x3f));
    atomicOr(&place[1], T(1));
    atomicXor(&place[2], T(3));
    atomicInc(&place[3], 0xf3);
    atomicDec(&place[4], 7);
    __syncthreads();
    if (t == 0) {
        expect(place[0], T(0x30));
        expect(place[1], T(0xf1));
        expect(place[2], T(0xf0)); // an even number of threads
        expect(place[3], T((0xf0 + blockDim.x) % 0xf4));
        expect(place[4], T(0));
    }
    __syncthreads();
}

__device__ void warps()
{
    const int lane = threadIdx.x % warpSize;
    const unsigned all = 0xffffffffu;
    expect(__shfl_sync(all, lane * 10, 3), 30);
    expect(__shfl_sync(all, lane, lane + 1, 8), lane / 8 * 8 + (lane + 1) % 8);
    expect(__shfl_up_sync(all, lane, 2), lane < 2 ? lane : lane - 2);
    expect(__shfl_down_sync(all, lane, 2u), lane > 29 ? lane : lane + 2);
    expect(__shfl_xor_sync(all, double(lane), 1, 16), double(lane ^ 1));
    expect(__ballot_sync(all, lane % 2), 0xaaaaaaaau);
    assert(__any_sync(all, lane == 7) && !__all_sync(all, lane == 7) && __all_sync(all, lane < 32));
    expect(__match_any_sync(all, lane / 16), lane < 16 ? 0x0000ffffu : 0xffff0000u);
    int same;
    expect(__match_all_sync(all, 5, &same), all);
    assert(same);
    expect(__reduce_add_sync(all, lane), 496);
    expect(__reduce_max_sync(all, unsigned(lane)), 31u);
    expect(__reduce_min_sync(all, -lane), -31);
    if (lane < 20) { // a part of the warp, by a ballot before the branch and by what is active
        expect(__activemask(), 0x000fffffu);
        expect(__shfl_sync(0x000fffffu, lane, 19), 19);
        __syncwarp(0x000fffffu);
    }
    __syncwarp();
}

__device__ void halves()
{
    const half a = __float2half(1.5f), b = __float2half_rn(2.25f);
    expect(__half2float(__hadd(a, b)), 3.75f);
    expect(__half2float(a * b), 3.375f);
    expect(float(__hfma(a, b, a)), 4.875f);
    assert(__hgt(b, a) && a < b && __heq(a, half(1.5f)));
    const half2 p = __floats2half2_rn(1, 2), q = __hmul2(p, __half2half2(a));
    expect(__low2float(q), 1.5f);
    expect(__high2float(__hfma2(p, p, q)), 7.0f);
    const __nv_bfloat16 c = __float2bfloat16(1.0f / 3);
    expect(__bfloat162float(c), 0.333984375f);
    expect(__bfloat162float(__hadd(c, __float2bfloat16(1.0f))), 1.3359375f);
    const __nv_bfloat162 d = __floats2bfloat162_rn(3, 4);
    expect(__bfloat1622float2(d).y, 4.0f);
    half sum = 0;
    sum += a;
    expect(float(-sum), -1.5f);
    expect(__half2float(hsqrt(half(2.25f))), 1.5f);
}

__device__ void numbers()
{
    expect(__fmaf_rn(2, 3, 4), 10.0f);
    expect(rsqrtf(4.0f), 0.5f);
    expect(__frcp_rn(4.0f), 0.25f);
    expect(__saturatef(1.5f), 1.0f);
    assert(fabsf(__expf(1.0f) - 2.7182817f) < 1e-6f && fabsf(__logf(1.0f)) < 1e-6f && __powf(2, 3) == 8);
    expect(__float2int_rn(2.5f), 2);
    expect(__float2int_ru(2.1f), 3);
    expect(__float2int_rz(-2.9f), -2);
    expect(__float_as_int(1.0f), 0x3f800000);
    expect(__int_as_float(0x40000000), 2.0f);
    expect(__popc(0xf0f0), 8);
    expect(__clz(1), 31);
    expect(__ffs(8), 4);
    expect(__brev(1u), 0x80000000u);
    expect(__umulhi(0x80000000u, 4), 2u);
    expect(__byte_perm(0x33221100, 0x77665544, 0x7531), 0x77553311u);
    expect(__funnelshift_l(0x80000000u, 1, 1), 3u);
    expect(__dp4a(0x01020304, 0x01010101, 5), 15);
    expect(min(3, 5u), 3u);
    expect(max(2.0f, 1.0f), 2.0f);
    expect(abs(-2.5f), 2.5f);
    assert(isnan(CUDART_NAN_F) && isinf(CUDART_INF_F));
    const long long before = clock64();
    assert(clock64() > before);
}

__device__ void vectors(float4 *x)
{
    const int t = threadIdx.x;
    x[t] = make_float4(t, t + 1, t + 2, t + 3);
    const float4 v = __ldg(x + t);
    expect(v.x + v.y + v.z + v.w, 4.0f * t + 6);
    const float2 pair = reinterpret_cast<float2 *>(x)[2 * t + 1];
    expect(pair.y, t + 3.0f);
    union {
        float4 whole;
        float parts[4];
    } u;
    u.whole = v;
    expect(u.parts[2], t + 2.0f);
    const int4 i = make_int4(1, 2, 3, 4);
    const uchar4 c = { 1, 2, 3, 4 };
    const double2 d = { 1, 2 };
    float3 f = make_float3(1, 2, 3);
    f.y += 1;
    expect(i.w + c.z + int(d.y) + int(f.y), 12);
    Pack<float, 4> pack;
    for (int j = 0; j < 4; j++)
        pack[j] = table[j];
    expect(pack[3], 4.0f);
    const dim3 size(2, 3);
    expect(size.z, 1u);
}

extern "C" __global__ void __launch_bounds__(64) language(float4 *x, int *places, unsigned *words, float *reals,
    long long *wide, bool flag, half h, double limit)
{
    __shared__ int own[8];
    assert(flag && float(h) == 0.5f && limit == -2.5);
    assert(gridDim.x == 1 && blockDim.x == 64 && blockIdx.x == 0 && warpSize == 32);
    atomics(places);
    atomics(own);
    atomics(reals);
    atomics(wide);
    atomics(reinterpret_cast<double *>(wide));
    bits(words);
    expect(__syncthreads_count(threadIdx.x % 4 == 0), 16);
    assert(__syncthreads_or(threadIdx.x == 3) && !__syncthreads_and(threadIdx.x == 3));
    warps();
    halves();
    numbers();
    vectors(x);
    if (threadIdx.x == 0)
        printf("all of it, %d threads\n", blockDim.x);
}
