/* CUB's primitives of warps, blocks and devices, by shuffles and shared memory. */
#ifndef ISOKERN_CUB_H
#define ISOKERN_CUB_H
#include <climits>
#include <limits>

#include "cuda_runtime.h"

namespace cub
{

#define CUDA_EMULATOR_METHOD inline __attribute__((always_inline, unused))
CUDA_EMULATOR_INLINE int own_number()
{ return static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x); }

#define CUDA_EMULATOR_CUB_OPERATOR(name, expression) \
    struct name { \
        template <class A, class B> \
        CUDA_EMULATOR_METHOD auto operator()(const A &a, const B &b) const -> decltype(expression) \
        { return expression; } \
    };
CUDA_EMULATOR_CUB_OPERATOR(Sum, a + b)
CUDA_EMULATOR_CUB_OPERATOR(Max, a < b ? b : a)
CUDA_EMULATOR_CUB_OPERATOR(Min, b < a ? b : a)
struct Equality {
    template <class T>
    CUDA_EMULATOR_METHOD bool operator()(const T &a, const T &b) const
    { return a == b; }
};
template <class K, class V>
struct KeyValuePair {
    K key;
    V value;
};
struct ArgMax {
    template <class K, class V>
    CUDA_EMULATOR_METHOD KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const
    { return a.value < b.value || (a.value == b.value && b.key < a.key) ? b : a; }
};
struct ArgMin {
    template <class K, class V>
    CUDA_EMULATOR_METHOD KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const
    { return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a; }
};

/* A value of any size from another lane. */
template <class T>
CUDA_EMULATOR_INLINE T ShuffleFrom(unsigned mask, const T &value, int lane, int width)
{
    T result = value;
    for (size_t at = 0; at < sizeof(T); at += 8) {
        const size_t bytes = sizeof(T) - at < 8 ? sizeof(T) - at : 8;
        uint64_t bits = 0;
        __builtin_memcpy(&bits, reinterpret_cast<const char *>(&value) + at, bytes);
        bits = __shfl_sync(mask, bits, lane, width);
        __builtin_memcpy(reinterpret_cast<char *>(&result) + at, &bits, bytes);
    }
    return result;
}

/* The lanes of a group of LANES that the block has. */
template <int LANES>
CUDA_EMULATOR_INLINE unsigned lanes_mask()
{
    const int first = own_number() % 32 / LANES * LANES;
    return (LANES == 32 ? ~0u : (1u << LANES % 32) - 1) << first;
}

template <class T, int LANES = 32>
class WarpReduce
{
  public:
    struct TempStorage {};
    CUDA_EMULATOR_METHOD explicit WarpReduce(TempStorage &) {}
    /* Valid in lane 0. */
    template <class F>
    CUDA_EMULATOR_METHOD T Reduce(T value, F function, int valid = LANES)
    {
        const int lane = own_number() % LANES;
        for (int step = 1; step < LANES; step *= 2) {
            const T other = ShuffleFrom(lanes_mask<LANES>(), value, lane + step < LANES ? lane + step : lane, LANES);
            if (lane % (2 * step) == 0 && lane + step < valid)
                value = function(value, other);
        }
        return value;
    }
    CUDA_EMULATOR_METHOD T Sum(T value, int valid = LANES) { return Reduce(value, cub::Sum(), valid); }
};

template <class T, int LANES = 32>
class WarpScan
{
  public:
    struct TempStorage {};
    CUDA_EMULATOR_METHOD explicit WarpScan(TempStorage &) {}
    template <class F>
    CUDA_EMULATOR_METHOD void InclusiveScan(T value, T &result, F function)
    {
        const int lane = own_number() % LANES;
        for (int step = 1; step < LANES; step *= 2) {
            const T other = ShuffleFrom(lanes_mask<LANES>(), value, lane >= step ? lane - step : lane, LANES);
            if (lane >= step)
                value = function(other, value);
        }
        result = value;
    }
    CUDA_EMULATOR_METHOD void InclusiveSum(T value, T &result) { InclusiveScan(value, result, Sum()); }
    CUDA_EMULATOR_METHOD void ExclusiveSum(T value, T &result)
    {
        T sum;
        InclusiveScan(value, sum, Sum());
        result = sum - value;
    }
};

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

