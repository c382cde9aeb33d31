// Inclusive sums of each row of at most 1,024 elements, in two buffers.
__global__ void scan(const int *x, int *y, int n)
{
    extern __shared__ int buffers[];
    int from = 0;
    const int i = threadIdx.x, size = blockDim.x;
    buffers[i] = i < n ? x[blockIdx.x * n + i] : 0;
    __syncthreads();
    for (int step = 1; step < size; step *= 2) {
        const int to = size - from;
        buffers[to + i] = buffers[from + i] + (i >= step ? buffers[from + i - step] : 0);
        from = to;
        __syncthreads();
    }
    if (i < n)
        y[blockIdx.x * n + i] = buffers[from + i];
}
