/* matmul, gemm and linear on processors: register tiles over packed strips of columns (contraction.h).
 *
 * a is read where it lies if it holds the compute type in contiguous rows, and copied else. b is packed, but for small products, which would
 * read it once. Where that copies less, yᵀ = bᵀ aᵀ is made instead: the weights of linear are rows of k. Where all but a few rows or columns
 * would be copied to be read once, nothing is: products with a few vectors are dots of rows or sums of rows, whichever are contiguous.
 */
/* launch
 * tensors(y, a, b, bias, c)
 * let(size=8 if y.dtype.itemsize == 8 else 4, m=a.shape[-2], n=b.shape[-1], k=a.shape[-1], batch=prod(y.shape[:-2]))
 * let(plain=y.dtype.itemsize == size, floats=y.dtype.kind == "f")
 * let(a_lies=k == 0 or plain and (k == 1 or a.strides[-1] == 1))
 * let(b_lies=k == 0 or plain and (k == 1 or b.strides[-2] == 1))
 * let(along=floats and k >= 64 and a.strides[-1] == 1 and b.strides[-2] == 1, dots_a=along and n <= 4, dots_b=along and m <= 4)
 * let(sums_a=floats and n <= 4 and m * size >= 512 and a.strides[-2] == 1, sums_b=floats and m <= 4 and n * size >= 512 and b.strides[-1] == 1)
 * let(less=n * (not b_lies) + m < m * (not a_lies) + n)
 * let(few="dots" if dots_a or dots_b else "sums" if sums_a or sums_b else "")
 * let(turn=n > m if few == "dots" else not sums_b if few else less)
 * let(left=b if turn else a, right=a if turn else b, rows=n if turn else m, cols=m if turn else n)
 * let(step=right.strides[-2 if turn else -1], lies=b_lies if turn else a_lies)
 * let(lefts=1 if all([s == 0 for s in left.strides[:-2]]) else batch)
 * let(rights=1 if all([s == 0 for s in right.strides[:-2]]) else batch)
 * let(strips=ceil_div(cols * size, 128), small=rows <= 16 or k * cols * size <= 1 << 17)
 * let(used=k == 0 or plain and step == 1 and cols * size >= 128 and small)
 * let(wanted=ceil_div(4 * device.units, max(1, batch * strips)))
 * let(block=min(64, 8 * ceil_div(max(1, rows), 8 * max(1, wanted, ceil_div(rows, 64)))))
 * let(packed=0 if used else rights * strips * k * 128, copied=0 if lies else lefts * rows * k * size)
 * workspace(bytes=0 if few else packed + copied)
 * refuse(when=not few and packed + copied > 1 << 31, reason="panels of more than 2 GiB")
 * let(activation="IK_ACTIVATE_" + (attrs.activation if op == "gemm" else "none"))
 * gemm_dots(when=few == "dots", groups=batch * ceil_div(rows, 8), local=1, TURN=turn + 0, FEW=cols, ACTIVATION=activation, rows=rows, k=k)
 * gemm_sums(when=few == "sums", groups=batch * ceil_div(cols * size, 512), local=1, TURN=turn + 0, FEW=rows, ACTIVATION=activation, cols=cols, k=k)
 * gemm_right(when=not (few or used), groups=rights * strips * ceil_div(k, 256), local=1, TURN=turn + 0, cols=cols, k=k, strips=strips)
 * gemm_left(when=not (few or lies), groups=lefts * ceil_div(rows, 16), local=1, TURN=turn + 0, rows=rows, k=k, at=packed // size)
 * gemm(when=not few, groups=batch * ceil_div(rows, block) * strips, local=1, TURN=turn + 0, LIES=lies + 0, USED=used + 0, ACTIVATION=activation, rows=rows, cols=cols, k=k, strips=strips, block=block, lefts=lefts, rights=rights, at=packed // size)
 */
#include "simt.h"
#include "activation.h"
#include "contraction.h"

#if TURN
#define LEFT b
#define RIGHT a
#else
#define LEFT a
#define RIGHT b
#endif

/* Strides of a matrix along the rows and the columns of what is made. */
static IK_INLINE ik_index row_step(ik_tensor t) { return t.strides[t.ndim - (TURN ? 1 : 2)]; }
static IK_INLINE ik_index col_step(ik_tensor t) { return t.strides[t.ndim - (TURN ? 2 : 1)]; }

/* Where one of a batch begins. */
static IK_INLINE ik_index of_batch(ik_tensor t, ik_index batch)
{
    ik_index at = t.offset;
    for (ik_index d = t.ndim - 3; d >= 0; d--) {
        at += batch % t.shape[d] * t.strides[d];
        batch /= t.shape[d];
    }
    return at;
}

