/* Runs of elements for kernels of CPU devices: an item processes a run in tiles that fit in L1, by loops that the
 * compiler vectorises.
 *
 * Where the output is large, a tile's result is stored by whole cache lines that bypass the caches: that saves reading
 * each line first. */
#ifndef IK_RUNS_H
#define IK_RUNS_H
#include "simt.h"

/* LLVM uses only half of the registers, as tuned for the first processor that had them; on devices without them the
 * attribute fails to compile. */
#ifdef __AVX512F__
#undef IK_KERNEL_ATTRIBUTES
#define IK_KERNEL_ATTRIBUTES IK_TARGET __attribute__((min_vector_width(512)))
#endif
#if !defined(__clang__)
#define IK_VECTORISE
#elif defined(IK_COMPUTE_F32)
#define IK_VECTORISE _Pragma("clang loop vectorize_width(16)")
#else
#define IK_VECTORISE _Pragma("clang loop vectorize_width(8)")
#endif
#ifdef __clang__
/* Vectors wider than a register are passed by reference, which inlining undoes. */
#pragma clang diagnostic ignored "-Wpsabi"
/* A loop that stays scalar, such as one of integer divisions, is not an error. */
#pragma clang diagnostic ignored "-Wpass-failed"
#endif
#define IK_ALIGNED __attribute__((aligned(64)))
#define IK_STREAM(to, line) *(to) = (line)
#ifdef __has_builtin
#if __has_builtin(__builtin_nontemporal_store)
#undef IK_STREAM
#define IK_STREAM(to, line) __builtin_nontemporal_store(line, to)
#endif
#endif
/* Prefetch the cache line of an address, which need not be valid. */
#define IK_PREFETCH(at) ((void)(at))
#if defined(__has_builtin) && !defined(__SPIR__)
#if __has_builtin(__builtin_prefetch)
#undef IK_PREFETCH
#define IK_PREFETCH(at) __builtin_prefetch((const void *)(size_t)(at))
#endif
#endif

enum { IK_RUN = 8192, IK_TILE = 512, IK_LINE = 64 };

#define IK_IS_F16(x) IK_PASTE(ik_is_f16_, IK_TYPE_##x)
#define ik_is_f16_F16 1 /* for other types it is no macro, and 0 in #if */

/* F16 becomes F32, and F32 F16, in loops of their own: mixed with other operations, the language's conversions are
 * compiled as arithmetic in F16. They are used only where they are one instruction (elsewhere LLVM 14 fails on them),
 * 16 at a time, because single ones stay scalar, and on a type of our own, because PoCL's expect alignment. Vectors are
 * loaded and stored through pointers: PoCL splits vload16 and vstore16 up. */
typedef ushort16 ik_bits16 __attribute__((aligned(2)));
typedef float16 ik_floats16 __attribute__((aligned(4)));

#ifdef __AVX512F__
static IK_INLINE float16 ik_widen_16(ushort16 bits) { return vload_half16(0, (const half *)&bits); }

static IK_INLINE ushort16 ik_narrow_16(float16 v)
{
    ushort16 bits;
    vstore_half16_rte(v, 0, (half *)&bits);
    return bits;
}
#endif

static IK_INLINE void ik_widen_f16(IK_GLOBAL const ik_f16 *from, float *to, int n)
{
    int i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        *(ik_floats16 *)(to + i) = ik_widen_16(*(IK_GLOBAL const ik_bits16 *)(from + i));
#endif
    IK_VECTORISE for (; i < n; i++)
        to[i] = ik_f16_to_f32(from[i]);
}

/* n is rounded up to 16. */
static IK_INLINE void ik_narrow_f16(const float *from, ik_f16 *to, int n)
{
#ifdef __AVX512F__
    for (int i = 0; i < n; i += 16)
        *(ik_bits16 *)(to + i) = ik_narrow_16(*(const ik_floats16 *)(from + i));
#else
    IK_VECTORISE for (int i = 0; i < n; i++)
        to[i] = ik_f32_to_f16(from[i]);
#endif
}

/* A tile of results for y: elements of its type, the same as cache lines, and, for F16, the values before they are
 * narrowed. */
typedef struct {
    union {
        IK_ELEMENT(y) e[IK_TILE];
        ulong8 line[IK_TILE * IK_SIZE_y / IK_LINE];
    } u;
#if IK_IS_F16(y)
    float wide[IK_TILE];
#endif
} ik_tile;

#if IK_IS_F16(y)
#define IK_TO_TILE(tile, i, v) tile.wide[i] = (v)
#else
#define IK_TO_TILE(tile, i, v) IK_STORE_AS(y, tile.u.e, i, v)
#endif
#define IK_STORE_AS(x, to, i, v) IK_PASTE(ik_store_, IK_TYPE_##x)(to, i, v)

/* The number of elements between the start of the cache line and `to`: the tile has as many before its first. */
static IK_INLINE int ik_tile_skip(IK_GLOBAL const IK_ELEMENT(y) * to)
{ return (int)((size_t)to % IK_LINE / IK_SIZE_y); }

/* Store elements [skip, skip + n) of the tile to y from `to` on. */
static IK_INLINE void ik_tile_store(ik_tile *tile, int skip, int n, IK_GLOBAL IK_ELEMENT(y) * to, int stream)
{
#if IK_IS_F16(y)
    ik_narrow_f16(tile->wide, tile->u.e, skip + n);
#endif
    if (stream && n == IK_TILE) {
        for (int i = 0; i < IK_TILE * IK_SIZE_y / IK_LINE; i++)
            IK_STREAM((IK_GLOBAL ulong8 *)to + i, tile->u.line[i]);
        return;
    }
    for (int i = 0; i < n; i++)
        to[i] = tile->u.e[skip + i];
}

#ifdef IK_COMPUTE_FLOAT
/* Whether a plain sum of values can be trusted: none of its parts has left the range, nor will when they are joined. */
static IK_INLINE int ik_within(ik_c sum)
{
#ifdef IK_COMPUTE_F64
    return sum - sum == 0;
#else
    return -0x1p110f <= sum && sum <= 0x1p110f;
#endif
}
#endif
#endif
