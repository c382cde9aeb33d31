/* Launches from the host: emulator/rewriting.py makes a call of `launch` of each `kernel<<<…>>>(…)`. */
#ifndef ISOKERN_CUDA_LAUNCH_H
#define ISOKERN_CUDA_LAUNCH_H
#include "cuda_language.h"

extern "C" int cuda_emulator_launch(const char *name, const unsigned *grid, const unsigned *block, size_t shared,
    void (*call)(void *), void *given, size_t bytes); /* returns a cudaError_t */
typedef struct CUstream_st *cudaStream_t;

namespace cuda_emulator
{

/* What is between <<< and >>>. */
struct Configuration {
    dim3 grid, block;
    size_t shared;
    Configuration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr)
        : grid(grid), block(block), shared(shared)
    {
    }
};

template <size_t... I>
struct numbers {};
/* Arguments by value, each found by its number. */
template <size_t I, class T>
struct argument {
    T value;
};
template <class I, class... T>
struct arguments;
template <size_t... I, class... T>
struct arguments<numbers<I...>, T...> : argument<I, T>... {
    arguments(const T &...values) : argument<I, T>{ values }... {}
};
template <size_t I, class T>
__attribute__((no_sanitize("thread"), always_inline)) inline T &get(argument<I, T> &a)
{ return a.value; }

template <class F, class I, class... T>
struct prepared;
template <class F, size_t... I, class... T>
struct prepared<F, numbers<I...>, T...> {
    F function;
    arguments<numbers<I...>, T...> values;
    __attribute__((no_sanitize("thread"))) static void call(void *given)
    {
        auto *const p = static_cast<prepared *>(given);
        p->function(get<I>(p->values)...);
    }
};

void record_error(int error);

/* Run function(values...) in every thread of the grid. */
template <class F, class... T>
inline __attribute__((always_inline)) void launch(const char *name, const Configuration &c, F function, T... values)
{
    prepared<F, numbers<__integer_pack(sizeof...(T))...>, T...> p{ function, { values... } };
    const unsigned grid[] = { c.grid.x, c.grid.y, c.grid.z }, block[] = { c.block.x, c.block.y, c.block.z };
    record_error(cuda_emulator_launch(name, grid, block, c.shared, p.call, &p, sizeof p));
}

} // namespace cuda_emulator
#endif
