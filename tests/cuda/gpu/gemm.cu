// A product of matrices by tiles of 64 by 64 in dynamic shared memory; each thread has 4 by 4 sums in registers.
#include <cuda_runtime.h>

constexpr int TILE = 64, DEPTH = 16, OWN = 4;

__global__ void gemm(const float *a, const float *b, float *c, int m, int n, int k)
{
    extern __shared__ __align__(16) float tiles[];
    float *left = tiles;                   // [DEPTH][TILE + 4], transposed
    float *right = tiles + DEPTH * (TILE + 4); // [DEPTH][TILE]
    const int row = blockIdx.y * TILE, col = blockIdx.x * TILE;
    const int t = threadIdx.y * 16 + threadIdx.x;
    float sums[OWN][OWN];
    for (int i = 0; i < OWN; i++)
        for (int j = 0; j < OWN; j++)
            sums[i][j] = 0;
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        for (int e = t; e < TILE * DEPTH; e += 256) {
            const int r = e % TILE, d = e / TILE;
            left[d * (TILE + 4) + r] = row + r < m && k0 + d < k ? a[(k0 + d) * m + row + r] : 0;
            right[d * TILE + r] = col + r < n && k0 + d < k ? b[(k0 + d) * n + col + r] : 0;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; d++) {
            const float4 l = *reinterpret_cast<const float4 *>(left + d * (TILE + 4) + threadIdx.y * OWN);
            const float4 r = *reinterpret_cast<const float4 *>(right + d * TILE + threadIdx.x * OWN);
            const float ls[OWN] = { l.x, l.y, l.z, l.w }, rs[OWN] = { r.x, r.y, r.z, r.w };
#pragma unroll
            for (int i = 0; i < OWN; i++)
#pragma unroll
                for (int j = 0; j < OWN; j++)
                    sums[i][j] = fmaf(ls[i], rs[j], sums[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < OWN; i++) {
        const int r = row + threadIdx.y * OWN + i, first = col + threadIdx.x * OWN;
        if (r < m && first < n)
            *reinterpret_cast<float4 *>(c + r * n + first) = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
    }
}
