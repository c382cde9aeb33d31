/* Moves lines of elements, which are treated as unsigned integers of their size. */
#ifndef IK_MOVE_H
#define IK_MOVE_H
#include "place.h"

#ifdef IK_TYPE_y
/* y[i * y_step] = x[i * x_step] for i from `begin` to `end`, by all items of the group. */
#ifdef IK_TYPE_x
static IK_INLINE void ik_move_line(IK_GLOBAL IK_ELEMENT(y) * y, ik_index y_step, IK_GLOBAL const IK_ELEMENT(y) * x,
    ik_index x_step, ik_index begin, ik_index end)
{
    ik_index i = begin + IK_LOCAL_ID;
#if IK_GROUP > 1
    /* Four at a time: x and y may overlap, so one element alone would have to be written before the next is read. */
    for (; i + 3 * IK_GROUP < end; i += 4 * IK_GROUP) {
        IK_ELEMENT(y) held[4];
        for (int k = 0; k < 4; k++)
            held[k] = x[(i + k * IK_GROUP) * x_step];
        for (int k = 0; k < 4; k++)
            y[(i + k * IK_GROUP) * y_step] = held[k];
    }
#endif
    if (y_step == 1 && x_step == 1)
        for (; i < end; i += IK_GROUP)
            y[i] = x[i];
    else
        for (; i < end; i += IK_GROUP)
            y[i * y_step] = x[i * x_step];
}
#endif

/* The same with one value for all elements. */
static IK_INLINE void ik_fill_line(
    IK_GLOBAL IK_ELEMENT(y) * y, ik_index y_step, IK_ELEMENT(y) value, ik_index begin, ik_index end)
{
    if (y_step == 1)
        for (ik_index i = begin + IK_LOCAL_ID; i < end; i += IK_GROUP)
            y[i] = value;
    else
        for (ik_index i = begin + IK_LOCAL_ID; i < end; i += IK_GROUP)
            y[i * y_step] = value;
}
#endif
#endif
