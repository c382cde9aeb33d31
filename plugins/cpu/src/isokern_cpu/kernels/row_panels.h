/* A packed layout of block-quantised weights: panels of as many rows as a vector has lanes, so that a lane is a row and
 * nothing is summed across lanes.
 *
 * A panel has a head and the codes of one block of every row after the other. For every 32 elements along k there are
 * as many vectors as a code has bits; lane r of a vector has four bytes for row r. Let quad i be the codes of elements
 * 4 i to 4 i + 3, a byte each:
 *
 * - 8 bits: vector i is quad i;
 * - 4 bits: vector i has quad i in its low and quad i + 4 in its high nibbles;
 * - 2 bits, and the lower two of 3: four quads in each of two vectors; the third: eight quads in a vector;
 * - 6 bits: three vectors have a quad each in their high six bits, and two bits each of a fourth quad below them;
 * - 5 bits: five vectors have a quad each in their high five bits, and three bits each of the other three quads.
 *
 * A head has the rows' d and m as the blocks have them, then a byte for every row's scale of each run, and then its
 * minimum, or, if they are of 4 bits, a byte with both, the minimum in its high nibble. Missing rows are zero. The
 * layout is as large as the blocks; of types whose scales are fewer than 8 bits up to a twentieth larger, of TQ1_0,
 * whose trits become codes of 2 bits, a fifth. Types with codebooks have no codes, but few quants: the codes of panels
 * are places in a table of these, of 3 or 4 bits, which is up to 2.2 times as large as blocks. */
#ifndef IK_ROW_PANELS_H
#define IK_ROW_PANELS_H
#include "matmul_rows.h"
#include "operators/matmul_mixed.h"

#if defined(__AVX512BW__)
#define IK_PANELS "panels of 16 rows"
enum { LANES = 16 };
#elif defined(__AVX2__)
#define IK_PANELS "panels of 8 rows"
enum { LANES = 8 };
#endif

#if defined(IK_PANELS)
enum { VECTOR = 4 * LANES }; /* bytes */

/* The types that have codes, those that are quantised to as IK_LAYOUT_FORMS has the others; then all with panels. */
#define CODE_FORMS(X) \
    X(Q4_0, 32, 4, 32, -8, 0, 0, 0, 0, 0, -1, 1) \
    X(Q4_1, 32, 4, 32, 0, 0, 0, 0, 0, 0, 2, 1) \
    X(Q8_0, 32, 8, 32, -128, 0, 0, 0, 0, 0, -1, 1) \
    IK_LAYOUT_FORMS(X)
#define PANEL_FORMS(X) \
    CODE_FORMS(X) \
    IK_LAYOUT_VALUES(X)
#define NO_SCALES(name) \
    static inline int32_t ik_scale_##name(ik_block_bytes B, int64_t s) { return (void)B, (void)s, 1; } \
    static inline int32_t ik_minimum_##name(ik_block_bytes B, int64_t s) { return (void)B, (void)s, -1; }
NO_SCALES(Q4_0)
NO_SCALES(Q4_1)
NO_SCALES(Q8_0)
#undef NO_SCALES
static inline int32_t ik_code_Q4_0(ik_block_bytes B, int64_t s, int64_t l) { return B[2 + l] >> 4 * s & 15; }
static inline int32_t ik_code_Q4_1(ik_block_bytes B, int64_t s, int64_t l) { return B[4 + l] >> 4 * s & 15; }
static inline int32_t ik_code_Q8_0(ik_block_bytes B, int64_t s, int64_t l) { return B[2 + 16 * s + l] ^ 128; }
static inline int32_t ik_worth_Q4_0(int32_t code) { return code - 8; }
static inline int32_t ik_worth_Q4_1(int32_t code) { return code; }
static inline int32_t ik_worth_Q8_0(int32_t code) { return code - 128; }

typedef struct panel_form {
    int32_t block, bits, run, lowest;
    bool table, power;
    int32_t scales; /* bits: 0, 4 or 8 */
    bool minima; /* stored; where there is m they are else one number */
    int32_t d, m; /* bytes of a block; m is -1 where there is none */
    float unit; /* of d */
} panel_form;

static inline __attribute__((always_inline)) panel_form panel_form_of(const int32_t dtype)
{
    switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: return (panel_form){ __VA_ARGS__ };
        PANEL_FORMS(IK_CASE)
#undef IK_CASE
    default: return (panel_form){ 0 };
    }
}

static inline __attribute__((always_inline)) int64_t codes_bytes(const panel_form f) { return f.bits * VECTOR; }

/* Where the scales of a block begin in its head, and the bytes of a head. */
static inline __attribute__((always_inline)) int64_t scales_at(const panel_form f)
{ return LANES * ((f.power ? 1 : 2) + (f.m >= 0 ? 2 : 0)); }

static inline __attribute__((always_inline)) int64_t head_bytes(const panel_form f)
{ return scales_at(f) + f.block / f.run * ((f.scales != 0) + (f.minima && f.scales != 4)) * LANES; }

