/* BF16 products by AMX: tdpbf16ps multiplies 16 rows of 16 pairs along k by 16 pairs of 16 columns, and adds in F32.
 *
 * Its speed has not been measured: no machine with AMX was available. It comes before avx512_bf16 because of the peak
 * that Intel publishes for 4th-generation Xeon, 1,024 operations per cycle and core, where vdpbf16ps does 64 and at
 * most two start per cycle. Only its results are checked, by conformance cases that run the instructions in software,
 * in C after their operation in the Intel SDM (tests/packaging/test_amx.py). */
#include "gemm_core.h"

enum { TILE = 16, lanes_pair = TILE, panel_width_pair = 2 * TILE, panel_rows_pair = 2 * TILE, row_step_pair = TILE };
#include "gemm_pairs.h"

/* Palette 1 (Intel SDM, LDTILECFG), all tiles full-sized: 0 to 3 hold sums, two above two; 4 and 5 rows of a; 6 and 7
 * columns of b. */
static const struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config = {
    .palette = 1, .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 }, .rows = { 16, 16, 16, 16, 16, 16, 16, 16 }
};

/* `tall` and `wide`, the numbers of tiles down and across, are constants where this is inlined. */
static inline __attribute__((always_inline)) void tiles_of(const int tall, const int wide, const ik_tile *t)
{
    const float *a = t->a, *b = t->b, *from = t->from;
    float *to = t->to;
    const int64_t a_row = t->a_row, b_row = t->b_step, from_row = t->from_row, to_row = t->to_row;
    atomic_signal_fence(memory_order_seq_cst); /* gcc's _tile_loadd does not declare that it reads memory */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (from != NULL) {
        _tile_loadd(0, from, 4 * from_row);
        if (wide == 2)
            _tile_loadd(1, from + TILE, 4 * from_row);
        if (tall == 2)
            _tile_loadd(2, from + TILE * from_row, 4 * from_row);
        if (tall == 2 && wide == 2)
            _tile_loadd(3, from + TILE * from_row + TILE, 4 * from_row);
    }
    for (int64_t p = 0; p < t->k; p += TILE) {
        _tile_loadd(4, a + p, 4 * a_row);
        _tile_loadd(6, b + p * b_row, 4 * b_row);
        _tile_dpbf16ps(0, 4, 6);
        if (wide == 2) {
            _tile_loadd(7, b + p * b_row + TILE, 4 * b_row);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (tall == 2) {
            _tile_loadd(5, a + TILE * a_row + p, 4 * a_row);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (tall == 2 && wide == 2)
            _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, to, 4 * to_row);
    if (wide == 2)
        _tile_stored(1, to + TILE, 4 * to_row);
    if (tall == 2)
        _tile_stored(2, to + TILE * to_row, 4 * to_row);
    if (tall == 2 && wide == 2)
        _tile_stored(3, to + TILE * to_row + TILE, 4 * to_row);
}

static void whole_tiles(int64_t tall, int64_t wide, const ik_tile *t)
{
    switch (2 * tall + wide) {
    case 3: tiles_of(1, 1, t); return;
    case 4: tiles_of(1, 2, t); return;
    case 5: tiles_of(2, 1, t); return;
    default: tiles_of(2, 2, t);
    }
}

/* The contract of gemm_tile.h, for panels of whole tiles; sums of fewer rows go through full-sized temporary tiles. */
static void tile_pair(int64_t rows, int64_t vecs, const ik_tile *t)
{
    if (rows % TILE == 0) {
        whole_tiles(rows / TILE, vecs, t);
        return;
    }
    float sums[panel_rows_pair * panel_width_pair] = { 0 };
    const size_t bytes = (size_t)(vecs * lanes_pair) * sizeof *sums;
    ik_tile whole = *t;
    whole.to = sums, whole.from = t->from != NULL ? sums : NULL;
    whole.to_row = whole.from_row = panel_width_pair;
    for (int64_t i = 0; i < rows && t->from != NULL; i++)
        memcpy(sums + i * panel_width_pair, (const float *)t->from + i * t->from_row, bytes);
    whole_tiles(ik_ceil_div(rows, TILE), vecs, &whole);
    for (int64_t i = 0; i < rows; i++)
        memcpy((float *)t->to + i * t->to_row, sums + i * panel_width_pair, bytes);
}

/* Pack rows of a, contiguous in pairs, and zeros up to whole tiles. */
static void pack_a_pair(
    const ik_gemm_args *g, int64_t row, int64_t rows, int64_t p0, int64_t k, float *packed, ik_tile *t)
{
    uint32_t *to = (uint32_t *)(void *)packed;
    const int64_t a_row = g->max_k + 16; /* 16: rows start in different sets of the cache */
    t->a = packed, t->a_row = a_row, t->a_step = 1;
    for (int64_t i = rows; i < ik_round_up(rows, TILE); i++)
        memset(to + i * a_row, 0, (size_t)k * sizeof *to);
    if (g->a.col == 1) {
        for (int64_t i = 0; i < rows; i++)
            pack_row(g, row + i, p0, k, to + i * a_row);
        return;
    }
    uint32_t pairs[4][panel_rows_pair];
    for (int64_t p = 0; p < k; p += 4) {
        for (int64_t q = 0; q < 4; q++)
            pack_pair(g, p0 + p + q, number(&g->a, row, 2 * (p0 + p + q)), g->a.col, rows, pairs[q]);
        ik_transpose_4((const char *)pairs, sizeof pairs[0], rows, (float *)(void *)(to + p), a_row);
    }
}

#define IK_T float
#define IK_OF(name) name##_pair
#include "gemm_block.h"

/* Tiles are thread state: each piece of work configures them first and releases them at its end. */
static void tile_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    _tile_loadconfig(&config);
    tasks_pair(context, begin, end, worker);
    _tile_release();
}

IK_SUPPORTED(gemm) { return refuse_pairs(plan); }
IK_WORKSPACE(gemm) { return pairs_workspace(plan, TILE); }
IK_KERNEL(gemm) { return run_pairs(plan, data, workspace, workspace_bytes, stream, TILE, tile_tasks); }
