/* Rows of a factor a that enter products as Q8_0: an entry quantises them in the workspace, where a then lies. Launches
 * that read it there have the macro ROUNDED, and no tensor a. */
#ifndef IK_ROUNDED_H
#define IK_ROUNDED_H
#include "blocks.h"
#include "place.h"
#if defined(ROUNDED) && ROUNDED && !defined(IK_HAS_a)
#define IK_TYPE_a Q8_0
#define IK_SIZE_a 34
#define FACTOR_A IK_GLOBAL const ik_u8 *const a = workspace;
#else
#define FACTOR_A
#endif

IK_ENTRY(matmul_round)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_index from = ik_offset(p.a, IK_ITEM * IK_BLOCK), step = p.a.strides[(int)p.a.ndim - 1];
    float v[IK_BLOCK];
    for (int k = 0; k < IK_BLOCK; k++)
        v[k] = IK_LOAD(a, from + k * step);
    ik_make_Q8_0(workspace + (ik_i64)IK_ITEM * 34, v);
}
#endif
