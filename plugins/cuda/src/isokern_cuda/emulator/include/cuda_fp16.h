#include "cuda_language.h"
