/* XDNN's header: primitives for whole arrays. */
#error \
    "not modelled: cluster_primitive.h: of its primitives only that each ends in mfence_lm() is public; write the loop over vectors"