/* A head and its codes. */
static inline __attribute__((always_inline)) int64_t block_bytes(const panel_form f)
{ return head_bytes(f) + f.block / IK_BLOCK * codes_bytes(f); }

static inline int64_t panel_bytes(int32_t dtype, int64_t k)
{
    const panel_form f = panel_form_of(dtype);
    return ik_round_up(k / f.block * block_bytes(f), 64);
}

/* Of a matrix w[n, k]; the matrices of w[e, n, k], such as those of experts, lie one after the other. */
static inline int64_t matrix_bytes(int32_t dtype, int64_t n, int64_t k)
{ return ik_ceil_div(n, LANES) * panel_bytes(dtype, k); }

typedef uint32_t four __attribute__((vector_size(16)));

static inline four four_at(const uint8_t *at)
{
    four v;
    memcpy(&v, at, sizeof v);
    return v;
}

/* Write `count` words, a constant, to a lane of vectors from `to` on. */
static inline __attribute__((always_inline)) void put_words(const int count, four v, char *to)
{
    for (int i = 0; i < count; i++) {
        const uint32_t word = v[i];
        memcpy(to + i * VECTOR, &word, sizeof word);
    }
}

/* Write the codes of 32 elements of a row, a byte each, to its lane at `to`. */
static inline __attribute__((always_inline)) void put_codes(const int32_t bits, const uint8_t *codes, char *to)
{
    const uint32_t one = 0x01010101u, two = 0x03030303u, three = 0x07070707u;
    uint32_t q[8], v[8] = { 0 };
    switch (bits) {
    case 8: put_words(4, four_at(codes), to), put_words(4, four_at(codes + 16), to + 4 * VECTOR); return;
    case 4: put_words(4, four_at(codes) | four_at(codes + 16) << 4, to); return;
    case 6:
        for (int half = 0; half < 2; half++, codes += 16, to += 3 * VECTOR) {
            uint32_t last;
            memcpy(&last, codes + 12, sizeof last);
            put_words(3, four_at(codes) << 2 | ((four){ last >> 4, last >> 2, last, 0 } & two), to);
        }
        return;
    default: break;
    }
    memcpy(q, codes, sizeof q);
    for (int i = 0; i < 8; i++)
        if (bits == 5) {
            v[i] = i < 5 ? q[i] << 3 : 0;
        } else {
            v[2] |= bits == 3 ? (q[i] >> 2 & one) << i : 0;
            v[i / 4] |= (q[i] & two) << 2 * (i & 3);
        }
    if (bits == 5) {
        v[0] |= q[5] >> 2 & three, v[1] |= (q[5] & two) << 1;
        v[2] |= q[6] >> 2 & three, v[3] |= (q[6] & two) << 1;
        v[4] |= q[7] >> 2 & three, v[1] |= q[7] >> 1 & one, v[3] |= q[7] & one;
    }
    for (int i = 0; i < bits; i++)
        memcpy(to + i * VECTOR, v + i, 4);
}

/* Unpack the codes of a block of those types that most files have; false for the others. */
static inline __attribute__((always_inline)) bool unpack_usual_codes(
    const int32_t dtype, ik_block_bytes from, uint8_t *codes)
{
    switch (dtype) {
    case IK_Q4_K: ik_unpack_4_bits(from + 16, NULL, codes); return true;
    case IK_Q5_K: ik_unpack_4_bits(from + 48, from + 16, codes); return true;
    case IK_Q6_K: ik_unpack_6_bits(from, codes); return true;
    default: return false;
    }
}

