/* sample_regions: a value for each bin of regions of images; a task is a channel of a region. This file includes
 * itself, for float and for double. */
#ifndef IK_T
#include "convert.h"
#include "operators/sample_regions.h"

enum { MAX_SAMPLES = 1024 };

typedef struct job {
    const ik_tensor *ty, *tx, *tregions, *timages;
    char *y;
    const char *x, *regions;
    const int64_t *images;
    int64_t ratio;
    int32_t mode;
} job;

#define IK_FILE "sample_regions.c"
#include "each_type.h"

IK_KERNEL(sample_regions)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    const ik_sample_regions_attrs *attrs = plan->attrs;
    job j = { &t[IK_SAMPLE_REGIONS_Y], &t[IK_SAMPLE_REGIONS_X], &t[IK_SAMPLE_REGIONS_REGIONS],
        &t[IK_SAMPLE_REGIONS_IMAGES], ik_ptr(plan, data, IK_SAMPLE_REGIONS_Y), ik_ptr(plan, data, IK_SAMPLE_REGIONS_X),
        ik_ptr(plan, data, IK_SAMPLE_REGIONS_REGIONS), ik_ptr(plan, data, IK_SAMPLE_REGIONS_IMAGES),
        attrs->sampling_ratio, (int32_t)attrs->mode };
    const int64_t all = ik_numel(j.ty), planes = all == 0 ? 0 : j.ty->shape[0] * j.ty->shape[1];
    ik_parallel_for(planes, 1 + IK_THREAD_BYTES / (1 + 64 * j.ty->shape[2] * j.ty->shape[3]),
        j.tregions->dtype == IK_F64 ? planes_f64 : planes_f32, &j);
    return IK_SUCCESS;
}

#else

/* A sample between elements `low` and `high` of an axis, by the weight of each; none where low is -1. */
typedef struct IK_OF(between) {
    int64_t low, high;
    IK_T of_low, of_high;
} IK_OF(between);

static IK_OF(between) IK_OF(sample)(IK_T start, IK_T size, int64_t bin, int64_t k, int64_t count, int64_t length)
{
    const IK_T at = (start + (IK_T)bin * size) + ((IK_T)k + (IK_T)0.5) * size / (IK_T)count;
    if (!(at >= -1 && at <= (IK_T)length))
        return (IK_OF(between)){ -1, -1, 0, 0 };
    const IK_T place = at > 0 ? at : 0;
    const int64_t low = ik_min((int64_t)place, length - 1);
    const IK_T part = low < length - 1 ? place - (IK_T)low : 0;
    return (IK_OF(between)){ low, ik_min(low + 1, length - 1), 1 - part, part };
}

static inline IK_T IK_OF(larger)(IK_T a, IK_T b) { return b > a || b != b ? (a != a ? a : b) : a; }

static int64_t IK_OF(limit)(IK_T v, int64_t length)
{
    const IK_T low = v > 0 ? v : 0;
    return (int64_t)(low < (IK_T)length ? low : (IK_T)length);
}

static int64_t IK_OF(samples)(IK_T size, int64_t ratio)
{
    if (ratio > 0)
        return ratio;
    const IK_T count = IK_OF(ik_ceil)(size);
    return size > 0 ? (int64_t)(count < MAX_SAMPLES ? count : MAX_SAMPLES) : 0;
}

static inline IK_T IK_OF(fetch)(const ik_tensor *t, const char *from)
{
    if (t->dtype == IK_F64) {
        double wide = 0;
        ik_load_f64(from, 1, 1, &wide);
        return (IK_T)wide;
    }
    float value = 0;
    ik_load_f32(t->dtype, from, 1, 1, &value);
    return (IK_T)value;
}

/* Element [row, column] of an image. */
static inline IK_T IK_OF(at)(const job *j, const char *image, int64_t row, int64_t column)
{
    const int64_t place = row * j->tx->strides[2] + column * j->tx->strides[3];
    return IK_OF(fetch)(j->tx, image + place * ik_itemsize(j->tx->dtype));
}

