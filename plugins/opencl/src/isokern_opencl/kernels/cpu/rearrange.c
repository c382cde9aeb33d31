/* Copies along memory, one item per run of 8,192 elements; transpositions of matrices, one item per 128 x 128 elements
 * by squares of 16 x 16 in registers; and copies where one side has lines of few elements, one item per run along the
 * other side. Other plans are refused.
 *
 * On PoCL (2 cores, AVX-512), against a group of one item per line, or per square of local memory: 4096 x 4096
 * transposed 7 times as fast, at odd sizes 3 to 4 times, copied 1.2 times (F32) and 1.8 times (F64), [16, 64, 56, 56]
 * to channels last 4 times; two lines of 32 elements interleaved 50 times. */
#include "runs.h"
#include "place.h"

typedef IK_ELEMENT(y) element;
#if IK_SIZE_y == 1
typedef uchar16 sixteen;
#elif IK_SIZE_y == 2
typedef ushort16 sixteen;
#elif IK_SIZE_y == 4
typedef uint16 sixteen;
#else
typedef ulong16 sixteen;
#endif
typedef sixteen sixteen_unaligned __attribute__((aligned(IK_SIZE_y)));
typedef ulong8 line_unaligned __attribute__((aligned(IK_SIZE_y)));
enum { SQUARE = 16, BLOCK = 128, PER_LINE = IK_LINE / IK_SIZE_y };

IK_ENTRY(rearrange_runs)(IK_PARAMS)
{
    const ik_index d = p.y.shape[(int)p.y.ndim - 1], parts = p.parts, taken = p.taken, rows = p.rows;
    const ik_index begin = IK_GROUP_ID % parts * IK_RUN, end = d - begin < IK_RUN ? d : begin + IK_RUN;
    const ik_index first = IK_GROUP_ID / parts * taken, last = rows - first < taken ? rows : first + taken;
    for (ik_index row = first; row < last; row++) {
        const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim - 1, row);
        IK_GLOBAL const element *from = x + at.x;
        IK_GLOBAL element *to = y + at.y;
        ik_index i = begin;
        for (; i < end && (size_t)(to + i) % IK_LINE != 0; i++)
            to[i] = from[i];
        if (p.stream)
            for (; end - i >= PER_LINE; i += PER_LINE)
                IK_STREAM((IK_GLOBAL ulong8 *)(to + i), *(IK_GLOBAL const line_unaligned *)(from + i));
        else
            for (; end - i >= PER_LINE; i += PER_LINE)
                *(IK_GLOBAL ulong8 *)(to + i) = *(IK_GLOBAL const line_unaligned *)(from + i);
        for (; i < end; i++)
            to[i] = from[i];
    }
}

/* From each quarter of a and b: interleave the first two elements, or the last two; take the first pairs, or the
 * last. */
#define LOW_SINGLE(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define HIGH_SINGLE(a, b) __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define LOW_PAIRS(a, b) __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define HIGH_PAIRS(a, b) __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
/* Quarters 0 and 2 of a, then of b; and quarters 1 and 3. */
#define EVEN_QUARTERS(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD_QUARTERS(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)

static IK_INLINE void put(IK_GLOBAL element *to, sixteen v, int stream)
{
    if (stream)
        IK_STREAM((IK_GLOBAL sixteen *)to, v);
    else
        *(IK_GLOBAL sixteen_unaligned *)to = v;
}

/* to[r * high + c] = from[c * step + r], r and c below 16. After two rounds a[4g + k] holds column 4l + k of rows 4g to
 * 4g + 3 in quarter l. */
