/* concat of contiguous inputs: every input is moved into its part of the output as rearrange moves one. */
#include "rearrange.c"
