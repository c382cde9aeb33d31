/* What runs a body's program: the loops over tiles, one for each opcode and compute type, and how the text that
 * describes a nest gets to shared memory. */
#ifndef IK_XPU_NEST_TILES_H
#define IK_XPU_NEST_TILES_H
#include "nest_plan.h"

#define IK_TILE static inline __device__
#undef IK_VECTORISE /* a result may overwrite an operand, but otherwise they do not alias */
#ifdef __clang__
#define IK_VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define IK_VECTORISE _Pragma("GCC ivdep")
#endif
#include "tile_functions.h"

#define CASE_F32(code, function) \
    case code: function(n, a, b, c, out); return;
#define CASE_I64(code, function) \
    case code: function(n, (const int64_t *)a, (const int64_t *)b, (const int64_t *)c, (int64_t *)out); return;
#define CASE_U64(code, function) \
    case code: function(n, (const uint64_t *)a, (const uint64_t *)b, (const uint64_t *)c, (uint64_t *)out); return;

static __device__ void ik_run_tile(int code, int n, const float *a, const float *b, const float *c, float *out)
{
    switch (code) {
        IK_TILES_F32(CASE_F32)
    }
}

static __device__ void ik_run_tile(
    int code, int n, const long long *a, const long long *b, const long long *c, long long *out)
{
    switch (code) {
        IK_TILES_I64(CASE_I64)
    }
}

static __device__ void ik_run_tile(int code, int n, const unsigned long long *a, const unsigned long long *b,
    const unsigned long long *c, unsigned long long *out)
{
    switch (code) {
        IK_TILES_U64(CASE_U64)
    }
}

/* Bring the job's text to shared memory: the words given as parameters, then those that earlier launches stored. */
static inline __device__ void ik_read_text(const ik_job &j, const ik_piece &given, __global_ptr__ const char *rest,
    long long *space, __shared_ptr__ long long *text)
{
    const int more = ik_text_words(j) - IK_GIVEN;
    if (core_id() == 0) {
        for (int i = 0; i < IK_GIVEN; i++)
            text[i] = given.words[i];
        if (more > 0)
            GM2LM(rest, space, more * 8);
        for (int i = 0; i < more; i++)
            text[IK_GIVEN + i] = space[i];
    }
    mfence_sm();
    sync_cluster();
}

/* Host: have `store` launched for each piece of the text that is too long for the parameters: of a piece, a number of
 * words, and where they belong in the rest. */
template <class Store>
static inline ik_status ik_store_rest(const ik_nest_plan &n, Store store)
{
    const int words = ik_text_words(n.job);
    for (int at = IK_GIVEN; at < words; at += IK_GIVEN) {
        ik_piece piece = {};
        const int count = (int)ik_min(IK_GIVEN, words - at);
        memcpy(piece.words, n.text + at, count * 8);
        const ik_status status = store(piece, count, at - IK_GIVEN);
        if (status != IK_SUCCESS)
            return status;
    }
    return IK_SUCCESS;
}
#endif
