/* What Isokern's own kernels ask of the emulation beside CUDA (host/cuda_host.h): asynchronous copies, which happen at
 * once. Tensor cores are declared only; the device does not offer them. */
#ifndef ISOKERN_CUDA_KERNELS_H
#define ISOKERN_CUDA_KERNELS_H
#include "cuda_entry.h"

#define CUDA_HOST_SITE ""
void cuda_host_mma(float *sums, const float *given, const char *site);
void cuda_host_load_matrices(unsigned *loaded, const void *row, int transposed, const char *site);
CUDA_EMULATOR_INLINE void cuda_host_copy_async(void *to, const void *from, int bytes, const char *)
{
    for (int i = 0; i < 4; i++)
        static_cast<unsigned *>(to)[i] = 4 * i < bytes ? static_cast<const unsigned *>(from)[i] : 0;
}
CUDA_EMULATOR_INLINE void cuda_host_commit_copies() {}
CUDA_EMULATOR_INLINE void cuda_host_wait_copies(int) {}
#endif
