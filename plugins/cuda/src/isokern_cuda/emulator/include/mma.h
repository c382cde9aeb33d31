/* Warp matrix functions ("Warp Matrix Functions" of the CUDA C++ Programming Guide). Which lane holds which element of
 * a fragment is not specified; here lane l holds the elements l, l + 32, … of the matrix by rows. */
#ifndef ISOKERN_MMA_H
#define ISOKERN_MMA_H
#include "cuda_runtime.h"

namespace nvcuda
{
namespace wmma
{

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };
namespace precision
{
struct tf32;
}
template <class T>
struct storage {
    typedef T type;
};
template <>
struct storage<precision::tf32> {
    typedef float type;
};
template <class Use, int M, int N, int K>
struct extent {
    static constexpr int rows = M, columns = N;
};
template <int M, int N, int K>
struct extent<matrix_a, M, N, K> {
    static constexpr int rows = M, columns = K;
};
template <int M, int N, int K>
struct extent<matrix_b, M, N, K> {
    static constexpr int rows = K, columns = N;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    typedef typename storage<T>::type element_type;
    static constexpr int rows = extent<Use, M, N, K>::rows, columns = extent<Use, M, N, K>::columns;
    static constexpr int num_elements = rows * columns / 32, num_storage_elements = num_elements;
    element_type x[num_elements];
};

CUDA_EMULATOR_INLINE int own_lane()
{ return static_cast<int>(((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % 32); }
CUDA_EMULATOR_INLINE float __float_to_tf32(float x)
{
    const unsigned bits = __float_as_uint(x);
    return __builtin_isnan(x) ? x : __uint_as_float((bits + 0x1000u) & 0xffffe000u);
}

template <class F>
CUDA_EMULATOR_INLINE void load_elements(F &f, const typename F::element_type *p, unsigned pitch, bool by_rows)
{
    __syncwarp();
    for (int i = 0; i < F::num_elements; i++) {
        const unsigned e = static_cast<unsigned>(own_lane() + 32 * i), row = e / F::columns, column = e % F::columns;
        f.x[i] = p[by_rows ? row * pitch + column : column * pitch + row];
    }
    __syncwarp();
}
template <class Use, int M, int N, int K, class T>
CUDA_EMULATOR_INLINE void load_matrix_sync(
    fragment<Use, M, N, K, T, row_major> &f, const typename storage<T>::type *p, unsigned pitch)
{ load_elements(f, p, pitch, true); }
template <class Use, int M, int N, int K, class T>
CUDA_EMULATOR_INLINE void load_matrix_sync(
    fragment<Use, M, N, K, T, col_major> &f, const typename storage<T>::type *p, unsigned pitch)
{ load_elements(f, p, pitch, false); }
template <int M, int N, int K, class T>
CUDA_EMULATOR_INLINE void load_matrix_sync(
    fragment<accumulator, M, N, K, T> &f, const T *p, unsigned pitch, layout_t layout)
{ load_elements(f, p, pitch, layout == mem_row_major); }
template <int M, int N, int K, class T>
CUDA_EMULATOR_INLINE void store_matrix_sync(
    T *p, const fragment<accumulator, M, N, K, T> &f, unsigned pitch, layout_t layout)
{
    __syncwarp();
    for (int i = 0; i < f.num_elements; i++) {
        const unsigned e = static_cast<unsigned>(own_lane() + 32 * i), row = e / N, column = e % N;
        p[layout == mem_row_major ? row * pitch + column : column * pitch + row] = f.x[i];
    }
    __syncwarp();
}
template <class Use, int M, int N, int K, class T, class Layout, class V>
CUDA_EMULATOR_INLINE void fill_fragment(fragment<Use, M, N, K, T, Layout> &f, V value)
{
    for (int i = 0; i < f.num_elements; i++)
        f.x[i] = static_cast<typename storage<T>::type>(value);
}

/* Collect all elements of a fragment's matrix, by rows, from all lanes. */
template <class F>
CUDA_EMULATOR_INLINE void gather(const F &f, typename F::element_type *all)
{
    typedef typename F::element_type T;
    constexpr int EACH = 8 / sizeof(T);
    for (int first = 0; first < F::num_elements; first += EACH) {
        uint64_t bits = 0, given[32];
        const int count = F::num_elements - first < EACH ? F::num_elements - first : EACH;
        __builtin_memcpy(&bits, f.x + first, count * sizeof(T));
        cuda_emulator_meet(CUDA_REDUCE, ~0u, bits, 0, 32, given);
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < count; i++)
                __builtin_memcpy(all + lane + 32 * (first + i),
                    reinterpret_cast<const char *>(&given[lane]) + i * sizeof(T), sizeof(T));
    }
}
template <class T>
struct product {
    typedef float type;
};
template <>
struct product<signed char> {
    typedef int type;
};
template <>
struct product<unsigned char> {
    typedef int type;
};
template <>
struct product<double> {
    typedef double type;
};
/* Sums in F32 (of F64 in F64, of integers in I32), in the order of k. */
template <int M, int N, int K, class T, class LayoutA, class LayoutB, class D, class C>
CUDA_EMULATOR_INLINE void mma_sync(fragment<accumulator, M, N, K, D> &d,
    const fragment<matrix_a, M, N, K, T, LayoutA> &a, const fragment<matrix_b, M, N, K, T, LayoutB> &b,
    const fragment<accumulator, M, N, K, C> &c, bool = false)
{
    typedef typename storage<T>::type S;
    typedef typename product<S>::type P;
    S all_a[M * K], all_b[K * N];
    gather(a, all_a);
    gather(b, all_b);
    for (int i = 0; i < d.num_elements; i++) {
        const int e = own_lane() + 32 * i, row = e / N, column = e % N;
        P sum = static_cast<P>(c.x[i]);
        for (int k = 0; k < K; k++)
            sum += static_cast<P>(all_a[row * K + k]) * static_cast<P>(all_b[k * N + column]);
        d.x[i] = static_cast<D>(sum);
    }
}

} // namespace wmma
} // namespace nvcuda
#endif
