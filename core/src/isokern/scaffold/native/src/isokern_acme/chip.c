/* What the library says of the chip. The rest of the host side, its memory and streams, is core's host_device.c
 * (setup.py): replace that by a file here when the chip has memory of its own. */
#include "isokern_dtypes.h"
#include "isokern_native.h"

/* What this machine lacks for an instruction-set level of the library; null where it has everything. */
const char *ik_level_missing(const char *level)
{
    (void)level;
    return NULL;
}

/* Why no kernel takes elements of this type; null where some do. */
const char *ik_dtype_missing(int32_t dtype) { return ik_is_blocks(dtype) ? "the kernels read no blocks" : NULL; }
