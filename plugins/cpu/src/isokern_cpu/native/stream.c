/* A stream runs its calls in the caller's thread, so all it holds is the list it captures. */
#include <stdlib.h>

#include "runtime.h"

void *ik_stream_create(void) { return calloc(1, sizeof(ik_stream)); }

void ik_stream_destroy(void *given)
{
    ik_stream *s = given;
    if (s == NULL)
        return;
    ik_calls_free(s->calls, s->count);
    free(s);
}

ik_status ik_stream_synchronize(void *s) { return s == NULL ? ik_fail(IK_INVALID_ARGUMENT, "the stream is null") : IK_SUCCESS; }
