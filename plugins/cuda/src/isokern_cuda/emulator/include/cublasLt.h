/* cuBLASLt's matrix product, by the emulator's own. */
#ifndef ISOKERN_CUBLASLT_H
#define ISOKERN_CUBLASLT_H
#include "cublas_v2.h"

typedef enum {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
    CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_TRANSC = 5,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
} cublasLtMatmulDescAttributes_t;
typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_RELU = 2,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36,
    CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192,
    CUBLASLT_EPILOGUE_DGELU_BGRAD = 208,
    CUBLASLT_EPILOGUE_BGRADA = 256,
    CUBLASLT_EPILOGUE_BGRADB = 512
} cublasLtEpilogue_t;
typedef enum {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
    CUBLASLT_MATRIX_LAYOUT_COLS = 3,
    CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;
struct cublasLtMatrixLayoutOpaque {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t pitch;
    int batch;
    int64_t stride;
};
struct cublasLtMatmulDescOpaque {
    cublasComputeType_t compute;
    cudaDataType scale;
    int transpose_a, transpose_b, mode;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    int bias_type;
};
typedef cublasLtMatrixLayoutOpaque *cublasLtMatrixLayout_t;
typedef cublasLtMatmulDescOpaque *cublasLtMatmulDesc_t;
typedef struct cublasLtMatmulPreferenceOpaque {
    size_t workspace;
} *cublasLtMatmulPreference_t;
typedef struct {
    int number;
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
} cublasLtMatmulHeuristicResult_t;
typedef cublasContext *cublasLtHandle_t;

static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) { return cublasCreate(h); }
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) { return cublasDestroy(h); }
static inline cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType scale)
{
    *d = new cublasLtMatmulDescOpaque{ compute, scale, 0, 0, 0, CUBLASLT_EPILOGUE_DEFAULT, nullptr, -1 };
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{ return delete d, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    void *target = nullptr;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: target = &d->transpose_a; break;
    case CUBLASLT_MATMUL_DESC_TRANSB: target = &d->transpose_b; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: target = &d->epilogue; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: target = &d->bias; break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: target = &d->bias_type; break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: target = &d->mode; break;
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: target = &d->scale; break;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    __builtin_memcpy(target, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t columns, int64_t pitch)
{
    *l = new cublasLtMatrixLayoutOpaque{ type, rows, columns, pitch, 1, 0 };
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{ return delete l, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        __builtin_memcpy(&l->batch, value, bytes);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
        __builtin_memcpy(&l->stride, value, bytes);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_LD)
        __builtin_memcpy(&l->pitch, value, bytes);
    else
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{ return *p = new cublasLtMatmulPreferenceOpaque(), CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{ return delete p, CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t)
{ return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
    cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *results, int *count)
{
    *results = {};
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}
CUDA_EMULATOR_API cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
    const void *a, cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta, const void *c,
    cublasLtMatrixLayout_t, void *result, cublasLtMatrixLayout_t rl, const cublasLtMatmulAlgo_t *, void *, size_t,
    cudaStream_t)
{
    if ((d->epilogue & ~(CUBLASLT_EPILOGUE_GELU_BIAS | CUBLASLT_EPILOGUE_RELU_BIAS | CUBLASLT_EPILOGUE_DEFAULT)) != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool ta = d->transpose_a != CUBLAS_OP_N, tb = d->transpose_b != CUBLAS_OP_N;
    CudaGemm g{ "cublasLtMatmul", ta, tb, static_cast<long long>(rl->rows), static_cast<long long>(rl->columns),
        static_cast<long long>(ta ? al->rows : al->columns), cuda_emulator::factor_of(h, alpha, d->scale),
        cuda_emulator::factor_of(h, beta, d->scale), a, al->type, al->pitch, al->stride, b, bl->type, bl->pitch,
        bl->stride, result, rl->type, rl->pitch, rl->stride, rl->batch };
    g.added = c;
    if ((d->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
        g.bias = d->bias;
    g.bias_type = d->bias_type < 0 ? rl->type : d->bias_type;
    g.activation = (d->epilogue & CUBLASLT_EPILOGUE_RELU) != 0 ? CUDA_GEMM_RELU
        : (d->epilogue & CUBLASLT_EPILOGUE_GELU) != 0          ? CUDA_GEMM_GELU
                                                               : CUDA_GEMM_PLAIN;
    return cuda_emulator::status_of(g);
}
#endif
