/* Tiled products for gemm and conv2d: a block computes BLOCK_ROWS × BLOCK_COLS sums of products, from a left and a
 * right tile that it loads into shared memory for DEPTH steps of k at a time.
 *
 * Elements move in chunks of CHUNK, 16 bytes. A tile is OUTER rows of the left matrix, or columns of the right one; in
 * global memory its lines run along k (ALONG), or along the other dim. tensor_tiles.h (F16, BF16) and register_tiles.h
 * (F32) define its layout in shared memory, and multiply; EACH is how many adjacent results of a row a thread has. */
#ifndef IK_PRODUCTS_H
#define IK_PRODUCTS_H
#include "contraction.h"
#include "mma.h"
#if IK_SIZE_y == 2
#include "tensor_tiles.h"
#else
#include "register_tiles.h"
#endif
#include "packs.h"

/* How many elements of a chunk exist, where `left` do from its start on. */
static IK_INLINE int some_of(ik_index left) { return left < 0 ? 0 : left < CHUNK ? (int)left : CHUNK; }

/* Loads tiles of a matrix, of which `outer` rows (columns) and `depth` steps of k exist from `from` on, with lines
 * `step` apart; zeros beyond. WHOLE: its lines begin at multiples of 16 bytes. */
template <class TILE, bool WHOLE>
struct matrix {
    typedef TILE tile;
    static constexpr int PER = TILE::LINES * TILE::CHUNKS / IK_GROUP;
    static_assert(PER * IK_GROUP == TILE::LINES * TILE::CHUNKS, "threads bring as many chunks each");
    const element *from;
    ik_index step, outer, depth;
    chunk held[PER];

    /* Begin the tile of a round: start copying it to `to`, or load it into `held`. */
    IK_INLINE void begin(ik_index round, element *to)
    {
#pragma unroll
        for (int i = 0; i < PER; i++) {
            const int line = (i * IK_GROUP + IK_LOCAL_ID) / TILE::CHUNKS,
                      number = (i * IK_GROUP + IK_LOCAL_ID) % TILE::CHUNKS;
            const ik_index k = round * DEPTH + (TILE::ALONG ? number * CHUNK : line),
                           o = TILE::ALONG ? line : number * CHUNK;
            const bool there = TILE::ALONG ? o < outer : k < depth;
            const int count = there ? some_of(TILE::ALONG ? depth - k : outer - o) : 0;
            const element *at = count == 0 ? from : from + (TILE::ALONG ? o * step + k : k * step + o);
            if (WHOLE && TILE::AS_IT_LIES)
                IK_COPY_ASYNC(to + TILE::at(line, number), at, count * (int)sizeof(element));
            else if (WHOLE && count == CHUNK)
                held[i] = *reinterpret_cast<const chunk *>(at);
            else
#pragma unroll
                for (int j = 0; j < CHUNK; j++)
                    held[i].v[j] = j < count ? at[j] : 0;
        }
    }

    /* Write what is held to `to`. */
    IK_INLINE void end(element *to)
    {
        if (!(WHOLE && TILE::AS_IT_LIES))
#pragma unroll
            for (int i = 0; i < PER; i++)
                TILE::put(to, (i * IK_GROUP + IK_LOCAL_ID) / TILE::CHUNKS, (i * IK_GROUP + IK_LOCAL_ID) % TILE::CHUNKS,
                    held[i]);
    }
};

/* sums += left × right. Tiles of STAGES rounds lie in `lefts` and `rights`; those of a round are loaded STAGES - 1
 * rounds ahead, in place of the tiles of the previous round, which all threads have multiplied at the barrier. */
template <class LEFT, class RIGHT>
static IK_INLINE void add_products(tile_sums &sums, LEFT &left, RIGHT &right, chunk *lefts, chunk *rights, ik_index k)
{
    const ik_index rounds = (k + DEPTH - 1) / DEPTH;
    element *const l = lefts->v, *const r = rights->v;
    int now = 0, then = 0;
    for (int prefetched = 0; prefetched < STAGES - 1; prefetched++, then++) {
        if (prefetched < rounds) {
            left.begin(prefetched, l + then * LEFT::tile::SIZE);
            right.begin(prefetched, r + then * RIGHT::tile::SIZE);
            left.end(l + then * LEFT::tile::SIZE);
            right.end(r + then * RIGHT::tile::SIZE);
        }
        IK_COMMIT_COPIES();
    }
    for (ik_index round = 0; round < rounds; round++) {
        const bool more = round + STAGES - 1 < rounds;
        IK_WAIT_COPIES(STAGES - 2);
        IK_BARRIER();
        if (more) {
            left.begin(round + STAGES - 1, l + then * LEFT::tile::SIZE);
            right.begin(round + STAGES - 1, r + then * RIGHT::tile::SIZE);
        }
        IK_COMMIT_COPIES();
        sums.template add<typename LEFT::tile, typename RIGHT::tile>(
            l + now * LEFT::tile::SIZE, r + now * RIGHT::tile::SIZE, round);
        if (more) {
            left.end(l + then * LEFT::tile::SIZE);
            right.end(r + then * RIGHT::tile::SIZE);
        }
        now = now == STAGES - 1 ? 0 : now + 1;
        then = then == STAGES - 1 ? 0 : then + 1;
    }
}
#endif
