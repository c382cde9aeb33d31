/* The register-blocked tile of convolutions with prepacked filters, where a vector lane is an output. Include after
 * gemm_tile.h, once for each element type, with the same IK_T and IK_OF. */
#ifndef IK_PIXEL_TILE_H
#define IK_PIXEL_TILE_H

enum { IK_LINE = 64, IK_PANEL_PREFETCH = 16 }; /* bytes of a cache line, and how many are prefetched at one time */

/* A tile of a convolution with prepacked filters: some adjacent pixels i of a line times the outputs o of a panel.
 *
 *     to[i, o] = from[i, o] + Σ_p x[offsets[p] + i] * w[p, o]
 */
typedef struct ik_pixel_tile {
    int64_t k; /* products p */
    const void *x;
    const int64_t *offsets;
    const void *w;
    const void *from;
    int64_t from_row; /* 0: the same for all pixels */
    void *to;
    bool relu;            /* negative results become zero */
    const char *prefetch; /* null, or where k cache lines are prefetched */
} ik_pixel_tile;
#endif

#ifdef IK_T
/* `rows` and `vecs` are constants where this is inlined, so that the sums are registers. */
static inline __attribute__((always_inline)) void IK_OF(pixel_tile_of)(
    const int rows, const int vecs, const ik_pixel_tile *t)
{
    IK_OF(vector) sum[IK_NARROW_TILE_ROWS][4];
    const IK_T *x = t->x, *w = t->w, *from = t->from;
    const int64_t k = t->k, *offsets = t->offsets;
    const char *prefetch = t->prefetch;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            sum[i][j] = *(const IK_OF(loose) *)(from + i * t->from_row + j * IK_OF(lanes));
    /* Prefetching between the loops leaves them all registers. */
    for (int64_t begin = 0; begin < k; begin += IK_PANEL_PREFETCH) {
        const int64_t end = begin + IK_PANEL_PREFETCH < k ? begin + IK_PANEL_PREFETCH : k;
        for (int64_t p = begin; prefetch != NULL && p < end; p++)
            __builtin_prefetch(prefetch + p * IK_LINE, 0, 2);
        for (int64_t p = begin; p < end; p++, w += vecs * IK_OF(lanes)) {
            IK_OF(vector) weights[4];
            const IK_T *at = x + offsets[p];
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                weights[j] = *(const IK_OF(loose) *)(w + j * IK_OF(lanes));
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                IK_OF(vector) value = IK_OF(splat)(at + i);
#pragma GCC unroll 4
                for (int j = 0; j < vecs; j++)
                    sum[i][j] = IK_OF(fma)(value, weights[j], sum[i][j]);
            }
        }
    }
    if (t->relu) /* once for the whole tile, as in gemm_tile.h */
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++)
                sum[i][j] = IK_OF(zero_negative)(sum[i][j]);
    IK_T *to = t->to;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++)
            *(IK_OF(loose) *)(to + (i * vecs + j) * IK_OF(lanes)) = sum[i][j];
}

static void IK_OF(pixel_tile)(int64_t rows, int64_t vecs, const ik_pixel_tile *t)
{
#define IK_PIXELS(n, m) \
    case 16 * m + n: IK_OF(pixel_tile_of)(n, m, t); return;
    switch (16 * vecs + rows) {
        /* clang-format off */
        IK_PIXELS(1, 1) IK_PIXELS(2, 1) IK_PIXELS(3, 1) IK_PIXELS(4, 1) IK_PIXELS(5, 1) IK_PIXELS(6, 1) IK_PIXELS(7, 1)
        IK_PIXELS(8, 1) IK_PIXELS(9, 1) IK_PIXELS(10, 1)
#if defined(__AVX__)
        IK_PIXELS(11, 1) IK_PIXELS(12, 1)
#endif
#if defined(__AVX512F__)
        IK_PIXELS(13, 1) IK_PIXELS(14, 1)
#endif
        IK_PIXELS(1, 2) IK_PIXELS(2, 2) IK_PIXELS(3, 2) IK_PIXELS(4, 2) IK_PIXELS(5, 2)
#if defined(__AVX__)
        IK_PIXELS(6, 2)
#endif
#if defined(__AVX512F__)
        IK_PIXELS(7, 2) IK_PIXELS(8, 2) IK_PIXELS(9, 2) IK_PIXELS(10, 2) IK_PIXELS(11, 2) IK_PIXELS(12, 2)
        IK_PIXELS(13, 2) IK_PIXELS(14, 2)
        IK_PIXELS(1, 4) IK_PIXELS(2, 4) IK_PIXELS(3, 4) IK_PIXELS(4, 4) IK_PIXELS(5, 4) IK_PIXELS(6, 4) IK_PIXELS(7, 4)
#endif
    }
/* clang-format on */
#undef IK_PIXELS
}
#endif
