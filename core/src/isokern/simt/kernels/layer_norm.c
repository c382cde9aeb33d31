/* layer_norm: y = (x - mean) / sqrt(var + eps) * w + bias, with the variance from a second pass. */
/* launch
 * launch_rows(entry="layer_norm", y=y, values=4)
 */
#include "simt.h"
#include "layer_norm.h"
