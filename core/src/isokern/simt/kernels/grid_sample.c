/* grid_sample: y[n, c, o] = Σ_t weight[t] * x[n, c, place[t]], over the elements of x near the place that grid[n, o]
 * names; an item a place of some channels of an image. */
#include "simt.h"
#include "isokern_math.h"

/* MODE and PADDING number the attributes' choices, TAPS is how many elements an axis has near a place. */
enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { TAPS_0 = DIMS > 2 ? TAPS : 1, TAPS_1 = DIMS > 1 ? TAPS : 1 };

/* Coordinates beyond it count as this, so that elements are exact in 32 bits and in the compute type. */
#ifdef IK_COMPUTE_F64
#define FARTHEST ((ik_c)(1 << 30))
#else
#define FARTHEST ((ik_c)(1 << 22))
#endif

/* What a place reads along an axis, as offsets in x, and the weights. */
typedef struct {
    ik_index at[TAPS];
    ik_c weight[TAPS];
} near_place;

static IK_INLINE ik_c limit_place(ik_c v) { return v < -FARTHEST ? -FARTHEST : v > FARTHEST ? FARTHEST : v; }

/* The weight of an element at a distance (Keys 1981 for cubic, a = -0.75). */
static IK_INLINE ik_c weigh(ik_c d)
{
    const ik_c a = (ik_c)-0.75f;
    if (MODE == NEAREST)
        return 1;
    if (MODE == LINEAR)
        return 1 - d > 0 ? 1 - d : (ik_c)0;
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : (ik_c)0;
}

static IK_INLINE near_place find_near(ik_c given, int length, ik_index step, int align)
{
    near_place near;
    const ik_c size = (ik_c)length, known = given == given ? given : (ik_c)-1, lifted = limit_place(known) + 1,
               scaled = align ? lifted * (size - 1) : lifted * size - 1, place = limit_place(scaled * (ik_c)0.5f),
               first = MODE == NEAREST ? IK_FN(rint)(place) : IK_FN(floor)(place);
    const int period = 2 * (align ? length - 1 : length), back = align ? period : period - 1;
    for (int t = 0; t < TAPS; t++) {
        const ik_c own = first + (ik_c)(t - (MODE == CUBIC ? 1 : 0));
        int i = (int)own;
        near.weight[t] = PADDING != ZEROS || (i >= 0 && i < length) ? weigh(IK_FN(abs)(own - place)) : (ik_c)0;
        if (PADDING == REFLECTION && period > 0) {
            i = i % period;
            i = i < 0 ? i + period : i;
            i = i < length ? i : back - i;
        }
        i = i < 0 ? 0 : i > length - 1 ? length - 1 : i;
        near.at[t] = (ik_index)i * step;
    }
    return near;
}

/* Axis d of x, which is named by one coordinate of the grid. */
#define FIND(d) \
    find_near(IK_LOAD(grid, from + (DIMS - 1 - (d)) * p.grid.strides[DIMS + 1]), (int)p.x.shape[2 + (d)], \
        p.x.strides[2 + (d)], (int)p.attr_align_corners)

IK_ENTRY(grid_sample)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index places = (ik_index)p.places, line = IK_ITEM / places, place = IK_ITEM - line * places,
                   parts = (ik_index)p.parts, n = line / parts, first = (line - n * parts) * (ik_index)p.taken,
                   left = p.y.shape[1] - first, end = first + (left < p.taken ? left : (ik_index)p.taken);
    const ik_index from = p.grid.offset + n * p.grid.strides[0] + ik_offset_within(p.grid, 1, DIMS + 1, place),
                   to = p.y.offset + n * p.y.strides[0] + ik_offset_within(p.y, 2, DIMS + 2, place);
    near_place outer, middle, inner;
    outer.at[0] = middle.at[0] = 0;
    outer.weight[0] = middle.weight[0] = 1;
#if DIMS > 2
    outer = FIND(DIMS - 3);
#endif
#if DIMS > 1
    middle = FIND(DIMS - 2);
#endif
    inner = FIND(DIMS - 1);
    for (ik_index c = first; c < end; c++) {
        const ik_index image = p.x.offset + n * p.x.strides[0] + c * p.x.strides[1];
        ik_c sum = 0;
        for (int a = 0; a < TAPS_0; a++)
            for (int b = 0; b < TAPS_1; b++) {
                const ik_c both = outer.weight[a] * middle.weight[b];
                const ik_index row = image + outer.at[a] + middle.at[b];
                for (int d = 0; d < TAPS; d++) {
                    const ik_c weight = both * inner.weight[d];
                    if (weight != 0) /* an element of weight 0 does not count */
                        sum += weight * IK_LOAD(x, row + inner.at[d]);
                }
            }
        IK_STORE(y, to + c * p.y.strides[1], sum);
    }
}
