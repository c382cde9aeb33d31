/* conv2d: register tiles over planes of x that are cut and padded band by band; one channel a group: sums of shifted planes. */
#include "conv2d.h"

#define IK_TILE_OFFSETS
#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "conv2d_block.h"
#undef IK_T
#undef IK_OF

#define IK_T double
#define IK_OF(name) name##_f64
#include "gemm_tile.h"
#include "conv2d_block.h"
#undef IK_T
#undef IK_OF

static ik_conv conv_of(const ik_plan *plan, void *const *data)
{
    const ik_conv2d_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors;
    ik_conv v = { .ty = &t[IK_CONV2D_Y], .tx = &t[IK_CONV2D_X], .tw = &t[IK_CONV2D_W] };
    const int64_t *x = v.tx->shape, *w = v.tw->shape, *y = v.ty->shape;
    v.images = x[0], v.groups = attrs->groups, v.channels = w[1], v.outputs = w[0] / v.groups;
    v.kh = w[2], v.kw = w[3], v.k = v.channels * v.kh * v.kw;
    v.ih = x[2], v.iw = x[3], v.oh = y[2], v.ow = y[3];
    v.sh = attrs->stride.v[0], v.sw = ik_second(&attrs->stride);
    v.dh = attrs->dilation.v[0], v.dw = ik_second(&attrs->dilation);
    v.top = attrs->padding.v[0], v.left = ik_second(&attrs->padding);
    if (data != NULL) {
        v.y = ik_ptr(plan, data, IK_CONV2D_Y);
        v.x = ik_ptr(plan, data, IK_CONV2D_X);
        v.w = ik_ptr(plan, data, IK_CONV2D_W);
        v.bias = ik_ptr(plan, data, IK_CONV2D_BIAS);
    }
    if (ik_present(plan, IK_CONV2D_BIAS))
        v.bias_step = t[IK_CONV2D_BIAS].strides[0];
    if (v.ty->dtype == IK_F64)
        ik_conv_cut(&v, sizeof(double), IK_TILE_ROWS, strip_f64);
    else
        ik_conv_cut(&v, sizeof(float), IK_TILE_ROWS, strip_f32);
    return v;
}

IK_WORKSPACE(conv2d)
{
    ik_conv v = conv_of(plan, NULL);
    if (ik_numel(v.ty) == 0)
        return 0;
    return (uint64_t)(v.offset_bytes + v.slice_bytes * (ik_conv_tasks(&v) > ik_conv_grain(&v) ? ik_threads() : 1));
}

IK_KERNEL(conv2d)
{
    IK_UNUSED;
    ik_conv v = conv_of(plan, data);
    if (ik_numel(v.ty) == 0)
        return IK_SUCCESS;
    v.workspace = workspace;
    ik_conv_offsets(&v, v.ty->dtype == IK_F64 ? strip_f64 : strip_f32, workspace);
    ik_parallel_for(ik_conv_tasks(&v), ik_conv_grain(&v), v.ty->dtype == IK_F64 ? conv_tasks_f64 : conv_tasks_f32, &v);
    return IK_SUCCESS;
}
