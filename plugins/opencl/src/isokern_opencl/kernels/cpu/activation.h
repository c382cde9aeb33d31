#ifndef IK_ACTIVATION_H
#define IK_ACTIVATION_H
#include "isokern_math.h"
#define IK_ACTIVATE_none(x) (x)
#define IK_ACTIVATE_relu(x) IK_FN(maximum)(x, 0)
#define IK_ACTIVATE_tanh(x) IK_FN(tanh)(x)
#define IK_ACTIVATE_sigmoid(x) (((x >= 0) ? 1 : IK_FN(exp)((-IK_FN(abs)(x)))) / (1 + IK_FN(exp)((-IK_FN(abs)(x)))))
#define IK_ACTIVATE_silu(x) ((x < -10000) ? -0.0f : ((x * ((x >= 0) ? 1 : IK_FN(exp)((-IK_FN(abs)(x))))) / (1 + IK_FN(exp)((-IK_FN(abs)(x))))))
#define IK_ACTIVATE_gelu(x) ((x < -14) ? -0.0f : (((ik_c)0.5f * x) * (1 + IK_FN(erf)((x * (ik_c)0.7071067811865476)))))
#define IK_ACTIVATE_gelu_tanh(x) ((x < -14) ? -0.0f : (((ik_c)0.5 * x) * (1 + IK_FN(tanh)(((ik_c)0.7978845608028654 * (x + ((((ik_c)0.044715 * x) * x) * x)))))))
#endif
