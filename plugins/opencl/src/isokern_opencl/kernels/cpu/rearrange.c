/* Copies along memory, an item a run of 8,192 elements, and transpositions of matrices, an item 128 x 128 elements by squares of 16 x 16 in
 * registers; others are refused.
 *
 * GAIN */
/* launch
 * tensors(y, x)
 * let(d=y.shape[-1], n=len(y.shape), size=y.dtype.itemsize, large=y.numel * y.dtype.itemsize >= 2097152)
 * refuse(when=y.strides[-1] != 1 or d < 16, reason="y does not lie along memory for 16 elements")
 * let(along=x.strides[-1] == 1, dims=[i for i in range(n - 1) if x.strides[i] == 1 and y.shape[i] >= 16])
 * refuse(when=not along and len(dims) == 0, reason="x does not lie along memory for 16 elements")
 * let(rows=y.numel // d, taken=max(1, 8192 // d), parts=ceil_div(d, 8192))
 * rearrange_runs(when=along, groups=ceil_div(rows, taken) * parts, local=1, rows=rows, taken=taken, parts=parts, stream=large)
 * let(across=0 if along else dims[0])
 * let(wide=ceil_div(d, 128), high=ceil_div(y.shape[across], 128), squares=rows // max(1, y.shape[across]) * wide * high)
 * let(lines=y.offset * size % 64 == 0 and all([s * size % 64 == 0 for s in y.strides[:-1]]) and size > 1)
 * rearrange_squares(when=not along, groups=squares, local=1, across=across, wide=wide, high=high, stream=large and lines)
 */
#include "runs.h"

#if IK_SIZE_y == 1
typedef uchar bits;
typedef uchar16 sixteen;
#elif IK_SIZE_y == 2
typedef ushort bits;
typedef ushort16 sixteen;
#elif IK_SIZE_y == 4
typedef uint bits;
typedef uint16 sixteen;
#else
typedef ulong bits;
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
        IK_GLOBAL const bits *from = (IK_GLOBAL const bits *)x + ik_offset(p.x, row * d);
        IK_GLOBAL bits *to = (IK_GLOBAL bits *)y + ik_offset(p.y, row * d);
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

/* Of each quarter of a and b: the first two elements in turn, and the last two; the first pairs, and the last. */
static IK_INLINE sixteen low_single(sixteen a, sixteen b)
{
    return (sixteen)(a.s0, b.s0, a.s1, b.s1, a.s4, b.s4, a.s5, b.s5, a.s8, b.s8, a.s9, b.s9, a.sc, b.sc, a.sd, b.sd);
}

static IK_INLINE sixteen high_single(sixteen a, sixteen b)
{
    return (sixteen)(a.s2, b.s2, a.s3, b.s3, a.s6, b.s6, a.s7, b.s7, a.sa, b.sa, a.sb, b.sb, a.se, b.se, a.sf, b.sf);
}

static IK_INLINE sixteen low_pairs(sixteen a, sixteen b) { return (sixteen)(a.s01, b.s01, a.s45, b.s45, a.s89, b.s89, a.scd, b.scd); }

static IK_INLINE sixteen high_pairs(sixteen a, sixteen b) { return (sixteen)(a.s23, b.s23, a.s67, b.s67, a.sab, b.sab, a.sef, b.sef); }

/* Quarters 0 and 2 of a, then of b; and 1 and 3 */
static IK_INLINE sixteen even_quarters(sixteen a, sixteen b) { return (sixteen)(a.s0123, a.s89ab, b.s0123, b.s89ab); }

static IK_INLINE sixteen odd_quarters(sixteen a, sixteen b) { return (sixteen)(a.s4567, a.scdef, b.s4567, b.scdef); }

static IK_INLINE void put(IK_GLOBAL bits *to, sixteen v, int stream)
{
    if (stream)
        IK_STREAM((IK_GLOBAL sixteen *)to, v);
    else
        *(IK_GLOBAL sixteen_unaligned *)to = v;
}

/* to[r * high + c] = from[c * step + r], r and c below 16. After two rounds a[4g + k] holds column 4l + k of rows 4g to 4g + 3 in quarter l. */
static IK_INLINE void transpose(IK_GLOBAL const bits *from, ik_index step, IK_GLOBAL bits *to, ik_index high, int stream)
{
    sixteen a[SQUARE], b[SQUARE];
#pragma unroll
    for (int i = 0; i < SQUARE; i++)
        a[i] = *(IK_GLOBAL const sixteen_unaligned *)(from + i * step);
#pragma unroll
    for (int i = 0; i < SQUARE; i += 2) {
        b[i] = low_single(a[i], a[i + 1]);
        b[i + 1] = high_single(a[i], a[i + 1]);
    }
#pragma unroll
    for (int i = 0; i < SQUARE; i += 4) {
        a[i] = low_pairs(b[i], b[i + 2]);
        a[i + 1] = high_pairs(b[i], b[i + 2]);
        a[i + 2] = low_pairs(b[i + 1], b[i + 3]);
        a[i + 3] = high_pairs(b[i + 1], b[i + 3]);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const sixteen even = even_quarters(a[k], a[4 + k]), odd = odd_quarters(a[k], a[4 + k]);
        const sixteen even_below = even_quarters(a[8 + k], a[12 + k]), odd_below = odd_quarters(a[8 + k], a[12 + k]);
        put(to + k * high, even_quarters(even, even_below), stream);
        put(to + (4 + k) * high, even_quarters(odd, odd_below), stream);
        put(to + (8 + k) * high, odd_quarters(even, even_below), stream);
        put(to + (12 + k) * high, odd_quarters(odd, odd_below), stream);
    }
}

/* Rows go along dim `across`, in which x lies along memory, columns along the last, in which y does. */
IK_ENTRY(rearrange_squares)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1, across = (int)p.across;
    ik_index group = IK_GROUP_ID;
    const ik_index column = group % (ik_index)p.wide * BLOCK;
    group /= (ik_index)p.wide;
    const ik_index row = group % (ik_index)p.high * BLOCK;
    group /= (ik_index)p.high;
    IK_GLOBAL const bits *from = (IK_GLOBAL const bits *)x + p.x.offset;
    IK_GLOBAL bits *to = (IK_GLOBAL bits *)y + p.y.offset;
    for (int d = last - 1; d >= 0; d--) {
        if (d == across)
            continue;
        const ik_index rest = group / p.y.shape[d], at = group - rest * p.y.shape[d];
        from += at * p.x.strides[d];
        to += at * p.y.strides[d];
        group = rest;
    }
    const ik_index step = p.x.strides[last], high = p.y.strides[across];
    const ik_index rows = p.y.shape[across] - row < BLOCK ? p.y.shape[across] : row + BLOCK;
    const ik_index columns = p.y.shape[last] - column < BLOCK ? p.y.shape[last] : column + BLOCK;
    const int stream = (int)p.stream;
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
