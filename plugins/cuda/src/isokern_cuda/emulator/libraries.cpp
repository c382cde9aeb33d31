/* Matrix products for cuBLAS's functions. Matrices are stored by columns. Sums are F32 in the order of k; those of F64
 * are F64, and those of integers I32. */
#include <cmath>
#include <cstring>
#include <vector>

#include "cuda_gemm.h"
#include "emulator.h"
#include "isokern_half.h"
#include "library_types.h"

namespace cuda_emulator
{

static std::size_t size_of(int type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8I:
    case CUDA_R_8U: return 1;
    default: return 4;
    }
}

template <class T>
static T load(const void *p, std::size_t i, int type)
{
    switch (type) {
    case CUDA_R_64F: return static_cast<T>(static_cast<const double *>(p)[i]);
    case CUDA_R_16F: return static_cast<T>(ik_f16_to_f32(static_cast<const std::uint16_t *>(p)[i]));
    case CUDA_R_16BF: return static_cast<T>(ik_bf16_to_f32(static_cast<const std::uint16_t *>(p)[i]));
    case CUDA_R_8I: return static_cast<T>(static_cast<const std::int8_t *>(p)[i]);
    case CUDA_R_8U: return static_cast<T>(static_cast<const std::uint8_t *>(p)[i]);
    case CUDA_R_32I: return static_cast<T>(static_cast<const std::int32_t *>(p)[i]);
    default: return static_cast<T>(static_cast<const float *>(p)[i]);
    }
}

template <class T>
static void store(void *p, std::size_t i, int type, T value)
{
    switch (type) {
    case CUDA_R_64F: static_cast<double *>(p)[i] = static_cast<double>(value); break;
    case CUDA_R_16F: static_cast<std::uint16_t *>(p)[i] = ik_f32_to_f16(static_cast<float>(value)); break;
    case CUDA_R_16BF: static_cast<std::uint16_t *>(p)[i] = ik_f32_to_bf16(static_cast<float>(value)); break;
    case CUDA_R_8I: static_cast<std::int8_t *>(p)[i] = static_cast<std::int8_t>(value); break;
    case CUDA_R_32I: static_cast<std::int32_t *>(p)[i] = static_cast<std::int32_t>(value); break;
    default: static_cast<float *>(p)[i] = static_cast<float>(value);
    }
}

template <class T>
static T finish(const CudaGemm &g, T value, std::size_t row)
{
    if (g.bias != nullptr)
        value += load<T>(g.bias, row, g.bias_type);
    const double x = static_cast<double>(value);
    if (g.activation == CUDA_GEMM_RELU)
        return value > T(0) ? value : T(0);
    if (g.activation == CUDA_GEMM_GELU) /* cuBLAS's is the approximation by tanh */
        return static_cast<T>(0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))));
    return value;
}

/* One product: sums of a column of c at a time, so the inner loop runs along memory. */
template <class T>
__attribute__((optimize("O3"))) static void multiply(const CudaGemm &g, const char *a, const char *b, char *c)
{
    const auto m = static_cast<std::size_t>(g.m), n = static_cast<std::size_t>(g.n), k = static_cast<std::size_t>(g.k);
    const auto lda = static_cast<std::size_t>(g.lda), ldb = static_cast<std::size_t>(g.ldb);
    const auto ldc = static_cast<std::size_t>(g.ldc);
    std::vector<T> packed(m * k), sums(m);
    for (std::size_t p = 0; p < k; p++)
        for (std::size_t i = 0; i < m; i++)
            packed[p * m + i] = load<T>(a, g.transpose_a ? i * lda + p : p * lda + i, g.a_type);
    for (std::size_t j = 0; j < n; j++) {
        std::fill(sums.begin(), sums.end(), T(0));
        for (std::size_t p = 0; p < k; p++) {
            const T factor = load<T>(b, g.transpose_b ? p * ldb + j : j * ldb + p, g.b_type);
            const T *const column = packed.data() + p * m;
            T *const sum = sums.data();
            for (std::size_t i = 0; i < m; i++)
                sum[i] += column[i] * factor;
        }
        for (std::size_t i = 0; i < m; i++) {
            const std::size_t at = j * ldc + i;
            T value = static_cast<T>(g.alpha) * sums[i];
            if (g.beta != 0)
                value += static_cast<T>(g.beta) * load<T>(g.added, at, g.c_type);
            store(c, at, g.c_type, finish(g, value, i));
        }
    }
}

} // namespace cuda_emulator

using namespace cuda_emulator;

/* Return 0, or another number if an array does not have what is read or written. */
extern "C" int cuda_emulator_gemm(const CudaGemm *given)
{
    const auto pc = static_cast<Pc>(__builtin_return_address(0));
    CudaGemm g = *given;
    if (g.m == 0 || g.n == 0 || g.batch == 0)
        return 0;
    const auto extent = [&](long long rows, long long columns, long long pitch, int type) {
        return rows == 0 || columns == 0 ? 0 : static_cast<std::size_t>((columns - 1) * pitch + rows) * size_of(type);
    };
    const std::size_t a_bytes = g.transpose_a ? extent(g.k, g.m, g.lda, g.a_type) : extent(g.m, g.k, g.lda, g.a_type);
    const std::size_t b_bytes = g.transpose_b ? extent(g.n, g.k, g.ldb, g.b_type) : extent(g.k, g.n, g.ldb, g.b_type);
    const std::size_t c_bytes = extent(g.m, g.n, g.ldc, g.c_type);
    const void *const added = given->added == nullptr ? g.c : given->added;
    for (long long i = 0; i < g.batch; i++) {
        const auto at = [&](const void *p, const void *const *list, long long stride, int type) {
            return list != nullptr ? static_cast<const char *>(list[i])
                                   : static_cast<const char *>(p) + i * stride * static_cast<long long>(size_of(type));
        };
        const char *const a = at(g.a, g.a_list, g.a_stride, g.a_type),
                          *const b = at(g.b, g.b_list, g.b_stride, g.b_type);
        char *const c = const_cast<char *>(at(g.c, g.c_list, g.c_stride, g.c_type));
        g.added = g.c_list != nullptr ? c : at(added, nullptr, g.c_stride, g.c_type);
        if (!use(a, a_bytes, false, g.name, pc) || !use(b, b_bytes, false, g.name, pc)
            || !use(c, c_bytes, true, g.name, pc))
            return 1;
        open_arrays(true);
        if (g.c_type == CUDA_R_64F)
            multiply<double>(g, a, b, c);
        else if (g.a_type == CUDA_R_8I && g.c_type == CUDA_R_32I)
            multiply<std::int32_t>(g, a, b, c);
        else
            multiply<float>(g, a, b, c);
    }
    open_arrays(false);
    return 0;
}
