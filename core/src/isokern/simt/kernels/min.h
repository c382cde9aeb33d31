/* The first wrong place of a group, and how it is reported to the device: kind, place and value, unless an error was
 * reported before. */
#ifndef IK_MIN_H
#define IK_MIN_H
#ifndef IK_GIVEN
#define IK_GIVEN ik_i64 /* the type of the file's indices */
#endif
#ifndef IK_LOWEST_GIVEN
#define IK_LOWEST_GIVEN 0 /* the lowest value that is not outside */
#endif

/* The smallest place of a group, in all its items; `places` holds one per item. */
static IK_INLINE ik_index group_min(ik_index place, IK_LOCAL ik_index *places)
{
    places[IK_LOCAL_ID] = place;
    for (int half_ = IK_GROUP / 2; half_ > 0; half_ /= 2) {
        IK_BARRIER();
        if (IK_LOCAL_ID < half_ && places[IK_LOCAL_ID + half_] < places[IK_LOCAL_ID])
            places[IK_LOCAL_ID] = places[IK_LOCAL_ID + half_];
    }
    IK_BARRIER(); /* compilers may read places[0] for all items, whichever need it */
    return places[0];
}

static IK_INLINE void ik_report(IK_GLOBAL ik_i64 *error, ik_i64 place, ik_i64 value)
{
    if (error[0] == 0) {
        error[0] = IK_OP_KIND;
        error[1] = place;
        error[2] = value;
    }
}

/* Report the first element of a vector that is outside IK_LOWEST_GIVEN to `max_value`. */
static IK_INLINE void report_outside(IK_RECORD(ik_tensor) t, IK_GLOBAL const IK_GIVEN *given, ik_i64 max_value,
    IK_LOCAL ik_index *places, IK_GLOBAL ik_i64 *error)
{
    const ik_index count = t.shape[0];
    ik_index first = count;
    for (ik_index i = IK_LOCAL_ID; i < first; i += IK_GROUP) {
        const ik_i64 value = given[t.offset + i * t.strides[0]];
        if (value < IK_LOWEST_GIVEN || value > max_value)
            first = i;
    }
    first = group_min(first, places);
    if (IK_LOCAL_ID == 0 && first < count)
        ik_report(error, first, given[t.offset + first * t.strides[0]]);
}
#endif
