/* Register tiles for gemm and conv2d on processors: a work-item computes a block of rows of one panel of columns.
 *
 *     sums[i, j] = Σ_p a[i, p] * b[p, j]
 *
 * Vectors are 64 bytes, and a panel is two of them wide (PANEL_COLS columns). With the 32 registers of AVX-512 a tile
 * is 8 rows of a whole panel: 16 vectors of sums keep two units with a latency of 4 cycles busy. Elsewhere it is 6 rows
 * of half a panel: 12 of the 16 registers of AVX2, 24 of the 32 of Neon. The loop over p is split, so that the rows of
 * b stay in the level-1 cache from tile to tile. Every sum is one chain of additions in the order of p. A tile at the
 * end of a block reads its last row more than once. */
#ifndef IK_CPU_TILES_H
#define IK_CPU_TILES_H
#include "runs.h"

#ifndef PANEL
#define PANEL IK_GLOBAL /* the address space of b */
#endif

#if defined(IK_COMPUTE_F32)
typedef float value;
typedef float16 vector;
#elif defined(IK_COMPUTE_F64)
typedef double value;
typedef double8 vector;
#elif IK_SIZE_y == 8
typedef ulong value;
typedef ulong8 vector;
#else /* narrow integers wrap in 32 bits */
typedef uint value;
typedef uint16 vector;
#endif
typedef vector __attribute__((aligned(sizeof(value)))) loose; /* a vector in memory, aligned as its elements */

#ifndef SOURCE
#define SOURCE y
#endif
#define TYPE_OF(x) TYPE_OF_(x)
#define TYPE_OF_(x) IK_TYPE_##x
typedef IK_PASTE(
    ik_element_, TYPE_OF(SOURCE)) element; /* the element type of what is copied: every tensor, or SOURCE */
#define LOAD(p, i) ((value)IK_PASTE(ik_load_, TYPE_OF(SOURCE))(p, i))

#ifdef __AVX512F__
enum { TILE_ROWS = 8, TILE_VECTORS = 2 };
#else
enum { TILE_ROWS = 6, TILE_VECTORS = 1 };
#endif
enum {
    LANES = 64 / sizeof(value),
    PANEL_COLS = 2 * LANES,
    BLOCK_K = 256,
    MAX_ROWS = 64,
    SUMS = (MAX_ROWS + TILE_ROWS) * 2
};

#ifndef ADD_PRODUCT
#define ADD_PRODUCT(a, b, sum) ((sum) + (a) * (b))
#endif

#pragma OPENCL FP_CONTRACT ON

/* Compute one tile: begin its sums, or add to them. Row p of b lies at b + p * b_step or, with `offsets`, at b +
 * offsets[p]. */
static IK_INLINE void tile(IK_GLOBAL const value *a, ik_index a_row, int rows, PANEL const value *b, ik_index b_step,
    IK_GLOBAL const ik_index *offsets, int k, value *sums, int begin)
{
    IK_GLOBAL const value *line[TILE_ROWS];
    vector sum[TILE_ROWS][TILE_VECTORS];
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
        line[i] = a + min(i, rows - 1) * a_row;
#pragma unroll
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = begin ? (vector)0 : *(vector *)(sums + i * PANEL_COLS + j * LANES);
    }
#pragma nounroll
    for (int p = 0; p < k; p++) {
        PANEL const value *row = b + (offsets != 0 ? offsets[p] : p * b_step);
        vector x[TILE_VECTORS];
#pragma unroll
        for (int j = 0; j < TILE_VECTORS; j++)
            x[j] = *(PANEL const loose *)(row + j * LANES);
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i++)
#pragma unroll
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] = ADD_PRODUCT(line[i][p], x[j], sum[i][j]);
    }
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++)
#pragma unroll
        for (int j = 0; j < TILE_VECTORS; j++)
            *(vector *)(sums + i * PANEL_COLS + j * LANES) = sum[i][j];
}

/* Begin the sums of at most MAX_ROWS rows, or add to them, at most BLOCK_K products at a time; with the space of one
 * more tile after them they are SUMS vectors. */
static IK_INLINE void contract(IK_GLOBAL const value *a, ik_index a_row, int rows, PANEL const value *b,
    ik_index b_step, IK_GLOBAL const ik_index *offsets, int k, value *sums, int begin)
{
    for (int i = 0; i < rows; i += TILE_ROWS)
        for (int j = 0; j < PANEL_COLS; j += TILE_VECTORS * LANES)
            tile(a + i * a_row, a_row, rows - i, b + j, b_step, offsets, k, sums + i * PANEL_COLS + j, begin);
}

/* to[i * pitch + j] = from[i * row + j * col]. A transposed source is copied by squares, which are read and written in
 * runs. */
static IK_INLINE void copy(IK_GLOBAL const element *from, ik_index row, ik_index col, ik_index rows, ik_index cols,
    PANEL value *to, ik_index pitch)
{
    enum { SIDE = 16 };
    const ik_index wide = col != 1 && row == 1 && rows >= SIDE ? cols / SIDE * SIDE : 0;
    for (ik_index i0 = 0; i0 < rows && wide > 0; i0 += SIDE) {
        const ik_index i = min(i0, rows - SIDE); /* the last squares end with the rows */
        for (ik_index j = 0; j < wide; j += SIDE) {
            value square[SIDE][SIDE];
            for (int v = 0; v < SIDE; v++)
                for (int u = 0; u < SIDE; u++)
                    square[v][u] = LOAD(from, i + u + (j + v) * col);
            for (int u = 0; u < SIDE; u++)
                for (int v = 0; v < SIDE; v++)
                    to[(i + u) * pitch + j + v] = square[v][u];
        }
    }
    for (ik_index i = 0; i < rows; i++)
        for (ik_index j = wide; j < cols; j++)
            to[i * pitch + j] = LOAD(from, i * row + j * col);
}

#if IK_SIZE_y == 2 && defined(IK_COMPUTE_F32)
typedef ushort16 __attribute__((aligned(2))) loose_halves;

/* ik_bf16_to_f32 and ik_f16_to_f32 of isokern_half.h, 16 at a time: a loop over them is not vectorised where it has the
 * length of a vector. */
static IK_INLINE vector widen_BF16(ushort16 h) { return as_float16(convert_uint16(h) << 16); }

static IK_INLINE vector widen_F16(ushort16 h)
{
    const uint16 u = convert_uint16(h), magnitude = (u & 0x7fff) << 13,
                 finite = as_uint16(as_float16(magnitude) * 0x1p112f);
    return as_float16((magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite) | (u & 0x8000) << 16);
}
#endif

/* Load LANES adjacent elements. */
static IK_INLINE vector load_vector(IK_GLOBAL const element *from)
{
#if IK_SIZE_y == 2 && defined(IK_COMPUTE_F32)
    return IK_PASTE(widen_, IK_TYPE_y)(*(IK_GLOBAL const loose_halves *)from);
#else
    return *(IK_GLOBAL const loose *)from;
#endif
}

/* The sum of a vector's lanes, by halves. */
static IK_INLINE value total(vector x)
{
    value *lane = (value *)&x;
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lane[i] += lane[i + width];
    return lane[0];
}
#endif
