/* The vectorised loops from which a body is built (tile_functions.h), one for each opcode and compute type: those of
 * the types in this part. */
#ifndef IK_TILES_H
#define IK_TILES_H
#include "opcodes.h"
#include "part_types.h"

#define IK_TILE static __attribute__((noinline))
#include "tile_functions.h"
#undef IK_TILE

#define IK_CASE(number, function) \
    case number: function(n, in[0], in[1], in[2], out); return true;
#if IK_IN_PART(0)
static bool run_i64(int64_t code, int64_t n, const void *const *in, void *out)
{
    switch (code) {
        IK_TILES_I64(IK_CASE) default : return false;
    }
}

static bool run_u64(int64_t code, int64_t n, const void *const *in, void *out)
{
    switch (code) {
        IK_TILES_U64(IK_CASE) default : return false;
    }
}

const ik_nest_loops IK_SHARED(generic_i64) = { run_i64, NULL }, IK_SHARED(generic_u64) = { run_u64, NULL };
#endif
#if IK_IN_PART(1)
static bool run_f32(int64_t code, int64_t n, const void *const *in, void *out)
{
    switch (code) {
        IK_TILES_F32(IK_CASE) default : return false;
    }
}
#endif
#if IK_IN_PART(2)
static bool run_f64(int64_t code, int64_t n, const void *const *in, void *out)
{
    switch (code) {
        IK_TILES_F64(IK_CASE) default : return false;
    }
}
#endif
#undef IK_CASE

#endif
