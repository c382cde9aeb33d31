/* Tiles of F32 (products.h): a thread multiplies SIDE × SIDE of their elements in registers. */
#ifndef IK_REGISTER_TILES_H
#define IK_REGISTER_TILES_H
#define CHUNK 4
#define DEPTH 8
#define EACH 4
#define SIDE 8
typedef float element;
#if (BLOCK_ROWS / SIDE) * (BLOCK_COLS / SIDE) != IK_GROUP
#error the threads of a block make a tile
#endif

struct alignas(16) chunk {
    element v[CHUNK];
};

/* In shared memory a tile is DEPTH lines, each longer by one chunk, so that stores across them also go to all banks. */
template <int OUTER, bool K_ALONG>
struct tile {
    static constexpr bool ALONG = K_ALONG, AS_IT_LIES = !ALONG;
    static constexpr int LINES = ALONG ? OUTER : DEPTH, CHUNKS = (ALONG ? DEPTH : OUTER) / CHUNK,
                         LENGTH = OUTER + CHUNK, SIZE = LENGTH * DEPTH;

    static IK_INLINE int at(int line, int chunk) { return line * LENGTH + chunk * CHUNK; }

    static IK_INLINE void put(element *to, int line, int number, chunk made)
    {
        if (AS_IT_LIES)
            *reinterpret_cast<chunk *>(to + at(line, number)) = made;
        else
#pragma unroll
            for (int i = 0; i < CHUNK; i++)
                to[(number * CHUNK + i) * LENGTH + line] = made.v[i];
    }

    /* SIDE rows of step k: half of them from `outer` on, the other half OUTER / 2 further. */
    static IK_INLINE void take(float (&made)[SIDE], const element *of, int outer, int k)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const chunk some = *reinterpret_cast<const chunk *>(of + k * LENGTH + half * (OUTER / 2) + outer);
#pragma unroll
            for (int i = 0; i < CHUNK; i++)
                made[half * CHUNK + i] = some.v[i];
        }
    }
};

/* Rounded as in contraction.h: IK_RUN products are added up before they are added to the sum. */
struct tile_sums {
    float v[SIDE][SIDE], run[SIDE][SIDE];

    IK_INLINE void clear()
    {
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++)
                v[i][j] = run[i][j] = 0;
    }

    /* A warp is 4 × 8 threads, so its loads at a time are of 64 and 128 bytes. */
    static IK_INLINE int row() { return (IK_SUBGROUP_ID / (BLOCK_COLS / SIDE / 8) * 4 + IK_SUBGROUP_LANE / 8) * CHUNK; }
    static IK_INLINE int col() { return (IK_SUBGROUP_ID % (BLOCK_COLS / SIDE / 8) * 8 + IK_SUBGROUP_LANE % 8) * CHUNK; }

    template <class LEFT, class RIGHT>
    IK_INLINE void add(const element *left, const element *right, ik_index round)
    {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            float rows[SIDE], columns[SIDE];
            LEFT::take(rows, left, row(), k);
            RIGHT::take(columns, right, col(), k);
#pragma unroll
            for (int i = 0; i < SIDE; i++)
#pragma unroll
                for (int j = 0; j < SIDE; j++)
                    run[i][j] = IK_MULTIPLY_ADD(rows[i], columns[j], run[i][j]);
        }
        if (round % (IK_RUN / DEPTH) == IK_RUN / DEPTH - 1)
            end_run();
    }

    IK_INLINE void end_run()
    {
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int j = 0; j < SIDE; j++) {
                v[i][j] += run[i][j];
                run[i][j] = 0;
            }
    }

    template <class F>
    IK_INLINE void each(F visit)
    {
        end_run();
#pragma unroll
        for (int i = 0; i < SIDE; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                visit(row() + i / CHUNK * (BLOCK_ROWS / 2) + i % CHUNK, col() + half * (BLOCK_COLS / 2),
                    &v[i][half * CHUNK]);
    }
};
#endif
