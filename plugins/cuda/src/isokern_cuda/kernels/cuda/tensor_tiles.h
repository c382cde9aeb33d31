/* Tiles of F16 and BF16 (products.h): tensor cores multiply them, with WARP_ROWS × WARP_COLS sums in F32 per warp. */
#ifndef IK_TENSOR_TILES_H
#define IK_TENSOR_TILES_H
#define CHUNK 8
#define DEPTH 32
#define EACH 2
typedef ik_u16 element;
#if (BLOCK_ROWS / WARP_ROWS) * (BLOCK_COLS / WARP_COLS) * 32 != IK_GROUP
#error the warps of a block make a tile
#endif

struct alignas(16) chunk {
    element v[CHUNK];
};

/* In shared memory a tile has the layout of global memory, except that the chunks of a line are permuted, so that eight
 * lines at the same chunk, which ldmatrix reads at once, are in different banks. */
template <int OUTER, bool K_ALONG>
struct tile {
    static constexpr bool ALONG = K_ALONG, AS_IT_LIES = true;
    static constexpr int LINES = ALONG ? OUTER : DEPTH, CHUNKS = (ALONG ? DEPTH : OUTER) / CHUNK, SIZE = OUTER * DEPTH;

    static IK_INLINE int at(int line, int chunk)
    { return (line * CHUNKS + (chunk ^ (CHUNKS < 8 ? line * CHUNKS / 8 % CHUNKS : line % 8))) * CHUNK; }

    static IK_INLINE void put(element *to, int line, int number, chunk made)
    { *reinterpret_cast<chunk *>(to + at(line, number)) = made; }

    /* The 16 × 16 elements from row `outer` and step k on, as the fragment of a left matrix. For a right matrix, whose
     * columns these rows are, parts 0 and 2 are the fragment of its first 8 columns, 1 and 3 that of the others. */
    static IK_INLINE void fragment(unsigned (&made)[4], const element *of, int outer, int k)
    {
        const int lane = IK_SUBGROUP_LANE;
        if (ALONG)
            IK_LOAD_MATRICES(made, of + at(outer + lane % 16, k / CHUNK + lane / 16));
        else
            IK_LOAD_TRANSPOSED(made, of + at(k + lane % 8 + lane / 16 * 8, outer / CHUNK + lane / 8 % 2));
    }
};

struct tile_sums {
    float v[WARP_ROWS / 16][WARP_COLS / 8][4];

    IK_INLINE void clear()
    {
#pragma unroll
        for (int i = 0; i < WARP_ROWS / 16; i++)
#pragma unroll
            for (int j = 0; j < WARP_COLS / 8; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    v[i][j][e] = 0;
    }

    static IK_INLINE int row() { return IK_SUBGROUP_ID / (BLOCK_COLS / WARP_COLS) * WARP_ROWS; }
    static IK_INLINE int col() { return IK_SUBGROUP_ID % (BLOCK_COLS / WARP_COLS) * WARP_COLS; }

    template <class LEFT, class RIGHT>
    IK_INLINE void add(const element *left, const element *right, ik_index)
    {
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            unsigned columns[WARP_COLS / 16][4];
#pragma unroll
            for (int j = 0; j < WARP_COLS / 16; j++)
                RIGHT::fragment(columns[j], right, col() + 16 * j, k);
#pragma unroll
            for (int i = 0; i < WARP_ROWS / 16; i++) {
                unsigned rows[4];
                LEFT::fragment(rows, left, row() + 16 * i, k);
#pragma unroll
                for (int j = 0; j < WARP_COLS / 8; j++)
                    IK_PASTE(IK_MMA_, IK_TYPE_y)(v[i][j], rows, columns[j / 2][j % 2], columns[j / 2][2 + j % 2]);
            }
        }
    }

    template <class F>
    IK_INLINE void each(F visit)
    {
        const int g = IK_SUBGROUP_LANE / 4, t = IK_SUBGROUP_LANE % 4;
#pragma unroll
        for (int i = 0; i < WARP_ROWS / 16; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int j = 0; j < WARP_COLS / 8; j++)
                    visit(row() + 16 * i + 8 * half + g, col() + 8 * j + 2 * t, &v[i][j][2 * half]);
    }
};
#endif
