/* Fuzzer of a native library's verbs: fuzz_host CORPUS CALLS SEED. It changes the valid calls of a corpus at random.
 * It is built with sanitizers, which abort it where a verb or a kernel accesses memory that is not its own; it aborts
 * itself where a verb violates its contract. tools/fuzz_host.py makes the corpus and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "isokern.h"
#include "isokern_dtypes.h"

#define MAX_TENSORS 16
#define MOST_WORK 1e9    /* product of all tensors' element counts, up to which every kernel is fast */
#define MOST_BYTES 65536 /* of one tensor's memory */

typedef struct entry {
    uint32_t kind, n, outputs;
    ik_attributes attributes;
    ik_tensor tensors[MAX_TENSORS];
} entry;

static uint64_t state;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t n) { return random_bits() % n; }

static int64_t odd_number(void)
{
    static const int64_t numbers[] = { 0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64, 77, 255, 256, 1024, 65536, -1, -2,
        -32, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_C(1) << 40, INT64_C(1) << 62 };
    return numbers[below(sizeof numbers / sizeof *numbers)];
}

static void expect(int right, const char *what, const entry *e)
{
    if (right)
        return;
    fprintf(stderr, "kind %#x: %s; the last error is: %s\n", e->kind, what, ik_last_error());
    abort();
}

/* Change one thing about the call at random. */
static void mutate(entry *e, char *blob, const entry *every, uint32_t count)
{
    ik_tensor *t = &e->tensors[below(e->n ? e->n : 1)];
    switch (below(12)) {
    case 0: t->dtype = (int32_t)below(40); break;
    case 1: t->ndim = (int32_t)below(10) - (int32_t)below(2); break;
    case 2: t->offset = odd_number(); break;
    case 3:
    case 4: t->shape[below(IK_MAX_RANK)] = below(3) ? (int64_t)below(9) : odd_number(); break;
    case 5: t->strides[below(IK_MAX_RANK)] = below(3) ? (int64_t)below(9) : odd_number(); break;
    case 6: e->n = (uint32_t)below(MAX_TENSORS + 1); break;
    case 7: e->kind = every[below(count)].kind; break;
    case 8: *t = e->tensors[below(e->n ? e->n : 1)]; break;
    case 9:
        if (e->attributes.bytes)
            blob[below(e->attributes.bytes)] = (char)random_bits();
        break;
    case 10:
        if (e->attributes.bytes >= 8) {
            int64_t number = odd_number();
            memcpy(blob + below(e->attributes.bytes / 8) * 8, &number, sizeof number);
        }
        break;
    default:
        if (below(4) == 0)
            e->attributes.bytes = below(e->attributes.bytes + 1); /* never more than the blob has */
        else if (below(3) == 0)
            e->attributes.schema_id = random_bits();
    }
}

/* Return the bytes of a tensor's memory from its buffer's start, 0 where it is too large to be tried. */
static uint64_t bytes_of(const ik_tensor *t, double *work)
{
    const int block = ik_block_elements(t->dtype), size = ik_itemsize(t->dtype);
    int64_t high = t->offset;
    double elements = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        elements *= (double)t->shape[i];
    if (elements == 0)
        return 1;
    for (int32_t i = 0; i < t->ndim; i++)
        high += t->strides[i] > 0 ? (t->shape[i] - 1) * t->strides[i] : 0;
    const double bytes = ((double)high + block) / block * size;
    *work *= elements;
    return bytes > MOST_BYTES ? 0 : (uint64_t)((high + block) / block) * (uint64_t)size;
}

static void *exactly(uint64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, IK_ALIGNMENT, bytes) != 0)
        exit(3);
    return memory;
}

/* Call the plan with memory of exactly the described sizes; also with a workspace that is too small and with null data,
 * which must be refused. */
