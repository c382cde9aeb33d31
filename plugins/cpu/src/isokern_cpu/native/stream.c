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