/* Of a type: panel_worth_ is the quant of a code, panel_d_ writes d of a block, panel_codes_ all its codes. */
#define OF_CODES(name, block, ...) \
    static inline int32_t panel_worth_##name(int32_t code) { return ik_worth_##name(code); } \
    static inline void panel_d_##name(ik_block_bytes from, char *to) \
    { \
        const panel_form f = panel_form_of(IK_##name); \
        memcpy(to, from + f.d, f.power ? 1 : 2); \
    } \
    static inline void panel_codes_##name(ik_block_bytes from, uint8_t *codes) \
    { \
        if (unpack_usual_codes(IK_##name, from, codes)) \
            return; \
        for (int64_t s = 0; s < (block) / IK_LAYOUT_RUN; s++) IK_VECTORISE \
            for (int64_t l = 0; l < IK_LAYOUT_RUN; l++) \
                codes[IK_LAYOUT_RUN * s + l] = (uint8_t)ik_code_##name(from, s, l); \
    }
CODE_FORMS(OF_CODES)
#undef OF_CODES

#define OF_VALUES(name, block, bits, run, lowest, ...) \
    static const uint8_t panel_table_##name[1 << (bits)] = { ik_table_##name }; \
    static inline int32_t panel_worth_##name(int32_t code) \
    { return panel_table_##name[code & ((1 << (bits)) - 1)] + (lowest); } \
    static inline void panel_d_##name(ik_block_bytes from, char *to) \
    { \
        const uint16_t d = ik_half_##name(from); \
        memcpy(to, &d, sizeof d); \
    } \
    static inline void panel_codes_##name(ik_block_bytes from, uint8_t *codes) \
    { \
        uint8_t places[256] = { 0 }; \
        for (int i = (1 << (bits)) - 1; i >= 0; i--) \
            places[panel_table_##name[i]] = (uint8_t)i; \
        for (int64_t s = 0; s < (block) / IK_LAYOUT_RUN; s++, codes += IK_LAYOUT_RUN) { \
            ik_run_##name(from, s, codes); \
            for (int l = 0; l < IK_LAYOUT_RUN; l++) \
                codes[l] = places[codes[l]]; \
        } \
    }
IK_LAYOUT_VALUES(OF_VALUES)
#undef OF_VALUES

/* Pack a row of k elements as row r of a panel. */
#define PACK_ROW(name, ...) \
    static __attribute__((noinline)) void pack_row_##name(ik_block_bytes from, int64_t k, int64_t r, char *head) \
    { \
        const panel_form f = panel_form_of(IK_##name); \
        const int64_t bytes = ik_bytes(IK_##name, f.block), runs = f.block / f.run, size = f.power ? 1 : 2; \
        for (int64_t at = 0; at < k; at += f.block, from += bytes, head += block_bytes(f)) { \
            char *scales = head + scales_at(f) + r, *codes = head + head_bytes(f); \
            panel_d_##name(from, head + size * r); \
            if (f.m >= 0) \
                memcpy(head + 2 * (LANES + r), from + f.m, 2); \
            for (int64_t s = 0; f.scales != 0 && s < runs; s++) { \
                const int32_t scale = ik_scale_##name(from, s * f.run / IK_LAYOUT_RUN), \
                              minimum = f.minima ? ik_minimum_##name(from, s * f.run / IK_LAYOUT_RUN) : 0; \
                scales[s * LANES] = (char)(f.scales == 4 ? scale | minimum << 4 : scale); \
                if (f.minima && f.scales != 4) \
                    scales[(runs + s) * LANES] = (char)minimum; \
            } \
            uint8_t quads[256]; \
            panel_codes_##name(from, quads); \
            for (int64_t at_code = 0; at_code < f.block; at_code += IK_BLOCK, codes += codes_bytes(f)) \
                put_codes(f.bits, quads + at_code, codes + 4 * r); \
        } \
    }
PANEL_FORMS(PACK_ROW)
#undef PACK_ROW

typedef struct packing {
    const ik_tensor *tw;
    const char *from;
    char *to;
} packing;

/* Pack panels begin .. end, counted over all matrices. */
static void pack_panels(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const packing *p = context;
    const ik_tensor *t = p->tw;
    const int32_t dtype = t->dtype, last = t->ndim - 1;
    const int64_t n = t->shape[last - 1], k = t->shape[last], size = panel_bytes(dtype, k),
                  panels = ik_ceil_div(n, LANES);
    for (int64_t panel = begin; panel < end; panel++) {
        char *to = p->to + panel * size;
        const int64_t row = panel % panels * LANES, matrix = last == 2 ? panel / panels * t->strides[0] : 0;
        memset(to, 0, (size_t)size);
        for (int64_t r = 0; r < ik_min(LANES, n - row); r++) {
            ik_block_bytes from =
                (ik_block_bytes)(p->from + ik_bytes(dtype, matrix + (row + r) * t->strides[last - 1]));
            switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: pack_row_##name(from, k, r, to); break;
                PANEL_FORMS(IK_CASE)
#undef IK_CASE
            default: return;
            }
        }
    }
}

static int64_t matrices_of(const ik_tensor *w) { return w->ndim == 3 ? w->shape[0] : 1; }

static const char *panels_of(const ik_plan *plan, uint32_t tensor, uint64_t *bytes)
{
    const ik_tensor *w = &plan->tensors[tensor];
    if (plan->kind == IK_OP_MATMUL_MIXED || tensor != IK_MATMUL_TRANSPOSED_W || panel_form_of(w->dtype).block == 0)
        return NULL;
    *bytes = (uint64_t)(matrices_of(w) * matrix_bytes(w->dtype, w->shape[w->ndim - 2], w->shape[w->ndim - 1]));
    return IK_PANELS;
}

static ik_status pack_weights(const ik_plan *plan, const void *from, void *to)
{
    const ik_tensor *w = &plan->tensors[IK_MATMUL_TRANSPOSED_W];
    packing p = { w, (const char *)from + ik_bytes(w->dtype, w->offset), to };
    ik_parallel_for(matrices_of(w) * ik_ceil_div(w->shape[w->ndim - 2], LANES), 1, pack_panels, &p);
    return IK_SUCCESS;
}

#endif
#endif
