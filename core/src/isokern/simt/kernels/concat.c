/* concat: every input is moved into its part of the output along the axis, as rearrange moves one, in a launch each. */
#include "rearrange.c"
