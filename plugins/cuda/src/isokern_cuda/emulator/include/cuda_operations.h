/* The operations of warps, which kernels ask the emulator for. */
#ifndef ISOKERN_CUDA_OPERATIONS_H
#define ISOKERN_CUDA_OPERATIONS_H
enum cuda_emulator_operation {
    CUDA_SHUFFLE,
    CUDA_SHUFFLE_UP,
    CUDA_SHUFFLE_DOWN,
    CUDA_SHUFFLE_XOR,
    CUDA_BALLOT,
    CUDA_MATCH_ANY,
    CUDA_MATCH_ALL,
    CUDA_REDUCE,
    CUDA_SYNC_WARP
};
enum cuda_emulator_memory { CUDA_MEMORY_DEVICE, CUDA_MEMORY_PINNED, CUDA_MEMORY_HOST };
#endif
