/* Values of a work-group brought together in local memory. Every item of the group calls, and gets the result. */
#ifndef IK_GROUP_H
#define IK_GROUP_H

/* The sum over the group, added in a tree; `scratch` holds IK_GROUP values. */
static IK_INLINE ik_c ik_group_sum(ik_c value, IK_LOCAL ik_c *scratch)
{
    scratch[IK_LOCAL_ID] = value;
    for (int half_ = IK_GROUP / 2; half_ > 0; half_ /= 2) {
        IK_BARRIER();
        if (IK_LOCAL_ID < half_)
            scratch[IK_LOCAL_ID] += scratch[IK_LOCAL_ID + half_];
    }
    IK_BARRIER();
    value = scratch[0];
    IK_BARRIER();
    return value;
}
#endif