IK_ENTRY(gemm_right)(IK_PARAMS)
{
    const ik_index k_blocks = (p.k + BLOCK_K - 1) / BLOCK_K, item = IK_GROUP_ID, first = item % k_blocks * BLOCK_K;
    const ik_index strip = item / k_blocks % p.strips, row = row_step(p.RIGHT), col = col_step(p.RIGHT);
    const ik_index from = of_batch(p.RIGHT, item / k_blocks / p.strips) + first * row + strip * STRIP * col;
    const ik_index count = min((ik_index)BLOCK_K, (ik_index)p.k - first), cols = min((ik_index)STRIP, (ik_index)p.cols - strip * STRIP);
    IK_GLOBAL value *to = (IK_GLOBAL value *)workspace + (item / k_blocks * p.k + first) * STRIP;
    if (cols < STRIP)
        for (ik_index i = 0; i < count * STRIP; i++)
            to[i] = 0;
    copy(RIGHT + from, row, col, count, cols, to, STRIP);
}

IK_ENTRY(gemm_left)(IK_PARAMS)
{
    enum { SHARE = 16 }; /* rows of an item */
    const ik_index shares = (p.rows + SHARE - 1) / SHARE, item = IK_GROUP_ID, first = item % shares * SHARE, batch = item / shares;
    const ik_index row = row_step(p.LEFT), from = of_batch(p.LEFT, batch) + first * row;
    IK_GLOBAL value *to = (IK_GLOBAL value *)workspace + p.at + (batch * p.rows + first) * p.k;
    copy(LEFT + from, row, col_step(p.LEFT), min((ik_index)SHARE, (ik_index)p.rows - first), p.k, to, p.k);
}

typedef struct operands {
    IK_GLOBAL element *y;
    IK_GLOBAL const element *bias, *c; /* null where absent */
} operands;

#ifdef IK_HAS_bias
#define BIAS bias
#else
#define BIAS 0
#endif
#ifdef IK_HAS_c
#define C c
#else
#define C 0
#endif

#ifdef ACTIVATION
/* Columns col + begin .. col + end of a row of y from its sums, line[begin .. end]. */
static IK_INLINE void finish(const ik_args *p, operands o, ik_index batch, ik_index row, ik_index col, int begin, int end, value *line)
{
#ifdef IK_OP_gemm
    for (int j = begin; j < end; j++)
        line[j] *= p->attr_alpha;
#ifdef IK_HAS_c
    if (p->attr_beta != 0)
        for (int j = begin; j < end; j++)
            line[j] += p->attr_beta * LOAD(o.c, p->c.offset + row * row_step(p->c) + (col + j) * col_step(p->c));
#endif
#endif
#ifdef IK_HAS_bias
    for (int j = begin; j < end; j++)
        line[j] += LOAD(o.bias, p->bias.offset + (TURN ? row : col + j) * p->bias.strides[0]);
#endif
#ifdef IK_OP_gemm
    for (int j = begin; j < end; j++)
        line[j] = ACTIVATION(line[j]);
#endif
    const ik_index step = col_step(p->y), to = of_batch(p->y, batch) + row * row_step(p->y) + col * step;
    if (step == 1)
        for (int j = begin; j < end; j++)
            STORE(o.y, to + j, line[j]);
    else
        for (int j = begin; j < end; j++)
            STORE(o.y, to + j * step, line[j]);
}
#endif

/* Items make DOT_ROWS rows at a time: dot products with FEW columns that are contiguous in k, as the rows are. */
#ifdef FEW
enum { DOT_ROWS = TILE_VECTORS == 2 ? 4 : 4 / FEW, SUM_VECTORS = TILE_VECTORS == 2 ? 16 / FEW < 8 ? 16 / FEW : 8 : 4 / FEW };

static IK_INLINE void dots(IK_GLOBAL const element *left, ik_index left_row, int rows, IK_GLOBAL const element *right, ik_index right_col, ik_index k, value *sums)
{
    IK_GLOBAL const element *line[DOT_ROWS];
    vector sum[DOT_ROWS][FEW];
#pragma unroll
    for (int i = 0; i < DOT_ROWS; i++) {
        line[i] = left + min(i, rows - 1) * left_row;
#pragma unroll
        for (int j = 0; j < FEW; j++)
            sum[i][j] = 0;
    }
    ik_index at = 0;
#pragma nounroll
    for (; at + LANES <= k; at += LANES) {
        vector x[FEW];
#pragma unroll
        for (int j = 0; j < FEW; j++)
            x[j] = load_vector(right + j * right_col + at);
#pragma unroll
        for (int i = 0; i < DOT_ROWS; i++) {
            const vector w = load_vector(line[i] + at);
#pragma unroll
            for (int j = 0; j < FEW; j++)
                sum[i][j] += w * x[j];
        }
    }
#pragma unroll
    for (int i = 0; i < DOT_ROWS; i++)
#pragma unroll
        for (int j = 0; j < FEW; j++) {
            value more = 0;
            for (ik_index q = at; q < k; q++)
                more += LOAD(line[i], q) * LOAD(right, j * right_col + q);
            sums[i * FEW + j] = more + total(sum[i][j]);
        }
}
#endif

