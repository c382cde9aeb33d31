/* What nvcc includes by itself: the language and the runtime's functions. */
#include "cuda_runtime_api.h"
