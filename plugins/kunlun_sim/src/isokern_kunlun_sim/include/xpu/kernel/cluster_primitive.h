/* XDNN's whole-array primitives. */
#error "not modelled: cluster_primitive.h: sections 2.3 and 2.4 say of its primitives only that each ends in mfence_lm(); write the loop over vectors"
