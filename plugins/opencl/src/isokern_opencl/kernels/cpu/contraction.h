/* What gemm and conv2d share on processors: a work-item makes a block of rows of one strip of columns, in tiles of registers.
 *
 *     sums[i, j] = Σ_p a[i, p] * b[p, j]
 *
 * Vectors are 64 bytes, a strip is two of them. With the 32 registers of AVX-512 a tile is 8 rows of a whole strip: 16 vectors of sums keep
 * two units busy that take 4 cycles. Elsewhere it is 6 rows of half a strip: 12 of the 16 registers of AVX2, 24 of the 32 of Neon. The loop
 * over p is cut, so that the rows of b stay in the level-1 cache from tile to tile. Every sum is one chain of additions in the order of p.
 * A tile at the end of a block reads its last row more than once. */
#ifndef IK_CPU_CONTRACTION_H
#define IK_CPU_CONTRACTION_H
#include "simt.h"

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
typedef vector __attribute__((aligned(sizeof(value)))) loose; /* in memory */

#define ELEMENT_F32 ik_f32
#define ELEMENT_F64 ik_f64
#define ELEMENT_F16 ik_f16
#define ELEMENT_BF16 ik_bf16
#define ELEMENT_I8 ik_i8
#define ELEMENT_I16 ik_i16
#define ELEMENT_I32 ik_i32
#define ELEMENT_I64 ik_i64
#define ELEMENT_U8 ik_u8
#define ELEMENT_U16 ik_u16
#define ELEMENT_U32 ik_u32
#define ELEMENT_U64 ik_u64
typedef IK_PASTE(ELEMENT_, IK_TYPE_y) element; /* of every tensor */
#define LOAD(p, i) ((value)IK_PASTE(ik_load_, IK_TYPE_y)(p, i))
#define STORE(p, i, v) IK_PASTE(ik_store_, IK_TYPE_y)(p, i, v)

#ifdef __AVX512F__
enum { TILE_ROWS = 8, TILE_VECTORS = 2 };
#else
enum { TILE_ROWS = 6, TILE_VECTORS = 1 };
#endif
enum { LANES = 64 / sizeof(value), STRIP = 2 * LANES, BLOCK_K = 256, MOST_ROWS = 64, SUMS = (MOST_ROWS + TILE_ROWS) * 2 };

#pragma OPENCL FP_CONTRACT ON

/* One tile: begins its sums, or adds to them. Row p of b lies at b + p * b_step or, with `offsets`, at b + offsets[p]. */
static IK_INLINE void tile(IK_GLOBAL const value *a, ik_index a_row, int rows, IK_GLOBAL const value *b, ik_index b_step,
                           IK_GLOBAL const ik_index *offsets, int k, value *sums, int begin)
{
    IK_GLOBAL const value *line[TILE_ROWS];
    vector sum[TILE_ROWS][TILE_VECTORS];
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++) {
        line[i] = a + min(i, rows - 1) * a_row;
#pragma unroll
        for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = begin ? (vector)0 : *(vector *)(sums + i * STRIP + j * LANES);
    }
#pragma nounroll
    for (int p = 0; p < k; p++) {
        IK_GLOBAL const value *row = b + (offsets != 0 ? offsets[p] : p * b_step);
        vector x[TILE_VECTORS];
#pragma unroll
        for (int j = 0; j < TILE_VECTORS; j++)
            x[j] = *(IK_GLOBAL const loose *)(row + j * LANES);
#pragma unroll
        for (int i = 0; i < TILE_ROWS; i++)
#pragma unroll
            for (int j = 0; j < TILE_VECTORS; j++)
                sum[i][j] += line[i][p] * x[j];
    }
#pragma unroll
    for (int i = 0; i < TILE_ROWS; i++)
#pragma unroll
        for (int j = 0; j < TILE_VECTORS; j++)
            *(vector *)(sums + i * STRIP + j * LANES) = sum[i][j];
}

/* The sums of MOST_ROWS rows at most; with the room of a tile behind them they are SUMS vectors. */
static IK_INLINE void contract(IK_GLOBAL const value *a, ik_index a_row, int rows, IK_GLOBAL const value *b, ik_index b_step,
                               IK_GLOBAL const ik_index *offsets, ik_index k, value *sums)
{
    ik_index from = 0;
    do { /* once at least: a sum of no products is zero */
        const int count = (int)min((ik_index)BLOCK_K, k - from);
        IK_GLOBAL const ik_index *ahead = offsets != 0 ? offsets + from : 0;
        IK_GLOBAL const value *block = offsets != 0 ? b : b + from * b_step;
        for (int i = 0; i < rows; i += TILE_ROWS)
            for (int j = 0; j < STRIP; j += TILE_VECTORS * LANES)
                tile(a + i * a_row + from, a_row, rows - i, block + j, b_step, ahead, count, sums + i * STRIP + j, from == 0);
        from += BLOCK_K;
    } while (from < k);
}

/* to[i * pitch + j] = from[i * row + j * col]. What lies the other way round goes through squares, which are read and written in runs. */
static IK_INLINE void copy(IK_GLOBAL const element *from, ik_index row, ik_index col, ik_index rows, ik_index cols, IK_GLOBAL value *to, ik_index pitch)
{
    enum { SIDE = 16 };
    if (col == 1 || row != 1) {
        for (ik_index i = 0; i < rows; i++)
            for (ik_index j = 0; j < cols; j++)
                to[i * pitch + j] = LOAD(from, i * row + j * col);
        return;
    }
    value square[SIDE][SIDE];
    for (ik_index i0 = 0; i0 < rows; i0 += SIDE)
        for (ik_index j0 = 0; j0 < cols; j0 += SIDE) {
            const int high = (int)min((ik_index)SIDE, rows - i0), wide = (int)min((ik_index)SIDE, cols - j0);
            for (int j = 0; j < wide; j++)
                for (int i = 0; i < high; i++)
                    square[i][j] = LOAD(from, i0 + i + (j0 + j) * col);
            for (int i = 0; i < high; i++)
                for (int j = 0; j < wide; j++)
                    to[(i0 + i) * pitch + j0 + j] = square[i][j];
        }
}

/* LANES elements, one after the other. */
static IK_INLINE vector load_vector(IK_GLOBAL const element *from)
{
#if IK_SIZE_y == 2 && defined(IK_COMPUTE_F32)
    vector x;
    for (int i = 0; i < LANES; i++)
        ((value *)&x)[i] = LOAD(from, i);
    return x;
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