static IK_T IK_OF(largest)(const job *j, const char *image, const IK_T region[4], int64_t bin, int64_t next)
{
    const int64_t h = j->tx->shape[2], w = j->tx->shape[3];
    const int64_t first = IK_OF(limit)(IK_OF(ik_floor)((IK_T)bin * region[2]) + region[0], h),
                  last = IK_OF(limit)(IK_OF(ik_ceil)((IK_T)(bin + 1) * region[2]) + region[0], h),
                  from = IK_OF(limit)(IK_OF(ik_floor)((IK_T)next * region[3]) + region[1], w),
                  end = IK_OF(limit)(IK_OF(ik_ceil)((IK_T)(next + 1) * region[3]) + region[1], w);
    if (first >= last || from >= end)
        return 0;
    IK_T value = IK_OF(at)(j, image, first, from);
    for (int64_t r = first; r < last; r++)
        for (int64_t c = from; c < end; c++)
            value = IK_OF(larger)(value, IK_OF(at)(j, image, r, c));
    return value;
}

static IK_T IK_OF(sampled)(const job *j, const char *image, const IK_T region[4], int64_t bin, int64_t next)
{
    const int64_t down = IK_OF(samples)(region[2], j->ratio), across = IK_OF(samples)(region[3], j->ratio);
    const bool mean = j->mode == IK_SAMPLE_REGIONS_AVERAGE;
    if (down == 0 || across == 0)
        return 0;
    IK_T value = mean ? 0 : -IKM_INF_F32;
    for (int64_t k = 0; k < down; k++) {
        const IK_OF(between) a = IK_OF(sample)(region[0], region[2], bin, k, down, j->tx->shape[2]);
        for (int64_t m = 0; m < across; m++) {
            const IK_OF(between) b = IK_OF(sample)(region[1], region[3], next, m, across, j->tx->shape[3]);
            IK_T t[4] = { 0 };
            if (a.low >= 0 && b.low >= 0) {
                t[0] = a.of_low * b.of_low * IK_OF(at)(j, image, a.low, b.low);
                t[1] = a.of_low * b.of_high * IK_OF(at)(j, image, a.low, b.high);
                t[2] = a.of_high * b.of_low * IK_OF(at)(j, image, a.high, b.low);
                t[3] = a.of_high * b.of_high * IK_OF(at)(j, image, a.high, b.high);
            }
            value = mean ? value + (t[0] + t[1] + t[2] + t[3])
                         : IK_OF(larger)(value, IK_OF(larger)(IK_OF(larger)(t[0], t[1]), IK_OF(larger)(t[2], t[3])));
        }
    }
    return mean ? value / (IK_T)(down * across) : value;
}

static void IK_OF(planes)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t size = ik_itemsize(j->tx->dtype), rows = j->ty->shape[2], columns = j->ty->shape[3];
    for (int64_t plane = begin; plane < end; plane++) {
        const int64_t r = plane / j->ty->shape[1], channel = plane % j->ty->shape[1],
                      number = j->images[r * j->timages->strides[0]];
        const bool known = number >= 0 && number < j->tx->shape[0];
        const char *image = j->x + (known ? number * j->tx->strides[0] + channel * j->tx->strides[1] : 0) * size;
        IK_T region[4];
        for (int64_t i = 0; i < 4; i++)
            region[i] =
                ((const IK_T *)(const void *)j->regions)[r * j->tregions->strides[0] + i * j->tregions->strides[1]];
        for (int64_t i = 0; i < rows; i++)
            for (int64_t c = 0; c < columns; c++) {
                const IK_T value = !known               ? 0
                    : j->mode == IK_SAMPLE_REGIONS_BINS ? IK_OF(largest)(j, image, region, i, c)
                                                        : IK_OF(sampled)(j, image, region, i, c);
                char *to = j->y
                    + (r * j->ty->strides[0] + channel * j->ty->strides[1] + i * j->ty->strides[2]
                          + c * j->ty->strides[3])
                        * size;
                if (j->ty->dtype == IK_F64)
                    *(double *)(void *)to = (double)value;
                else {
                    const float narrow = (float)value;
                    ik_store_f32(j->ty->dtype, &narrow, to, 1, 1);
                }
            }
    }
}

#endif