static IK_INLINE void transpose(
    IK_GLOBAL const element *from, ik_index step, IK_GLOBAL element *to, ik_index high, int stream)
{
    sixteen a[SQUARE], b[SQUARE];
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        a[i] = *(IK_GLOBAL const sixteen_unaligned *)(from + i * step);
#pragma unroll
    for (int i = 0; i < SQUARE; i += 2) {
        b[i] = LOW_SINGLE(a[i], a[i + 1]);
        b[i + 1] = HIGH_SINGLE(a[i], a[i + 1]);
    }
#pragma unroll
    for (int i = 0; i < SQUARE; i += 4) {
        a[i] = LOW_PAIRS(b[i], b[i + 2]);
        a[i + 1] = HIGH_PAIRS(b[i], b[i + 2]);
        a[i + 2] = LOW_PAIRS(b[i + 1], b[i + 3]);
        a[i + 3] = HIGH_PAIRS(b[i + 1], b[i + 3]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const sixteen even = EVEN_QUARTERS(a[k], a[4 + k]), odd = ODD_QUARTERS(a[k], a[4 + k]);
        const sixteen even_below = EVEN_QUARTERS(a[8 + k], a[12 + k]), odd_below = ODD_QUARTERS(a[8 + k], a[12 + k]);
        put(to + k * high, EVEN_QUARTERS(even, even_below), stream);
        put(to + (4 + k) * high, EVEN_QUARTERS(odd, odd_below), stream);
        put(to + (8 + k) * high, ODD_QUARTERS(even, even_below), stream);
        put(to + (12 + k) * high, ODD_QUARTERS(odd, odd_below), stream);
    }
}

/* Of the last two dims, x is contiguous along the first and y along the second. */
IK_ENTRY(rearrange_squares)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_index step = p.x.strides[last], high = p.y.strides[last - 1];
    const ik_index above = IK_GROUP_ID / (ik_index)p.wide, other = above / (ik_index)p.high;
    const ik_index column = (IK_GROUP_ID - above * (ik_index)p.wide) * BLOCK,
                   row = (above - other * (ik_index)p.high) * BLOCK;
    const ik_index rows = p.y.shape[last - 1] - row < BLOCK ? p.y.shape[last - 1] : row + BLOCK;
    const ik_index columns = p.y.shape[last] - column < BLOCK ? p.y.shape[last] : column + BLOCK;
    const ik_place at = ik_place_of(p.y, p.x, last - 1, other);
    const int stream = p.stream && (size_t)(y + p.y.offset) % IK_LINE == 0; /* then every square is aligned */
    IK_GLOBAL const element *from = x + at.x;
    IK_GLOBAL element *to = y + at.y;
    for (ik_index r = row; r < rows; r += SQUARE)
        for (ik_index c = column; c < columns; c += SQUARE) {
            if (rows - r >= SQUARE && columns - c >= SQUARE) {
                transpose(from + c * step + r, step, to + r * high + c, high, stream);
                continue;
            }
            for (ik_index i = r; i < rows && i < r + SQUARE; i++)
                for (ik_index j = c; j < columns && j < c + SQUARE; j++)
                    to[i * high + j] = from[j * step + i];
        }
}

/* Runs along the last dim, for all elements of the dim before it, whose lines are short in y or in x. */
IK_ENTRY(rearrange_strides)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], few = p.y.shape[last - 1], parts = p.parts;
    const ik_index begin = IK_GROUP_ID % parts * IK_RUN, end = d - begin < IK_RUN ? d : begin + IK_RUN;
    const ik_index first = IK_GROUP_ID / parts * p.taken, rows = p.rows, y_step = p.y.strides[last],
                   x_step = p.x.strides[last], stop = rows - first < p.taken ? rows : first + (ik_index)p.taken;
    for (ik_index row = first; row < stop; row++) {
        const ik_place at = ik_place_of(p.y, p.x, last - 1, row);
        for (ik_index k = 0; k < few; k++) {
            IK_GLOBAL element *to = y + at.y + k * p.y.strides[last - 1];
            IK_GLOBAL const element *from = x + at.x + k * p.x.strides[last - 1];
            if (y_step == 1)
                for (ik_index i = begin; i < end; i++)
                    to[i] = from[i * x_step];
            else
                for (ik_index i = begin; i < end; i++)
                    to[i * y_step] = from[i * x_step];
        }
    }
}
