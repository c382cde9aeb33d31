/* A stream runs its calls in the caller's thread, so all it consists of is an address of its own. */
#include <stdlib.h>

#include "runtime.h"

void *ik_stream_create(void) { return malloc(1); }

void ik_stream_destroy(void *s)
{
    ik_stream_abandon(s);
    free(s);
}

ik_status ik_stream_synchronize(void *s)
{ return s == NULL ? ik_fail(IK_INVALID_ARGUMENT, "the stream is null") : IK_SUCCESS; }
