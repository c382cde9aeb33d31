// The mean of six neighbours in three dimensions, with a block's cells and their rim in shared memory.
namespace grid
{

struct Size {
    int x, y, z;
};

__device__ __forceinline__ int at(int x, int y, int z, Size s)
{
    return (z * s.y + y) * s.x + x;
}

__global__ void stencil(const float *in, float *out, int nx, int ny, int nz)
{
    __shared__ float cells[6][6][34];
    const Size s = { nx, ny, nz };
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y, z = blockIdx.z * 4 + threadIdx.z;
    for (int k = threadIdx.z; k < 6; k += 4)
        for (int j = threadIdx.y; j < 6; j += 4)
            for (int i = threadIdx.x; i < 34; i += 32) {
                const int gx = min(max(int(blockIdx.x) * 32 + i - 1, 0), nx - 1);
                const int gy = min(max(int(blockIdx.y) * 4 + j - 1, 0), ny - 1);
                const int gz = min(max(int(blockIdx.z) * 4 + k - 1, 0), nz - 1);
                cells[k][j][i] = in[at(gx, gy, gz, s)];
            }
    __syncthreads();
    if (x >= nx || y >= ny || z >= nz)
        return;
    const int i = threadIdx.x + 1, j = threadIdx.y + 1, k = threadIdx.z + 1;
    out[at(x, y, z, s)] = (cells[k][j][i - 1] + cells[k][j][i + 1] + cells[k][j - 1][i] + cells[k][j + 1][i]
                              + cells[k - 1][j][i] + cells[k + 1][j][i])
        / 6;
}

} // namespace grid
