// Tensor cores by wmma and by inline PTX, with asynchronous copies, beside plain sums.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>
#include <stdio.h>
#include <vector>

using namespace nvcuda;

__global__ void by_fragments(const half *a, const half *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++)
        fc.x[i] *= 2;
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

#define LDMATRIX_X4(a, p) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n" \
                 : "=r"((a)[0]), "=r"((a)[1]), "=r"((a)[2]), "=r"((a)[3]) \
                 : "r"(p))

__global__ void by_instructions(const half *a, const half *b, float *c)
{
    __shared__ __align__(16) half sa[16][16], sb[8][16];
    const int lane = threadIdx.x;
    const uint32_t to = __cvta_generic_to_shared(&sa[lane / 2][lane % 2 * 8]);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(to), "l"(a + lane * 8), "n"(16));
    asm volatile("cp.async.commit_group;\n" ::);
    for (int i = lane; i < 128; i += 32)
        sb[i / 16][i % 16] = b[i];
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0)); // the copies are there
    __syncthreads();
    uint32_t ra[4], rb[2];
    LDMATRIX_X4(ra, (uint32_t)__cvta_generic_to_shared(&sa[lane % 16][lane / 16 * 8]));
    const uint32_t from = __cvta_generic_to_shared(&sb[lane % 8][lane / 8 % 2 * 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(from));
    float d[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "f"(d[0]), "f"(d[1]),
                 "f"(d[2]), "f"(d[3]));
    for (int i = 0; i < 4; i++)
        c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

__device__ int lane_of_asm()
{
    int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
__global__ void small_instructions(unsigned *x)
{
    unsigned y = threadIdx.x;
    asm volatile("" ::: "memory");
    asm("{\n\t.reg .pred p;\n\tsetp.lt.u32 p, %1, 16;\n\t@p add.u32 %0, %0, 100;\n\t}" : "+r"(y) : "r"(y));
    float two = 2;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(two) : "f"(two));
    x[threadIdx.x] = y + (lane_of_asm() == threadIdx.x ? 1000 : 0) + (two == 4 ? 10000 : 0);
}

int main()
{
    std::vector<half> a(256), b(256);
    for (int i = 0; i < 256; i++)
        a[i] = float(i % 13 - 6), b[i] = float(i % 7 - 3);
    half *d_a, *d_b;
    float *d_c;
    unsigned *d_x, x[32];
    cudaMalloc(&d_a, 512);
    cudaMalloc(&d_b, 512);
    cudaMalloc(&d_c, 1024);
    cudaMalloc(&d_x, sizeof x);
    cudaMemcpy(d_a, a.data(), 512, cudaMemcpyHostToDevice);
    cudaMemcpy(d_b, b.data(), 512, cudaMemcpyHostToDevice);
    std::vector<float> c(256);
    const auto wrong = [&](int columns, float factor) {
        int count = 0;
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < columns; j++) {
                float sum = 0;
                for (int k = 0; k < 16; k++)
                    sum += float(a[i * 16 + k]) * float(b[j * 16 + k]);
                count += c[i * columns + j] != factor * sum;
            }
        return count;
    };
    by_fragments<<<1, 32>>>(d_a, d_b, d_c);
    cudaMemcpy(c.data(), d_c, 1024, cudaMemcpyDeviceToHost);
    int count = wrong(16, 2);
    by_instructions<<<1, 32>>>(d_a, d_b, d_c);
    cudaMemcpy(c.data(), d_c, 512, cudaMemcpyDeviceToHost);
    count += wrong(8, 1);
    small_instructions<<<1, 32>>>(d_x);
    cudaMemcpy(x, d_x, sizeof x, cudaMemcpyDeviceToHost);
    for (unsigned i = 0; i < 32; i++)
        count += x[i] != 11000 + i + (i < 16 ? 100 : 0);
    printf("%d are wrong\n", count);
    return count != 0;
}
