/* group_norm and instance_norm: layer_norm of the elements of each group, with w and bias by channel, so that the result
 * is not read and written again for these. */
#include "simt.h"
#include "layer_norm.h"
