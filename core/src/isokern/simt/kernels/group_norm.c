/* group_norm and instance_norm: layer_norm of the elements of each group, with w and bias by channel: for these, the
 * result need not be read and written again. */
#include "simt.h"
#include "layer_norm.h"
