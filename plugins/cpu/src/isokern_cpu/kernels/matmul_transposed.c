/* matmul_transposed, linear_mixed and matmul_mixed: x wᵀ, the same with an epilogue, and x w, where the weights have
 * their own type, as they are or in prepacked panels (packed_products.h). */
#include "packed_products.h"

IK_PACKED_LAYOUT(matmul_transposed) { return panels_of(plan, tensor, bytes); }

IK_PACK(matmul_transposed)
{
    (void)stream, (void)tensor;
    return pack_weights(plan, from, to);
}

IK_WORKSPACE(matmul_transposed) { return product_workspace(plan); }

IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    return multiply_product(plan, data, workspace);
}
