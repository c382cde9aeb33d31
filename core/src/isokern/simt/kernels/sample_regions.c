/* sample_regions: a value for each bin of regions of images, an item a bin of a channel. */
/* launch
 * sample_regions(items=y.numel)
 */
#include "simt.h"
#include "isokern_math.h"

#ifdef IK_COMPUTE_F32
#define DIVIDE(a, b) IK_DIV_F32(a, b)
#else
#define DIVIDE(a, b) ((a) / (b))
#endif
#define MAX_SAMPLES 1024
#define AT(r, c) IK_LOAD(x, image + (r) * p.x.strides[2] + (c) * p.x.strides[3])
#define REGION(k) IK_LOAD(regions, region + (k) * p.regions.strides[1])

/* A place within [0, length], 0 for NaN. */
static IK_INLINE ik_index limit_place(ik_c v, ik_index length)
{
    const ik_c low = v > 0 ? v : (ik_c)0;
    return (ik_index)(low < (ik_c)length ? low : (ik_c)length);
}

static IK_INLINE ik_index samples_of(ik_c size, ik_i64 ratio)
{
    if (ratio > 0)
        return (ik_index)ratio;
    const ik_c count = IK_FN(ceil)(size);
    return size > 0 ? (ik_index)(count < MAX_SAMPLES ? count : (ik_c)MAX_SAMPLES) : 0;
}

/* A sample between elements `low` and `high` of an axis, by the weight of each; none where low is -1. */
typedef struct {
    ik_index low, high;
    ik_c of_low, of_high;
} between;

static IK_INLINE between sample_of(ik_c start, ik_c size, ik_index bin, ik_index k, ik_index count, ik_index length)
{
    between b;
    const ik_c before = (ik_c)bin * size, first = start + before, offset = ((ik_c)k + (ik_c)0.5f) * size,
               at = first + DIVIDE(offset, (ik_c)count);
    b.low = b.high = -1;
    b.of_low = b.of_high = 0;
    if (at >= -1 && at <= (ik_c)length) {
        const ik_c place = at > 0 ? at : (ik_c)0;
        b.low = (ik_index)place;
        b.low = b.low < length - 1 ? b.low : length - 1;
        b.high = b.low + 1 < length ? b.low + 1 : length - 1;
        b.of_high = b.low < length - 1 ? place - (ik_c)b.low : (ik_c)0;
        b.of_low = 1 - b.of_high;
    }
    return b;
}

static IK_INLINE ik_c larger(ik_c a, ik_c b) { return b > a || b != b ? (a != a ? a : b) : a; }

IK_ENTRY(sample_regions)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index columns = p.y.shape[3], rows = p.y.shape[2], channels = p.y.shape[1], h = p.x.shape[2],
                   w = p.x.shape[3];
    const ik_index line = IK_ITEM / columns, j = IK_ITEM - line * columns, plane = line / rows, i = line - plane * rows,
                   r = plane / channels, channel = plane - r * channels;
    const ik_i64 number = images[p.images.offset + r * p.images.strides[0]];
    const ik_index region = p.regions.offset + r * p.regions.strides[0];
    const ik_c top = REGION(0), left = REGION(1), height = REGION(2), width = REGION(3);
    ik_c value = 0;
    if (number >= 0 && number < p.x.shape[0]) {
        const ik_index image = p.x.offset + (ik_index)number * p.x.strides[0] + channel * p.x.strides[1];
        if (p.attr_mode == 2) {
            const ik_c above = (ik_c)i * height, below = (ik_c)(i + 1) * height, before = (ik_c)j * width,
                       behind = (ik_c)(j + 1) * width;
            const ik_index first = limit_place(IK_FN(floor)(above) + top, h),
                           last = limit_place(IK_FN(ceil)(below) + top, h),
                           from = limit_place(IK_FN(floor)(before) + left, w),
                           end = limit_place(IK_FN(ceil)(behind) + left, w);
            if (first < last && from < end)
                value = AT(first, from);
            for (ik_index a = first; a < last; a++)
                for (ik_index b = from; b < end; b++)
                    value = larger(value, AT(a, b));
        } else {
            const ik_index down = samples_of(height, p.attr_sampling_ratio),
                           across = samples_of(width, p.attr_sampling_ratio);
            const int mean = p.attr_mode == 0;
            value = mean || down == 0 || across == 0 ? (ik_c)0 : IK_LOWEST;
            for (ik_index k = 0; k < down; k++) {
                const between a = sample_of(top, height, i, k, down, h);
                for (ik_index m = 0; m < across; m++) {
                    const between b = sample_of(left, width, j, m, across, w);
                    if (a.low < 0 || b.low < 0) {
                        value = mean ? value : larger(value, 0);
                        continue;
                    }
                    const ik_c t00 = a.of_low * b.of_low * AT(a.low, b.low),
                               t01 = a.of_low * b.of_high * AT(a.low, b.high),
                               t10 = a.of_high * b.of_low * AT(a.high, b.low),
                               t11 = a.of_high * b.of_high * AT(a.high, b.high);
                    value = mean ? value + (t00 + t01 + t10 + t11)
                                 : larger(value, larger(larger(t00, t01), larger(t10, t11)));
                }
            }
            if (mean && down > 0 && across > 0)
                value = DIVIDE(value, (ik_c)(down * across));
        }
    }
    IK_STORE(y, ik_offset(p.y, IK_ITEM), value);
}