/* The results of warps are stored in shared memory, and the first thread combines them in order. As with CUB, a barrier
 * is needed before the storage is used again. */
template <class T, int X, BlockReduceAlgorithm A = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int ARCH = 0>
class BlockReduce
{
    static constexpr int THREADS = X * Y * Z, WARPS = (THREADS + 31) / 32;

  public:
    struct TempStorage {
        T parts[WARPS];
    };
    CUDA_EMULATOR_METHOD explicit BlockReduce(TempStorage &storage) : storage(storage) {}
    /* Valid in thread 0. */
    template <class F>
    CUDA_EMULATOR_METHOD T Reduce(T value, F function, int valid = THREADS)
    {
        const int number = own_number(), warp = number / 32, lane = number % 32;
        const int width = THREADS - 32 * warp < 32 ? THREADS - 32 * warp : 32, left = valid - 32 * warp;
        const unsigned mask = width == 32 ? ~0u : (1u << width) - 1;
        for (int step = 1; step < 32; step *= 2) {
            const T other = ShuffleFrom(mask, value, lane + step < width ? lane + step : lane, 32);
            if (lane % (2 * step) == 0 && lane + step < width && lane + step < left)
                value = function(value, other);
        }
        if (lane == 0)
            storage.parts[warp] = value;
        __syncthreads();
        if (number == 0)
            for (int i = 1; i < WARPS && 32 * i < valid; i++)
                value = function(value, storage.parts[i]);
        return value;
    }
    CUDA_EMULATOR_METHOD T Sum(T value, int valid = THREADS) { return Reduce(value, cub::Sum(), valid); }
    template <int N, class F>
    CUDA_EMULATOR_METHOD T Reduce(T (&values)[N], F function)
    {
        T value = values[0];
        for (int i = 1; i < N; i++)
            value = function(value, values[i]);
        return Reduce(value, function);
    }
    template <int N>
    CUDA_EMULATOR_METHOD T Sum(T (&values)[N])
    { return Reduce(values, cub::Sum()); }

  private:
    TempStorage &storage;
};

template <class T, int X, BlockScanAlgorithm A = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int ARCH = 0>
class BlockScan
{
    static constexpr int THREADS = X * Y * Z;

  public:
    struct TempStorage {
        T parts[THREADS];
    };
    CUDA_EMULATOR_METHOD explicit BlockScan(TempStorage &storage) : storage(storage) {}
    template <class F>
    CUDA_EMULATOR_METHOD void InclusiveScan(T value, T &result, F function, T &total)
    {
        const int number = own_number();
        for (int step = 1; step < THREADS; step *= 2) {
            storage.parts[number] = value;
            __syncthreads();
            if (number >= step)
                value = function(storage.parts[number - step], value);
            __syncthreads();
        }
        storage.parts[number] = value;
        __syncthreads();
        total = storage.parts[THREADS - 1];
        result = value;
    }
    template <class F>
    CUDA_EMULATOR_METHOD void InclusiveScan(T value, T &result, F function)
    {
        T total;
        InclusiveScan(value, result, function, total);
    }
    CUDA_EMULATOR_METHOD void InclusiveSum(T value, T &result) { InclusiveScan(value, result, Sum()); }
    CUDA_EMULATOR_METHOD void InclusiveSum(T value, T &result, T &total) { InclusiveScan(value, result, Sum(), total); }
    template <class F>
    CUDA_EMULATOR_METHOD void ExclusiveScan(T value, T &result, T first, F function, T &total)
    {
        T sum;
        InclusiveScan(value, sum, function, total);
        const int number = own_number();
        result = number == 0 ? first : function(first, storage.parts[number - 1]);
    }
    template <class F>
    CUDA_EMULATOR_METHOD void ExclusiveScan(T value, T &result, T first, F function)
    {
        T total;
        ExclusiveScan(value, result, first, function, total);
    }
    CUDA_EMULATOR_METHOD void ExclusiveSum(T value, T &result) { ExclusiveScan(value, result, T(), Sum()); }
    CUDA_EMULATOR_METHOD void ExclusiveSum(T value, T &result, T &total)
    { ExclusiveScan(value, result, T(), Sum(), total); }

