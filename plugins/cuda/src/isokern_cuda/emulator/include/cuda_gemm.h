/* A matrix product of cuBLAS, for the emulator: c = alpha · op(a) · op(b) + beta · added, by columns. */
#ifndef ISOKERN_CUDA_GEMM_H
#define ISOKERN_CUDA_GEMM_H
enum { CUDA_GEMM_PLAIN, CUDA_GEMM_RELU, CUDA_GEMM_GELU };
struct CudaGemm {
    const char *name;
    bool transpose_a, transpose_b;
    long long m, n, k;
    double alpha, beta;
    const void *a;
    int a_type;
    long long lda, a_stride; /* in elements; the stride is that of a batch */
    const void *b;
    int b_type;
    long long ldb, b_stride;
    void *c;
    int c_type;
    long long ldc, c_stride;
    long long batch;
    const void *added = nullptr; /* c itself if null */
    const void *const *a_list = nullptr, *const *b_list = nullptr, *const *c_list = nullptr; /* instead of strides */
    const void *bias = nullptr; /* one for each row of c */
    int bias_type = 0, activation = CUDA_GEMM_PLAIN;
};
extern "C" int cuda_emulator_gemm(const CudaGemm *given);
#endif
