/* The values by which batch_norm maps channel c: its mean, the factor w / sqrt(var + eps), and the bias. */
#ifndef IK_CHANNELS_H
#define IK_CHANNELS_H
#include "simt.h"
#include "isokern_math.h"

#define CHANNEL(t, c) IK_LOAD(t, p.t.offset + (c) * p.t.strides[0])
#define SPREAD(c) IK_FN(sqrt)(CHANNEL(var, c) + p.attr_eps)
#ifdef IK_HAS_w
#define FACTOR(c) (CHANNEL(w, c) / SPREAD(c))
#else
#define FACTOR(c) (1 / SPREAD(c))
#endif
#ifdef IK_HAS_bias
#define BIAS(c) CHANNEL(bias, c)
#else
#define BIAS(c) 0
#endif
#endif
