/* What nvcc includes by itself. */
#include "cuda_language.h"
