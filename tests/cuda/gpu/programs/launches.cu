// Forms of launches: in macros and templates, by pointers, with null pointers and packs, and dynamic shared memory.
#include <stdio.h>

#define expect(a, b) \
    do { \
        if ((a) != (b)) { \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #a); \
            exit(1); \
        } \
    } while (0)

namespace of_names
{
template <int N, typename T>
__global__ void fill(T *x, T value)
{
    if (threadIdx.x < N)
        x[threadIdx.x] = value + T(threadIdx.x);
}
} // namespace of_names

__global__ void optional(int *x, const int *y, int z) { x[threadIdx.x] = y == nullptr ? z : y[threadIdx.x]; }
extern __shared__ int of_all[];
__global__ void reverse(int *x)
{
    of_all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = of_all[blockDim.x - 1 - threadIdx.x];
}
struct Range {
    int begin, end;
};
__global__ void in_range(int *x, Range r) { x[threadIdx.x] = int(threadIdx.x) >= r.begin && int(threadIdx.x) < r.end; }
__device__ int counter;
__constant__ int table[3];
__global__ void symbols() { atomicAdd(&counter, table[threadIdx.x]); }

#define LAUNCH(kernel, ...) \
    kernel<<<1, 32>>>(__VA_ARGS__); \
    expect(cudaGetLastError(), cudaSuccess)
template <typename K, typename... A>
void forward(K kernel, A... arguments)
{ kernel<<<dim3(1), dim3(32)>>>(arguments...); }
template <typename T>
void fill_from(T *x, T begin)
{ of_names::fill<16><<<1, (16 > 8 ? 32 : 16), 0>>>(x, begin); }

int evaluated = 0;
int count_evaluations() { return ++evaluated; }

int main()
{
    int *x, host[32];
    const size_t bytes = sizeof host;
    cudaMalloc(&x, bytes);
    const auto fetch = [&](int i) {
        cudaMemcpy(host, x, bytes, cudaMemcpyDeviceToHost);
        return host[i];
    };
    cudaMemset(x, 0, bytes);
    LAUNCH(optional, x, NULL, 7);
    expect(fetch(31), 7);
    LAUNCH((of_names::fill<32, int>), x, 3);
    expect(fetch(31), 34);
    optional<<<1, 32>>>(x, 0, count_evaluations());
    expect(fetch(5), 1);
    expect(evaluated, 1);
    fill_from(x, 100);
    expect(fetch(15), 115);
    expect(fetch(16), 1);
    forward(optional, x, (const int *)nullptr, 9);
    expect(fetch(2), 9);
    void (*pointer)(int *, int) = of_names::fill<32, int>;
    pointer<<<1, 32>>>(x, 0);
    expect(fetch(8), 8);
    reverse<<<1, 32, bytes>>>(x);
    expect(fetch(0), 31);
    in_range<<<1, 32>>>(x, {3, 5});
    expect(fetch(4) - fetch(5), 1);
    int begin = 50;
    void *arguments[] = { &x, &begin };
    expect(cudaLaunchKernel(pointer, dim3(1), dim3(32), arguments, 0, 0), cudaSuccess);
    expect(fetch(1), 51);
    const int numbers[] = { 1, 2, 4 };
    int sum = 0;
    cudaMemcpyToSymbol(table, numbers, sizeof numbers);
    cudaMemcpyToSymbol(counter, &sum, sizeof sum);
    symbols<<<2, 3>>>();
    cudaMemcpyFromSymbol(&sum, counter, sizeof sum);
    expect(sum, 14);
    cudaFree(x);
    printf("all of it\n");
    return 0;
}
