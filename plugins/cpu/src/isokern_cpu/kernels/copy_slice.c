/* copy_slice: copies a run of elements to another place, also where the two overlap in one buffer (memmove, for any two
 * strides). */
#include "move.h"
#include "operators/copy_slice.h"

typedef struct run {
    int64_t size, n, y_step, x_step; /* steps in elements */
    char *y;
    const char *x;
} run;

static void copy_element(const run *r, int64_t i)
{ memcpy(r->y + i * r->y_step * r->size, r->x + i * r->x_step * r->size, (size_t)r->size); }

/* Copy elements i and j, reading both before writing either. */
static void copy_two(const run *r, int64_t i, int64_t j)
{
    char first[8], second[8];
    memcpy(first, r->x + i * r->x_step * r->size, (size_t)r->size);
    memcpy(second, r->x + j * r->x_step * r->size, (size_t)r->size);
    memcpy(r->y + i * r->y_step * r->size, first, (size_t)r->size);
    memcpy(r->y + j * r->y_step * r->size, second, (size_t)r->size);
}

static bool overlap(const run *r)
{
    int64_t y_reach = (r->n - 1) * r->y_step * r->size, x_reach = (r->n - 1) * r->x_step * r->size;
    uintptr_t y_low = (uintptr_t)r->y + (uintptr_t)ik_min(0, y_reach),
              y_high = (uintptr_t)r->y + (uintptr_t)ik_max(0, y_reach);
    uintptr_t x_low = (uintptr_t)r->x + (uintptr_t)ik_min(0, x_reach),
              x_high = (uintptr_t)r->x + (uintptr_t)ik_max(0, x_reach);
    return y_low < x_high + (uintptr_t)r->size && x_low < y_high + (uintptr_t)r->size;
}

/* Writing y[i] destroys x[j] where apart + y_step i = x_step j, so j must be copied first. With equal steps all such j
 * are on one side, and one direction is safe throughout. Otherwise i -> j is linear about a fixed point, and distances
 * from that point grow as |j| : |i| = y_step : x_step: copy the nearest first where distances shrink, the farthest
 * first where they grow, and two at the same distance together. distance(i) = |apart + (y_step - x_step) i|. */
static void copy_overlapping(const run *r)
{
    int64_t apart = ((intptr_t)r->y - (intptr_t)r->x) / r->size, slope = r->y_step - r->x_step, n = r->n;
    if (slope == 0) {
        bool backwards = (apart > 0) == (r->x_step > 0);
        if (r->x_step == 1)
            memmove(r->y, r->x, (size_t)(n * r->size));
        else
            for (int64_t i = 0; i < n; i++)
                copy_element(r, backwards ? n - 1 - i : i);
        return;
    }
    if (ik_magnitude(r->y_step) >= ik_magnitude(r->x_step)) { /* from both ends towards the fixed point */
        for (int64_t low = 0, high = n - 1; low <= high;) {
            int64_t a = ik_magnitude(apart + slope * low), b = ik_magnitude(apart + slope * high);
            if (a == b && low != high)
                copy_two(r, low++, high--);
            else
                copy_element(r, a > b ? low++ : high--);
        }
        return;
    }
    int64_t low = -1; /* last element before the fixed point */
    while (low + 1 < n && (apart + slope * (low + 1)) * (slope > 0 ? 1 : -1) < 0)
        low++;
    for (int64_t high = low + 1; low >= 0 || high < n;) {
        int64_t a = low >= 0 ? ik_magnitude(apart + slope * low) : INT64_MAX,
                b = high < n ? ik_magnitude(apart + slope * high) : INT64_MAX;
        if (a == b)
            copy_two(r, low--, high++);
        else
            copy_element(r, a < b ? low-- : high++);
    }
}

IK_KERNEL(copy_slice)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_COPY_SLICE_Y], *x = &plan->tensors[IK_COPY_SLICE_X];
    run r = { .size = ik_itemsize(y->dtype), .n = y->shape[0], .y_step = y->strides[0], .x_step = x->strides[0] };
    r.y = ik_ptr(plan, data, IK_COPY_SLICE_Y), r.x = ik_ptr(plan, data, IK_COPY_SLICE_X);
    if (r.n > 1 && r.x_step != 0 && overlap(&r)) {
        copy_overlapping(&r);
        return IK_SUCCESS;
    }
    ik_block block = ik_block_of(r.size, 1, y->shape, r.y, y->strides, r.x, x->strides);
    ik_move(&block);
    return IK_SUCCESS;
}
