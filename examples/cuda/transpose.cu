// A transpose by tiles of 32 by 32, with a padded row against bank conflicts.
#define TILE 32

template <typename T>
__global__ void transpose(const T *__restrict__ x, T *__restrict__ y, int rows, int cols)
{
    __shared__ T tile[TILE][TILE + 1];
    int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE;
    for (int j = threadIdx.y; j < TILE; j += blockDim.y)
        if (c < cols && r + j < rows)
            tile[j][threadIdx.x] = x[(r + j) * cols + c];
    __syncthreads();
    r += threadIdx.x;
    c = blockIdx.x * TILE;
    for (int j = threadIdx.y; j < TILE; j += blockDim.y)
        if (r < rows && c + j < cols)
            y[(c + j) * rows + r] = tile[threadIdx.x][j];
}
