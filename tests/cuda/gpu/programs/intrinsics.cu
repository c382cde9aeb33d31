// Intrinsics of ordinary kernels, each with what it has to be.
#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <stdio.h>

#define expect(a, b) assert((a) == (b))

__device__ void bytes_and_half_words()
{
    expect(__vadd4(0x01ff0203u, 0x01010101u), 0x02000304u);
    expect(__vsub4(0x00020304u, 0x01010101u), 0xff010203u);
    expect(__vaddus4(0xff000001u, 0x01000001u), 0xff000002u);
    expect(__vaddss2(0x7fff8000u, 0x0001ffffu), 0x7fff8000u);
    expect(__vabsdiffu4(0x01050300u, 0x02010301u), 0x01040001u);
    expect(__vmaxs2(0x0001ffffu, 0x00020003u), 0x00020003u);
    expect(__vcmpeq4(0x01020304u, 0x01000304u), 0xff00ffffu);
    expect(__dp2a_lo(0x00020003, 0x00000504, 1), 23);
    expect(__dp2a_hi(0x00020003, 0x05040000, 1), 23);
    expect(__dp4a(0xff000001u, 0x02000003u, 1u), 514u);
}

__device__ void integers()
{
    expect(__hadd(5, 4), 4);
    expect(__hadd(-3, 0), -2);
    expect(__rhadd(5, 4), 5);
    expect(__sad(3, -4, 10u), 17u);
    expect(__funnelshift_rc(1, 2, 32), 2u);
    expect(__funnelshift_lc(1, 2, 40), 1u);
    expect(__fns(0x16, 0, 2), 2u);
    expect(__bfind(0x10), 4u);
}

__device__ void numbers(double d)
{
    expect(__fadd_rz(1.0f, 1e-10f), 1.0f);
    expect(__fadd_ru(1.0f, 1e-10f), nextafterf(1, 2));
    expect(__fadd_rd(-1.0f, -1e-10f), nextafterf(-1, -2));
    expect(__fmul_ru(1.0f / 3, 3.0f), nextafterf(1, 2));
    expect(__int2float_rz(16777217), 16777216.0f);
    expect(__int2float_ru(16777217), 16777218.0f);
    expect(__double2float_rd(1.0 + 1e-10), 1.0f);
    expect(__hiloint2double(__double2hiint(d), __double2loint(d)), d);
    expect(sinpif(0.5f), 1.0f);
    expect(cospif(1.0f), -1.0f);
    expect(norm3df(1, 2, 2), 3.0f);
    expect(rhypotf(3, 4), 0.2f);
}

__device__ void halves()
{
    expect(__half_as_ushort(__ushort_as_half(0x3c00)), 0x3c00);
    expect(float(__ushort_as_bfloat16(0x3f80)), 1.0f);
    expect(__bfloat16_as_ushort(__float2bfloat16(2.0f)), 0x4000);
    const __nv_bfloat16 raw = __nv_bfloat16_raw{ 0x4000 };
    expect(float(raw), 2.0f);
    expect(float(__hadd_sat(half(0.75f), half(0.5f))), 1.0f);
    expect(float(__float2half_rz(1.0009f)), 1.0f);
    expect(__half2int_rz(half(-2.75f)), -2);
    expect(__half2int_rd(half(-2.75f)), -3);
    const half2 a(half(1), half(2)), b(half(3), half(4)), c(half(5), half(6));
    const half2 product = __hcmadd(a, b, c);
    expect(float(product.x), 0.0f);
    expect(float(product.y), 16.0f);
    const half2 swapped = __lowhigh2highlow(a), same = __heq2(a, half2(half(1), half(3)));
    assert(float(swapped.x) == 2 && float(swapped.y) == 1 && float(same.x) == 1 && float(same.y) == 0);
    assert(__hbgt2(b, a) && !__hbgt2(b, c));
    expect(__low2float(__hfma2_relu(a, b, half2(half(-9), half(0)))), 0.0f);
    expect(__high2float(h2exp(half2(half(0), half(0)))), 1.0f);
    const half2 other = __shfl_xor_sync(0xffffffffu, half2(half(float(threadIdx.x)), half(7)), 1);
    assert(float(other.x) == (threadIdx.x ^ 1) && float(other.y) == 7);
}

__global__ void all(float4 *sums, const int *numbered, half2 *pairs)
{
    __shared__ __align__(16) int part[128];
    bytes_and_half_words();
    integers();
    numbers(1.0 / 3);
    halves();
    atomicAdd(sums, make_float4(1, 2, 3, 4));
    atomicAdd(reinterpret_cast<float2 *>(sums + 1), make_float2(1, 2));
    atomicAdd(pairs, half2(half(1), half(2)));
    __pipeline_memcpy_async(part + 4 * threadIdx.x, numbered + 4 * threadIdx.x, 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    expect(part[127 - threadIdx.x], 127 - int(threadIdx.x));
    assert(__isShared(part) && !__isShared(sums) && __isGlobal(sums));
    const unsigned address = __cvta_generic_to_shared(part + 5);
    expect(*static_cast<int *>(__cvta_shared_to_generic(address)), 5);
    __builtin_assume(threadIdx.x < 32);
}

int main()
{
    float4 *sums, host[2];
    half2 *pairs, pair;
    int *numbered, numbers[128];
    for (int i = 0; i < 128; i++)
        numbers[i] = i;
    cudaMalloc(&sums, sizeof host);
    cudaMalloc(&pairs, sizeof pair);
    cudaMalloc(&numbered, sizeof numbers);
    cudaMemset(sums, 0, sizeof host);
    cudaMemset(pairs, 0, sizeof pair);
    cudaMemcpy(numbered, numbers, sizeof numbers, cudaMemcpyHostToDevice);
    all<<<1, 32>>>(sums, numbered, pairs);
    cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost);
    cudaMemcpy(&pair, pairs, sizeof pair, cudaMemcpyDeviceToHost);
    const bool right = host[0].x == 32 && host[0].w == 128 && host[1].y == 64 && float(pair.y) == 64;
    printf(right ? "all of it\n" : "wrong\n");
    return !right;
}
