/* cuBLAS's functions of matrices and vectors, by the emulator's own product. */
#ifndef ISOKERN_CUBLAS_V2_H
#define ISOKERN_CUBLAS_V2_H
#include "cuda_gemm.h"
#include "cuda_runtime.h"
#define CUBLAS_API_H_
#define CUBLAS_V2_H_
#define CUBLAS_VERSION 130000

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16
} cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C } cublasOperation_t;
typedef enum {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
} cublasMath_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77
} cublasComputeType_t;
typedef enum { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE } cublasPointerMode_t;
typedef enum { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 } cublasGemmAlgo_t;
struct cublasContext {
    cudaStream_t stream;
    cublasMath_t math;
    cublasPointerMode_t mode;
};
typedef cublasContext *cublasHandle_t;

static inline cublasStatus_t cublasCreate(cublasHandle_t *h) { return *h = new cublasContext(), CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasDestroy(cublasHandle_t h) { return delete h, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetStream(cublasHandle_t h, cudaStream_t s)
{ return h->stream = s, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasGetStream(cublasHandle_t h, cudaStream_t *s)
{ return *s = h->stream, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t m)
{ return h->math = m, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasGetMathMode(cublasHandle_t h, cublasMath_t *m)
{ return *m = h->math, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetPointerMode(cublasHandle_t h, cublasPointerMode_t m)
{ return h->mode = m, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasGetVersion(cublasHandle_t, int *v)
{ return *v = CUBLAS_VERSION, CUBLAS_STATUS_SUCCESS; }
static inline const char *cublasGetStatusString(cublasStatus_t s)
{ return s == CUBLAS_STATUS_SUCCESS ? "success" : s == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "failed"; }
static inline const char *cublasGetStatusName(cublasStatus_t s)
{ return s == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_EXECUTION_FAILED"; }

namespace cuda_emulator
{

template <class T>
constexpr int library_type = CUDA_R_32F;
template <>
inline constexpr int library_type<double> = CUDA_R_64F;
template <>
inline constexpr int library_type<__half> = CUDA_R_16F;
template <>
inline constexpr int library_type<__nv_bfloat16> = CUDA_R_16BF;

/* A factor, from the host or the GPU. */
template <class T>
CUDA_EMULATOR_API double factor(cublasHandle_t h, const T *p)
{
    if (h->mode == CUBLAS_POINTER_MODE_HOST)
        return static_cast<double>(*p);
    T value{};
    cuda_emulator_copy(&value, p, sizeof value, cudaMemcpyDeviceToHost);
    return static_cast<double>(value);
}
static inline double factor_of(cublasHandle_t h, const void *p, int type)
{
    return type == CUDA_R_64F ? factor(h, static_cast<const double *>(p))
        : type == CUDA_R_16F  ? static_cast<double>(factor(h, static_cast<const __half *>(p)))
        : type == CUDA_R_32I  ? factor(h, static_cast<const int *>(p))
                              : factor(h, static_cast<const float *>(p));
}
CUDA_EMULATOR_API cublasStatus_t status_of(const CudaGemm &g)
{ return cuda_emulator_gemm(&g) == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED; }

} // namespace cuda_emulator

#define CUDA_EMULATOR_GEMM(letter, T) \
    CUDA_EMULATOR_API cublasStatus_t cublas##letter##gemm(cublasHandle_t h, cublasOperation_t ta, \
        cublasOperation_t tb, int m, int n, int k, const T *alpha, const T *a, int lda, const T *b, int ldb, \
        const T *beta, T *c, int ldc) \
    { \
        constexpr int t = cuda_emulator::library_type<T>; \
        return cuda_emulator::status_of( \
            { "cublas" #letter "gemm", ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, m, n, k, cuda_emulator::factor(h, alpha), \
                cuda_emulator::factor(h, beta), a, t, lda, 0, b, t, ldb, 0, c, t, ldc, 0, 1 }); \
    } \
    CUDA_EMULATOR_API cublasStatus_t cublas##letter##gemmStridedBatched(cublasHandle_t h, cublasOperation_t ta, \
        cublasOperation_t tb, int m, int n, int k, const T *alpha, const T *a, int lda, long long as, const T *b, \
        int ldb, long long bs, const T *beta, T *c, int ldc, long long cs, int batch) \
    { \
        constexpr int t = cuda_emulator::library_type<T>; \
        return cuda_emulator::status_of({ "cublas" #letter "gemmStridedBatched", ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, \
            m, n, k, cuda_emulator::factor(h, alpha), cuda_emulator::factor(h, beta), a, t, lda, as, b, t, ldb, bs, c, \
            t, ldc, cs, batch }); \
    }
CUDA_EMULATOR_GEMM(S, float)
CUDA_EMULATOR_GEMM(D, double)
CUDA_EMULATOR_GEMM(H, __half)
namespace cuda_emulator
{
/* The type of the factors: that of the sums. */
static inline int factors_type(int compute)
{
    return compute == CUBLAS_COMPUTE_64F || compute == CUDA_R_64F ? CUDA_R_64F
        : compute == CUBLAS_COMPUTE_16F || compute == CUDA_R_16F  ? CUDA_R_16F
        : compute == CUBLAS_COMPUTE_32I || compute == CUDA_R_32I  ? CUDA_R_32I
                                                                  : CUDA_R_32F;
}
} // namespace cuda_emulator
template <class Compute>
CUDA_EMULATOR_API cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m,
    int n, int k, const void *alpha, const void *a, cudaDataType at, int lda, const void *b, cudaDataType bt, int ldb,
    const void *beta, void *c, cudaDataType ct, int ldc, Compute compute, cublasGemmAlgo_t)
{
    const int f = cuda_emulator::factors_type(compute);
    return cuda_emulator::status_of(
        { "cublasGemmEx", ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, m, n, k, cuda_emulator::factor_of(h, alpha, f),
            cuda_emulator::factor_of(h, beta, f), a, at, lda, 0, b, bt, ldb, 0, c, ct, ldc, 0, 1 });
}
template <class Compute>
CUDA_EMULATOR_API cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t h, cublasOperation_t ta,
    cublasOperation_t tb, int m, int n, int k, const void *alpha, const void *a, cudaDataType at, int lda, long long as,
    const void *b, cudaDataType bt, int ldb, long long bs, const void *beta, void *c, cudaDataType ct, int ldc,
    long long cs, int batch, Compute compute, cublasGemmAlgo_t)
{
    const int f = cuda_emulator::factors_type(compute);
    return cuda_emulator::status_of({ "cublasGemmStridedBatchedEx", ta != CUBLAS_OP_N, tb != CUBLAS_OP_N, m, n, k,
        cuda_emulator::factor_of(h, alpha, f), cuda_emulator::factor_of(h, beta, f), a, at, lda, as, b, bt, ldb, bs, c,
        ct, ldc, cs, batch });
}
CUDA_EMULATOR_API cublasStatus_t cublasSgemv(cublasHandle_t h, cublasOperation_t ta, int m, int n, const float *alpha,
    const float *a, int lda, const float *x, int incx, const float *beta, float *y, int incy)
{
    const bool t = ta != CUBLAS_OP_N;
    /* A row of vectors: x is n × 1 by its increment, and so is y */
    if (incx != 1 || incy != 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return cuda_emulator::status_of({ "cublasSgemv", t, false, t ? n : m, 1, t ? m : n, cuda_emulator::factor(h, alpha),
        cuda_emulator::factor(h, beta), a, CUDA_R_32F, lda, 0, x, CUDA_R_32F, t ? m : n, 0, y, CUDA_R_32F, t ? n : m, 0,
        1 });
}
/* y += alpha · x, and x · y: products with a matrix of one column or row */
CUDA_EMULATOR_API cublasStatus_t cublasSaxpy(
    cublasHandle_t h, int n, const float *alpha, const float *x, int incx, float *y, int incy)
{
    if (incx != 1 || incy != 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    float one = 1, *device = nullptr;
    cudaMalloc(&device, sizeof one);
    cudaMemcpy(device, &one, sizeof one, cudaMemcpyHostToDevice);
    const cublasStatus_t status = cuda_emulator::status_of({ "cublasSaxpy", false, false, n, 1, 1,
        cuda_emulator::factor(h, alpha), 1, x, CUDA_R_32F, n, 0, device, CUDA_R_32F, 1, 0, y, CUDA_R_32F, n, 0, 1 });
    cudaFree(device);
    return status;
}
CUDA_EMULATOR_API cublasStatus_t cublasSdot(
    cublasHandle_t h, int n, const float *x, int incx, const float *y, int incy, float *result)
{
    if (incx != 1 || incy != 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    float *device = h->mode == CUBLAS_POINTER_MODE_DEVICE ? result : nullptr;
    if (device == nullptr)
        cudaMalloc(&device, sizeof *device);
    const cublasStatus_t status = cuda_emulator::status_of({ "cublasSdot", true, false, 1, 1, n, 1, 0, x, CUDA_R_32F, n,
        0, y, CUDA_R_32F, n, 0, device, CUDA_R_32F, 1, 0, 1 });
    if (h->mode == CUBLAS_POINTER_MODE_HOST) {
        cudaMemcpy(result, device, sizeof *device, cudaMemcpyDeviceToHost);
        cudaFree(device);
    }
    return status;
}
#endif
