/* embedding: y[i] = table[indices[i]], the rows of a table of floats or blocks cast to the type of y; a table of F64
 * is one for y of F64.
 *
 * A negative index counts from the end. For an index out of range zeros are written, and the first such index is
 * reported at the end. Each row is prefetched while the one before it is converted. */
#include <stdatomic.h>

#include "runs.h"
#include "blocks.h"
#include "operators/embedding.h"

typedef struct job {
    const ik_tensor *ty, *table, *indices;
    char *y;
    const char *x;
    const char *index;
    int64_t d;
    bool same, stream;         /* same: rows are copied without conversion; stream: past the caches */
    _Atomic int64_t first_bad; /* position in indices of the first index out of range */
} job;

enum { PIECE = IK_TILE / 2 }; /* PIECE: elements prefetched at once */

static const double zeros[PIECE]; /* of either compute type */

/* The row that index `at` selects, -1 where it is out of range. */
static int64_t row_of(const job *j, int64_t at)
{
    int64_t row = ik_index_at(j->indices->dtype, j->index, ik_row_offset(j->indices, at, 0));
    row += row < 0 ? j->table->shape[0] : 0;
    return row < j->table->shape[0] ? ik_max(row, -1) : -1;
}

static const char *address(const job *j, int64_t row)
{ return row < 0 ? NULL : j->x + ik_bytes(j->table->dtype, row * j->table->strides[0]); }

static void copy_row(const job *j, const char *x, char *y, const char *next)
{
    int64_t from = j->table->strides[1], to = j->ty->strides[j->ty->ndim - 1];
    double scratch[PIECE] IK_ALIGNED;
    for (int64_t at = 0; at < j->d; at += PIECE) {
        int64_t n = ik_min(j->d - at, PIECE);
        char *place = y + ik_bytes(j->ty->dtype, at * to);
        if (next != NULL && (from == 1 || from == 0))
            ik_prefetch(next + ik_bytes(j->table->dtype, at), ik_bytes(j->table->dtype, n));
        if (x == NULL) {
            ik_put(j->ty->dtype, zeros, place, to, n, j->stream);
            continue;
        }
        const char *source = x + ik_bytes(j->table->dtype, at * from);
        if (j->same) {
            if (j->stream)
                ik_stream_copy(place, source, ik_bytes(j->ty->dtype, n));
            else
                memcpy(place, source, (size_t)ik_bytes(j->ty->dtype, n));
            continue;
        }
        const void *v = j->table->dtype == IK_F64 ? ik_fetch(IK_F64, source, from, n, scratch)
                                                  : ik_fetch_weights(j->table->dtype, source, from, n, (void *)scratch);
        ik_put(j->ty->dtype, v, place, to, n, j->stream);
    }
}

/* Look up indices begin to end, in order. */
static void embed(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    job *j = context;
    int64_t following = row_of(j, begin);
    for (int64_t at = begin; at < end; at++) {
        int64_t row = following, seen = atomic_load(&j->first_bad);
        following = at + 1 < end ? row_of(j, at + 1) : -1;
        while (row < 0 && at < seen && !atomic_compare_exchange_weak(&j->first_bad, &seen, at))
            ;
        copy_row(j, address(j, row), j->y + ik_bytes(j->ty->dtype, ik_row_offset(j->ty, at, 1)), address(j, following));
    }
    if (j->stream)
        ik_stream_fence();
}

IK_KERNEL(embedding)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_EMBEDDING_Y], *table = &plan->tensors[IK_EMBEDDING_TABLE],
                    *indices = &plan->tensors[IK_EMBEDDING_INDICES];
    job j = { .ty = y, .table = table, .indices = indices, .d = table->shape[1], .first_bad = INT64_MAX };
    j.y = ik_ptr(plan, data, IK_EMBEDDING_Y);
    j.x = ik_ptr(plan, data, IK_EMBEDDING_TABLE);
    j.index = ik_ptr(plan, data, IK_EMBEDDING_INDICES);
    int64_t picks = ik_numel(indices), bytes = ik_bytes(y->dtype, j.d), last = y->ndim - 1;
    j.same = y->dtype == table->dtype && table->strides[1] == 1 && y->strides[last] == 1;
    bool whole_lines = ((uintptr_t)j.y | (uint64_t)bytes) % 64 == 0;
    for (int32_t i = 0; i < last; i++)
        whole_lines &= ik_bytes(y->dtype, y->strides[i]) % 64 == 0;
    j.stream = picks * bytes >= IK_STREAM_BYTES && y->strides[last] == 1 && (whole_lines || bytes >= 1024);
    ik_parallel_for(picks, IK_THREAD_BYTES / ik_max(bytes, 1), embed, &j);
    int64_t bad = atomic_load(&j.first_bad);
    return bad == INT64_MAX ? IK_SUCCESS
                            : ik_bad_value(bad, ik_index_at(indices->dtype, j.index, ik_row_offset(indices, bad, 0)));
}
