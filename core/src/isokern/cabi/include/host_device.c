/* The host side of a plug-in whose one device computes in the process's own memory and in the caller's thread. A stream
 * is therefore only an address of its own, and nothing is ever pending. A plug-in that compiles this file defines
 * ik_level_missing and ik_dtype_missing besides. */
#include <stdlib.h>
#include <string.h>

#include "isokern_native.h"

uint32_t ik_device_count(void) { return 1; }

ik_status ik_device_select(uint32_t device)
{ return device == 0 ? IK_SUCCESS : ik_fail(IK_INVALID_ARGUMENT, "device %u; allowed: 0", device); }

ik_status ik_memory_alloc(uint64_t bytes, const char *kind, void **memory)
{
    if (kind == NULL || memory == NULL)
        return ik_fail(IK_INVALID_ARGUMENT, "the %s is null", kind == NULL ? "kind of memory" : "place for the memory");
    *memory = NULL;
    if (strcmp(kind, "default") != 0)
        return ik_fail(IK_INVALID_ARGUMENT, "memory of kind %s; allowed: default", kind);
    /* calloc does not touch the pages that the system zeroes; where its memory begins is kept before ours */
    char *base = bytes <= SIZE_MAX - 2 * IK_ALIGNMENT ? calloc(1, bytes + 2 * IK_ALIGNMENT) : NULL;
    if (base == NULL)
        return ik_fail(IK_OUT_OF_MEMORY, "no memory for %llu bytes", (unsigned long long)bytes);
    void **found = (void **)(void *)(base + 2 * IK_ALIGNMENT - (uintptr_t)base % IK_ALIGNMENT);
    found[-1] = base;
    *memory = found;
    return IK_SUCCESS;
}

void ik_memory_free(void *memory)
{
    if (memory != NULL)
        free(((void **)memory)[-1]);
}

static ik_status copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    if (bytes != 0 && (to == NULL || from == NULL))
        return ik_fail(IK_INVALID_ARGUMENT, "what is to be copied %s is null", to == NULL ? "to" : "from");
    ik_status status = ik_stream_synchronize(stream);
    if (status == IK_SUCCESS && bytes != 0)
        memmove(to, from, bytes);
    return status;
}

ik_status ik_memory_write(void *to, const void *from, uint64_t bytes, void *stream)
{ return copy(to, from, bytes, stream); }
ik_status ik_memory_read(void *to, const void *from, uint64_t bytes, void *stream)
{ return copy(to, from, bytes, stream); }

void *ik_stream_create(void) { return malloc(1); }

void ik_stream_destroy(void *stream)
{
    ik_stream_abandon(stream);
    free(stream);
}

ik_status ik_stream_synchronize(void *stream)
{ return stream == NULL ? ik_fail(IK_INVALID_ARGUMENT, "the stream is null") : IK_SUCCESS; }
