// Products by cuBLAS and cuBLASLt beside plain sums.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <vector>

const int M = 5, N = 4, K = 3, BATCH = 2;

int main()
{
    std::vector<float> a(M * K * BATCH), b(K * N * BATCH), c(M * N * BATCH, 1), bias = { 1, -2, 3, -4, 5 };
    for (size_t i = 0; i < a.size(); i++)
        a[i] = int(i % 5) - 2;
    for (size_t i = 0; i < b.size(); i++)
        b[i] = int(i % 3) - 1;
    float *d_a, *d_b, *d_c, *d_bias;
    cudaMalloc(&d_a, a.size() * 4);
    cudaMalloc(&d_b, b.size() * 4);
    cudaMalloc(&d_c, c.size() * 4);
    cudaMalloc(&d_bias, bias.size() * 4);
    cudaMemcpy(d_a, a.data(), a.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(d_b, b.data(), b.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(d_c, c.data(), c.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(d_bias, bias.data(), bias.size() * 4, cudaMemcpyHostToDevice);
    cublasHandle_t handle;
    cublasCreate(&handle);
    const float two = 2, three = 3, one = 1, zero = 0;
    int wrong = 0;
    // a is stored by rows, so it is the transpose for cuBLAS; b by columns
    const auto compare = [&](float alpha, float beta, bool epilogue, int batches) {
        std::vector<float> found(c.size());
        cudaMemcpy(found.data(), d_c, found.size() * 4, cudaMemcpyDeviceToHost);
        for (int batch = 0; batch < batches; batch++)
            for (int j = 0; j < N; j++)
                for (int i = 0; i < M; i++) {
                    float sum = 0;
                    for (int k = 0; k < K; k++)
                        sum += a[batch * M * K + i * K + k] * b[batch * K * N + j * K + k];
                    const size_t at = batch * M * N + j * M + i;
                    c[at] = alpha * sum + beta * c[at] + (epilogue ? bias[i] : 0);
                    if (epilogue)
                        c[at] = fmaxf(c[at], 0);
                    wrong += found[at] != c[at];
                }
    };
    cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, M, N, K, &two, d_a, K, d_b, K, &three, d_c, M);
    compare(2, 3, false, 1);
    wrong += status != CUBLAS_STATUS_SUCCESS;
    status = cublasGemmStridedBatchedEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, M, N, K, &one, d_a, CUDA_R_32F, K, M * K, d_b,
        CUDA_R_32F, K, K * N, &one, d_c, CUDA_R_32F, M, M * N, BATCH, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    compare(1, 1, false, BATCH);
    wrong += status != CUBLAS_STATUS_SUCCESS;
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtCreate(&lt);
    cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d_bias, sizeof d_bias);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, K, M, K);
    cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, K, N, K);
    cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, M, N, M);
    status = cublasLtMatmul(lt, product, &one, d_a, la, d_b, lb, &zero, d_c, lc, d_c, lc, nullptr, nullptr, 0, 0);
    wrong += status != CUBLAS_STATUS_SUCCESS;
    compare(1, 0, true, 1);
    printf("%d are wrong\n", wrong);
    cublasLtDestroy(lt);
    cublasDestroy(handle);
    return wrong != 0;
}