static void make(const ik_plan *plan, const entry *e, void *stream, uint64_t *made)
{
    void *data[MAX_TENSORS] = { 0 };
    double work = 1;
    int fits = 1;
    for (uint32_t i = 0; i < e->n && fits; i++) {
        if (e->tensors[i].dtype == IK_NONE)
            continue;
        uint64_t bytes = bytes_of(&e->tensors[i], &work);
        fits = bytes != 0 && work <= MOST_WORK;
        if (!fits)
            break;
        data[i] = exactly(bytes);
        for (uint64_t at = 0; at < bytes; at++)
            ((char *)data[i])[at] = (char)(below(8) ? below(4) : random_bits());
    }
    uint64_t bytes;
    const char *kind;
    expect(ik_op_workspace(plan, &bytes, &kind) == IK_SUCCESS && kind != NULL, "a plan has no workspace", e);
    fits = fits && bytes <= 64 * MOST_BYTES;
    if (fits) {
        void *space = bytes ? exactly(bytes) : NULL;
        if (bytes)
            expect(ik_op_call(plan, data, space, bytes - 1, stream) == IK_INSUFFICIENT_WORKSPACE || work == 0,
                "a byte less was taken", e);
        ik_status status = ik_op_call(plan, data, space, bytes, stream);
        expect(status >= IK_SUCCESS && status <= IK_INTERNAL_ERROR, "a status that is none", e);
        expect(status != IK_INTERNAL_ERROR, "an internal error", e);
        *made += status == IK_SUCCESS;
        expect(ik_op_call(plan, NULL, space, bytes, stream) == IK_INVALID_ARGUMENT, "null data was taken", e);
        free(space);
    }
    for (uint32_t i = 0; i < e->n; i++)
        free(data[i]);
}

int main(int argc, char **argv)
{
    FILE *file = argc > 3 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: fuzz_host CORPUS CALLS SEED\n");
        return 2;
    }
    uint32_t count = 0;
    entry *every = NULL;
    for (entry e;; count++) {
        uint64_t schema, bytes;
        memset(&e, 0, sizeof e);
        if (fread(&e.kind, 4, 1, file) != 1)
            break;
        if (fread(&e.n, 4, 1, file) != 1 || fread(&e.outputs, 4, 1, file) != 1 || fread(&schema, 8, 1, file) != 1
            || fread(&bytes, 8, 1, file) != 1 || e.n > MAX_TENSORS)
            return 2;
        char *blob = calloc(1, bytes + 1);
        if (fread(blob, 1, bytes, file) != bytes || fread(e.tensors, sizeof(ik_tensor), e.n, file) != e.n)
            return 2;
        e.attributes = (ik_attributes){ schema, bytes, blob };
        every = realloc(every, (count + 1) * sizeof *every);
        every[count] = e;
    }
    fclose(file);
    const uint64_t calls = strtoull(argv[2], NULL, 10);
    state = strtoull(argv[3], NULL, 10) * 2 + 88172645463325252u;
    void *stream = ik_stream_create();
    uint64_t taken = 0, made = 0;
    for (uint64_t i = 0; i < calls; i++) {
        entry e = every[below(count)];
        const uint64_t held = e.attributes.bytes;
        char *blob = malloc(held + !held);
        memcpy(blob, e.attributes.data, held);
        for (uint64_t changes = below(3) ? below(4) : 0; changes > 0; changes--)
            mutate(&e, blob, every, count);
        e.attributes.data = below(50) ? blob : NULL;
        ik_tensor *tensors = malloc((e.n + !e.n) * sizeof *tensors); /* exactly as many as the call declares */
        memcpy(tensors, e.tensors, e.n * sizeof *tensors);
        ik_plan *plan = NULL;
        const ik_status status = ik_op_create(e.kind, tensors, e.n, below(20) ? &e.attributes : NULL, &plan);
        expect(status >= IK_SUCCESS && status < IK_INTERNAL_ERROR, "a status that is none, or an internal error", &e);
        expect((status == IK_SUCCESS) == (plan != NULL), "a plan without success, or success without a plan", &e);
        expect(status == IK_SUCCESS || strlen(ik_last_error()) > 0, "an error without a word", &e);
        if (below(4) == 0) {
            const ik_status inferred = ik_op_infer(e.kind, tensors, e.n, &e.attributes);
            expect(inferred >= IK_SUCCESS && inferred < IK_INTERNAL_ERROR,
                "inference: a status that is none, or an internal error", &e);
        }
        free(tensors);
        free(blob);
        if (status == IK_SUCCESS) {
            taken++;
            make(plan, &e, stream, &made);
            ik_op_destroy(plan);
        }
    }
    ik_stream_destroy(stream);
    for (uint32_t i = 0; i < count; i++)
        free((void *)(uintptr_t)every[i].attributes.data);
    free(every);
    printf("%llu calls described, %llu taken, %llu made\n", (unsigned long long)calls, (unsigned long long)taken,
        (unsigned long long)made);
    return taken < calls / 20 || made < taken / 4;
}
