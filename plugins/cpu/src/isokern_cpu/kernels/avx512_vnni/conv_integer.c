/* conv_integer and qlinear_conv by vpdpbusd, four channels at once. */
#include "byte_quads.h"
#include "integer_conv_bands.h"

IK_SUPPORTED(conv_integer) { return why_not_conv(plan); }

IK_PACKED_LAYOUT(conv_integer) { return packed_filters(plan, tensor, bytes); }

IK_PACK(conv_integer)
{
    (void)stream, (void)tensor;
    return pack_conv(plan, from, to);
}

IK_WORKSPACE(conv_integer) { return conv_workspace(plan); }

IK_KERNEL(conv_integer)
{
    IK_UNUSED;
    return convolve_bytes(plan, data, workspace);
}
