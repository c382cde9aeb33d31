/* Maxima of windows of three columns that step by two along contiguous rows of F32, as largest networks have.
 *
 *     y[j] = max over ky, kx of x[ky][2 j - left + kx]
 *
 * A vector of outputs comes from two vectors of columns, of which each is the maximum of the window's rows: first those
 * of even places and of odd ones, then the even ones again, moved by one. What lies outside x is -inf; a window with
 * NaN is NaN. Everything stays in registers. */
#include "masks.h"

#ifdef IK_MASKS
#if defined(__AVX512F__)
static inline ik_f32s max_of(ik_f32s a, ik_f32s b)
{
    return _mm512_mask_mov_ps(
        _mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q), _mm512_set1_ps(__builtin_nanf("")));
}

static inline ik_f32s load_or_inf(ik_mask mask, const float *x)
{ return _mm512_mask_loadu_ps(_mm512_set1_ps(-__builtin_inff()), mask, x); }

/* Elements 1, 2, … of a, then element 0 of b. */
static inline ik_f32s move_by_one(ik_f32s a, ik_f32s b)
{ return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(b), _mm512_castps_si512(a), 1)); }
#else
static inline ik_f32s max_of(ik_f32s a, ik_f32s b)
{ return _mm256_or_ps(_mm256_max_ps(a, b), _mm256_cmp_ps(a, b, _CMP_UNORD_Q)); } /* all bits: a NaN */

static inline ik_f32s load_or_inf(ik_mask mask, const float *x)
{ return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), _mm256_maskload_ps(x, mask), _mm256_castsi256_ps(mask)); }

static inline ik_f32s move_by_one(ik_f32s a, ik_f32s b)
{
    const __m256i next = _mm256_set_epi32(0, 7, 6, 5, 4, 3, 2, 1);
    return _mm256_permutevar8x32_ps(_mm256_blend_ps(a, b, 1), next);
}
#endif

/* The maxima of columns at .. at + lanes of some rows of x, of `width` columns each. */
static inline __attribute__((always_inline)) ik_f32s max_of_rows(
    const float *x, int64_t step, int64_t rows, int64_t at, int64_t width)
{
    const bool whole = at >= 0 && at + IK_F32_LANES <= width;
    const ik_mask mask = ik_mask_inside(at, 0, width);
    ik_f32s largest;
    x += at;
    if (whole) {
        memcpy(&largest, x, sizeof largest);
        for (int64_t i = 1; i < rows; i++) {
            ik_f32s next;
            memcpy(&next, x + i * step, sizeof next);
            largest = max_of(largest, next);
        }
        return largest;
    }
    largest = load_or_inf(mask, x);
    for (int64_t i = 1; i < rows; i++)
        largest = max_of(largest, load_or_inf(mask, x + i * step));
    return largest;
}

/* Compute rows begin .. end, numbered over all planes. */
static void max_rows(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const pool *p = context;
    const ik_tensor *to = p->y, *from = p->x;
    const int64_t height = from->shape[2], width = from->shape[3], n = to->shape[3], down = from->strides[2];
    int64_t oy = begin % to->shape[2], plane = begin / to->shape[2], c = plane % to->shape[1],
            image = plane / to->shape[1];
    for (int64_t row = begin; row < end; row++) {
        int64_t first;
        const int64_t top = oy * p->step[0] - p->pad[0], rows = inside(top, 1, p->kernel[0], height, &first);
        const float *x = (const float *)(const void *)p->x_data + image * from->strides[0] + c * from->strides[1]
            + (top + first) * down;
        float *y = (float *)(void *)p->y_data + image * to->strides[0] + c * to->strides[1] + oy * to->strides[2];
        prefetch_f32(p, (const char *)(x + p->kernel[0] * down), 3);
        ik_f32s low = max_of_rows(x, down, rows, -p->pad[1], width);
        for (int64_t j = 0; j < n; j += IK_F32_LANES) {
            const int64_t at = 2 * j - p->pad[1] + IK_F32_LANES;
            const ik_f32s high = max_of_rows(x, down, rows, at, width), even = ik_every_other(low, high, false);
            const ik_f32s largest = max_of(even, ik_every_other(low, high, true));
            if (j + IK_F32_LANES <= n) /* else nothing of it is wanted */
                low = max_of_rows(x, down, rows, at + IK_F32_LANES, width);
            ik_store_masked(ik_mask_of(0, ik_min(IK_F32_LANES, n - j)), y + j, max_of(largest, move_by_one(even, low)));
        }
        if (++oy == to->shape[2]) {
            oy = 0;
            if (++c == to->shape[1])
                c = 0, image++;
        }
    }
}
#endif
