/* Rows that lie along memory, a block a row: its threads read x once and hold it, PER packs each, pack `i` of them at element IK_AT(i). */
#ifndef IK_HELD_ROWS_H
#define IK_HELD_ROWS_H
#include "packs.h"
#include "group.h"

#define IK_AT(i) (((ik_index)(i) * IK_GROUP + IK_LOCAL_ID) * EACH)

/* What a thread holds of a row, in the compute type; beyond the row's end nothing. */
struct held_row {
    ik_c v[PER][EACH];
    ik_index d;

    template <class T>
    IK_INLINE void read(const T *from, ik_index length)
    {
        d = length;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d) {
                const auto some = get(from + IK_AT(i));
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    v[i][j] = LOAD_OF(x, some, j);
            }
    }

    /* done(element) for each that is held */
    template <class F>
    IK_INLINE void each(F done)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    done(v[i][j]);
    }

    /* done(element, that of a line of another tensor of x's dtype) for each that is held */
    template <class T, class F>
    IK_INLINE void with(const T *line, F done)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d) {
                const auto some = get(line + IK_AT(i));
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    done(v[i][j], LOAD_OF(x, some, j));
            }
    }

    template <class T>
    IK_INLINE void write(T *to)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d) {
                auto made = pack_of(to);
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    STORE_OF(y, made, j, v[i][j]);
                put(to + IK_AT(i), made);
            }
    }
};
#endif