IK_ENTRY(gemm_dots)(IK_PARAMS)
{
    enum { SHARE = 8 }; /* rows of an item */
    const ik_index shares = (p.rows + SHARE - 1) / SHARE, item = IK_GROUP_ID, first = item % shares * SHARE, batch = item / shares, step = row_step(p.LEFT);
    IK_GLOBAL const element *left = LEFT + of_batch(p.LEFT, batch), *right = RIGHT + of_batch(p.RIGHT, batch);
    const operands o = {y, BIAS, C};
    const ik_index end = min((ik_index)p.rows, first + SHARE);
    for (ik_index row = first; row < end; row += DOT_ROWS) {
        value sums[DOT_ROWS * FEW];
        const int rows = (int)min((ik_index)DOT_ROWS, end - row);
        dots(left + row * step, step, rows, right, col_step(p.RIGHT), p.k, sums);
        for (int i = 0; i < rows; i++)
            finish(&p, o, batch, row + i, 0, 0, FEW, sums + i * FEW);
    }
}

/* Items make a run of columns: sums of the rows of the right, which are contiguous in the columns. */
IK_ENTRY(gemm_sums)(IK_PARAMS)
{
    enum { SHARE = 8 * LANES, RUN = SUM_VECTORS * LANES }; /* columns of an item, and of those at a time */
    const ik_index shares = (p.cols + SHARE - 1) / SHARE, item = IK_GROUP_ID, first = item % shares * SHARE, batch = item / shares;
    const ik_index row = row_step(p.LEFT), col = col_step(p.LEFT), step = row_step(p.RIGHT), end = min((ik_index)p.cols, first + SHARE);
    IK_GLOBAL const element *left = LEFT + of_batch(p.LEFT, batch), *right = RIGHT + of_batch(p.RIGHT, batch);
    const operands o = {y, BIAS, C};
    for (ik_index begin = first; begin < end; begin += RUN) {
        const ik_index from = min(begin, (ik_index)p.cols - RUN); /* the last run ends with the row */
        vector sum[FEW][SUM_VECTORS];
#pragma unroll
        for (int i = 0; i < FEW; i++)
#pragma unroll
            for (int j = 0; j < SUM_VECTORS; j++)
                sum[i][j] = 0;
#pragma nounroll
        for (ik_index q = 0; q < p.k; q++) {
            IK_GLOBAL const element *line = right + q * step + from;
#pragma unroll
            for (int j = 0; j < SUM_VECTORS; j++) {
                const vector x = load_vector(line + j * LANES);
#pragma unroll
                for (int i = 0; i < FEW; i++)
                    sum[i][j] += LOAD(left, i * row + q * col) * x;
            }
        }
        for (int i = 0; i < FEW; i++)
            finish(&p, o, batch, i, from, (int)(begin - from), (int)min((ik_index)RUN, end - from), (value *)sum[i]);
    }
}

IK_ENTRY(gemm)(IK_PARAMS)
{
    vector room[SUMS];
    value *sums = (value *)room;
    const ik_index blocks = (p.rows + p.block - 1) / p.block, item = IK_GROUP_ID, strip = item % p.strips, row0 = item / p.strips % blocks * p.block;
    const ik_index batch = item / p.strips / blocks;
    const int rows = (int)min((ik_index)p.block, (ik_index)p.rows - row0);
    ik_index col0 = strip * STRIP;
#if LIES
    IK_GLOBAL const value *left = (IK_GLOBAL const value *)LEFT + of_batch(p.LEFT, batch) + row0 * row_step(p.LEFT);
    const ik_index left_row = row_step(p.LEFT);
#else
    IK_GLOBAL const value *left = (IK_GLOBAL const value *)workspace + p.at + ((p.lefts == 1 ? 0 : batch) * p.rows + row0) * p.k;
    const ik_index left_row = p.k;
#endif
#if USED
    col0 = max((ik_index)0, min(col0, (ik_index)p.cols - STRIP)); /* the last strip ends with the row, and has columns of the one before */
    IK_GLOBAL const value *right = (IK_GLOBAL const value *)RIGHT + of_batch(p.RIGHT, batch) + col0;
    const ik_index right_step = row_step(p.RIGHT);
#else
    IK_GLOBAL const value *right = (IK_GLOBAL const value *)workspace + ((p.rights == 1 ? 0 : batch) * p.strips + strip) * p.k * STRIP;
    const ik_index right_step = STRIP;
#endif
    contract(left, left_row, rows, right, right_step, 0, p.k, sums);
    const int begin = (int)(strip * STRIP - col0), end = (int)min((ik_index)STRIP, (ik_index)p.cols - col0);
    const operands o = {y, BIAS, C};
    for (int i = 0; i < rows; i++)
        if (begin == 0 && end == STRIP)
            finish(&p, o, batch, row0 + i, col0, 0, STRIP, sums + i * STRIP); /* of known length */
        else
            finish(&p, o, batch, row0 + i, col0, begin, end, sums + i * STRIP);
}
