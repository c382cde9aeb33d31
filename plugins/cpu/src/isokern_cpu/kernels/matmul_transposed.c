/* matmul_transposed, linear_mixed and matmul_mixed: x wᵀ, the same with an epilogue, and x w, where the weights have
 * their own type (matmul_weights.h). */
#include "matmul_weights.h"

IK_WORKSPACE(matmul_transposed) { return weights_workspace(plan); }

IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    return multiply_weights(plan, data, workspace);
}
