/* The device for hosts in C, its memory and its streams: calls run at once, in the caller's thread. */
#include <stdlib.h>
#include <string.h>

#include "isokern_native.h"

const char *ik_level_missing(const char *level)
{
    (void)level;
    return NULL;
}

const char *ik_dtype_missing(int32_t dtype)
{
    (void)dtype; /* each kernel says itself which types it takes */
    return NULL;
}

uint32_t ik_device_count(void) { return 1; }

ik_status ik_device_select(uint32_t device)
{ return device == 0 ? IK_SUCCESS : ik_fail(IK_INVALID_ARGUMENT, "device %u; allowed: 0", device); }

ik_status ik_memory_alloc(uint64_t bytes, const char *kind, void **memory)
{
    if (strcmp(kind, "default") != 0)
        return ik_fail(IK_INVALID_ARGUMENT, "memory of kind %s; allowed: default", kind);
    *memory = aligned_alloc(IK_ALIGNMENT, (bytes / IK_ALIGNMENT + 1) * IK_ALIGNMENT);
    if (*memory == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for %llu bytes", (unsigned long long)bytes);
    memset(*memory, 0, bytes);
    return IK_SUCCESS;
}

void ik_memory_free(void *memory) { free(memory); }

ik_status ik_memory_write(void *to, const void *from, uint64_t bytes, void *stream)
{
    (void)stream;
    memcpy(to, from, bytes);
    return IK_SUCCESS;
}

ik_status ik_memory_read(void *to, const void *from, uint64_t bytes, void *stream)
{ return ik_memory_write(to, from, bytes, stream); }

void *ik_stream_create(void) { return malloc(1); } /* an address of its own */

void ik_stream_destroy(void *stream)
{
    ik_stream_abandon(stream);
    free(stream);
}

ik_status ik_stream_synchronize(void *stream)
{
    (void)stream;
    return IK_SUCCESS;
}