  private:
    TempStorage &storage;
};

/* Of a device, by one thread. The first call asks for the size of the workspace. */
template <class In, class Out, class F, class T>
__attribute__((noinline)) void reduce_kernel(In in, Out out, long long n, F function, T first)
{
    T sum = first;
    for (long long i = 0; i < n; i++)
        sum = function(sum, in[i]);
    *out = sum;
}
template <class In, class Out, class F>
__attribute__((noinline)) void scan_kernel(In in, Out out, long long n, F function, bool inclusive)
{
    std::remove_cv_t<std::remove_reference_t<decltype(in[0])>> sum{};
    for (long long i = 0; i < n; i++) {
        const auto value = in[i];
        const auto next = i == 0 && inclusive ? value : function(sum, value);
        out[i] = inclusive ? next : sum;
        sum = next;
    }
}
CUDA_EMULATOR_API bool asks_for_size(void *workspace, size_t &bytes)
{
    if (workspace == nullptr)
        bytes = 1;
    return workspace == nullptr;
}
struct DeviceReduce {
    template <class In, class Out, class F, class T>
    CUDA_EMULATOR_API cudaError_t Reduce(
        void *workspace, size_t &bytes, In in, Out out, long long n, F function, T first, cudaStream_t = nullptr)
    {
        if (!asks_for_size(workspace, bytes))
            cuda_emulator::launch("cub::DeviceReduce", cuda_emulator::Configuration(1, 1),
                [](auto... a) __attribute__((no_sanitize("thread"))) { reduce_kernel(a...); }, in, out, n, function,
                first);
        return cudaPeekAtLastError();
    }
    template <class In, class Out>
    CUDA_EMULATOR_API cudaError_t Sum(
        void *workspace, size_t &bytes, In in, Out out, long long n, cudaStream_t stream = nullptr)
    {
        typedef std::remove_cv_t<std::remove_reference_t<decltype(*in)>> T;
        return Reduce(workspace, bytes, in, out, n, cub::Sum(), T(), stream);
    }
    template <class In, class Out>
    CUDA_EMULATOR_API cudaError_t Max(
        void *workspace, size_t &bytes, In in, Out out, long long n, cudaStream_t stream = nullptr)
    {
        typedef std::remove_cv_t<std::remove_reference_t<decltype(*in)>> T;
        return Reduce(workspace, bytes, in, out, n, cub::Max(), std::numeric_limits<T>::lowest(), stream);
    }
    template <class In, class Out>
    CUDA_EMULATOR_API cudaError_t Min(
        void *workspace, size_t &bytes, In in, Out out, long long n, cudaStream_t stream = nullptr)
    {
        typedef std::remove_cv_t<std::remove_reference_t<decltype(*in)>> T;
        return Reduce(workspace, bytes, in, out, n, cub::Min(), std::numeric_limits<T>::max(), stream);
    }
};
struct DeviceScan {
    template <class In, class Out>
    CUDA_EMULATOR_API cudaError_t Scan(void *workspace, size_t &bytes, In in, Out out, long long n, bool inclusive)
    {
        if (!asks_for_size(workspace, bytes) && n > 0)
            cuda_emulator::launch("cub::DeviceScan", cuda_emulator::Configuration(1, 1),
                [](auto... a) __attribute__((no_sanitize("thread"))) { scan_kernel(a...); }, in, out, n, Sum(),
                inclusive);
        return cudaPeekAtLastError();
    }
    template <class In, class Out>
    CUDA_EMULATOR_API cudaError_t InclusiveSum(
        void *workspace, size_t &bytes, In in, Out out, long long n, cudaStream_t = nullptr)
    { return Scan(workspace, bytes, in, out, n, true); }
    template <class In, class Out>
    CUDA_EMULATOR_API cudaError_t ExclusiveSum(
        void *workspace, size_t &bytes, In in, Out out, long long n, cudaStream_t = nullptr)
    { return Scan(workspace, bytes, in, out, n, false); }
};

} // namespace cub
#endif
