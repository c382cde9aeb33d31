/* conv2d: register tiles over planes of x that are copied and padded band by band; with one channel per group, sums of
 * shifted rows or planes; with prepacked filters, tiles whose lanes are outputs. */
#ifndef IK_T
#include "conv2d.h"

#if IK_IN_PART(0)
extern const ik_conv_loops IK_SHARED(conv2d_f32), IK_SHARED(conv2d_f64);
extern ik_task IK_SHARED(conv2d_rows);

static const ik_conv_loops *loops_of(const ik_conv *v)
{ return v->ty->dtype == IK_F64 ? &IK_PART_NAME(conv2d_f64) : &IK_PART_NAME(conv2d_f32); }

/* Set up the convolution. `data` may be null: then only what follows from the shapes is set. `panels` where the filters
 * are prepacked, or may be. */
static ik_conv conv_of(const ik_plan *plan, void *const *data, bool panels)
{
    const ik_conv2d_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors;
    ik_conv v = {
        .ty = &t[IK_CONV2D_Y], .tx = &t[IK_CONV2D_X], .tw = &t[IK_CONV2D_W], .activation = attrs->activation
    };
    const int64_t *x = v.tx->shape, *w = v.tw->shape, *y = v.ty->shape;
    v.images = x[0], v.groups = attrs->groups, v.channels = w[1], v.outputs = w[0] / v.groups;
    v.kh = w[2], v.kw = w[3], v.k = v.channels * v.kh * v.kw;
    v.ih = x[2], v.iw = x[3], v.oh = y[2], v.ow = y[3];
    v.sh = attrs->stride.v[0], v.sw = ik_second(&attrs->stride);
    v.dh = attrs->dilation.v[0], v.dw = ik_second(&attrs->dilation);
    v.top = attrs->padding.v[0], v.left = ik_second(&attrs->padding);
    v.point = v.kh * v.kw == 1 && v.sh == 1 && v.sw == 1 && v.top == 0 && v.left == 0 && v.oh == v.ih && v.ow == v.iw;
    if (data != NULL) {
        v.y = ik_ptr(plan, data, IK_CONV2D_Y);
        v.x = ik_ptr(plan, data, IK_CONV2D_X);
        v.w = panels ? data[IK_CONV2D_W] : ik_ptr(plan, data, IK_CONV2D_W);
        v.bias = ik_ptr(plan, data, IK_CONV2D_BIAS);
        v.residual = ik_ptr(plan, data, IK_CONV2D_RESIDUAL);
    }
    if (ik_present(plan, IK_CONV2D_BIAS))
        v.bias_step = t[IK_CONV2D_BIAS].strides[0];
    if (ik_present(plan, IK_CONV2D_RESIDUAL))
        v.tr = &t[IK_CONV2D_RESIDUAL];
    const int64_t size = ik_itemsize(v.ty->dtype == IK_F64 ? IK_F64 : IK_F32), lanes = IK_VECTOR / size;
    const bool run = v.ty->strides[3] == 1 && (v.ty->strides[2] == v.ow || v.oh == 1)
        && ik_itemsize(v.tx->dtype) == size && !(v.channels == 1 && v.groups > 1);
    if (v.tr == NULL && v.activation > IK_CONV2D_RELU && (panels || run))
        v.early = v.activation, v.activation = IK_CONV2D_NONE;
    v.panel_width = panels ? ik_conv_panel_width(&v, lanes) : 0;
    ik_conv_choose_blocking(&v, size, IK_TILE_ROWS, 2 * lanes);
    ik_conv_choose_rows(&v);
    if (v.panel_width > 0)
        ik_conv_choose_panel_blocking(&v, size, lanes);
    return v;
}

IK_PACKED_LAYOUT(conv2d)
{
    if (tensor != IK_CONV2D_W)
        return NULL;
    const ik_conv v = conv_of(plan, NULL, true);
    *bytes = (uint64_t)(v.groups * v.panels * v.k * v.panel_width * (v.ty->dtype == IK_F64 ? 8 : 4));
    return v.panel_width == 0 ? NULL : ik_filters_name(&v, "filters");
}

IK_PACK(conv2d)
{
    (void)stream, (void)tensor;
    ik_conv v = conv_of(plan, NULL, true);
    v.w = (const char *)from + v.tw->offset * ik_itemsize(v.tw->dtype);
    v.workspace = to;
    ik_parallel_for(v.groups * v.panels, 1, loops_of(&v)->pack, &v);
    return IK_SUCCESS;
}

IK_WORKSPACE(conv2d)
{
    const bool panels = IK_IS_PREPACKED(plan, IK_CONV2D_W);
    const ik_conv v = conv_of(plan, NULL, panels);
    if (ik_numel(v.ty) == 0 || v.rows)
        return 0;
    if (panels)
        return (uint64_t)(v.offset_bytes + v.plane_bytes + v.slice_bytes * ik_threads());
    return (uint64_t)(v.offset_bytes + v.slice_bytes * (ik_conv_tasks(&v) > ik_conv_grain(&v) ? ik_threads() : 1));
}

/* Process rounds of images: first their planes, unless those are local to a task, then all bands. */
static void run_panels(ik_conv *v)
{
    const ik_conv_loops *loops = loops_of(v);
    const int64_t parts = v->groups * v->bands * ik_conv_parts(v);
    const double products =
        (double)v->groups * (double)v->outputs * (double)v->k * (double)(v->oh * v->ow) / (double)parts;
    const int64_t grain = products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
    const int64_t channel = v->planes * v->phases * (v->oh + v->reach) * v->width * 4;
    for (v->image = 0; v->image < v->images; v->image += v->round) {
        const int64_t images = ik_min(v->round, v->images - v->image);
        if (!v->x_in_place && !v->local)
            ik_parallel_for(images * v->groups * v->channels, IK_THREAD_BYTES / channel + 1, loops->planes, v);
        ik_parallel_for(images * parts, grain, loops->panels, v);
    }
}

IK_KERNEL(conv2d)
{
    IK_UNUSED;
    const bool panels = IK_IS_PREPACKED(plan, IK_CONV2D_W);
    ik_conv v = conv_of(plan, data, panels);
    if (ik_numel(v.ty) == 0)
        return IK_SUCCESS;
    if (v.rows) {
        ik_parallel_for(v.images * v.groups * v.bands, ik_conv_grain(&v), IK_PART_NAME(conv2d_rows), &v);
        return IK_SUCCESS;
    }
    v.workspace = workspace;
    ik_conv_offsets(&v, 2 * IK_VECTOR / (v.ty->dtype == IK_F64 ? 8 : 4), workspace);
    if (panels)
        run_panels(&v);
    else
        ik_parallel_for(ik_conv_tasks(&v), ik_conv_grain(&v), loops_of(&v)->tiles, &v);
    return IK_SUCCESS;
}
#endif

#if IK_IN_PART(1) || IK_IN_PART(2)
#include "activations.h"
#include "masks.h"
#include "transpose.h"
#endif
#define IK_FILE "conv2d.c"
#include "each_type.h"
#if IK_IN_PART(1)
#include "conv2d_depthwise.h"
#endif

#else
#define IK_TILE_OFFSETS
#include "gemm_tile.h"
#include "conv2d_block.h"
#include "pixel_tile.h"
#include "conv2d_panels.h"
const ik_conv_loops IK_SHARED(
    IK_OF(conv2d)) = { IK_OF(conv_tasks), IK_OF(panel_tasks), IK_OF(plane_tasks), IK_OF(pack_panels) };
#endif
