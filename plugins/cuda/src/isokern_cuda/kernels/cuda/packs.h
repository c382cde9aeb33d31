/* Packs: runs of EACH elements that a thread loads or stores at once, 16 bytes of the widest tensor. They begin at
 * multiples of their size. */
#ifndef IK_PACKS_H
#define IK_PACKS_H
#include "simt.h"

template <class T>
struct alignas(EACH * sizeof(T)) pack {
    T v[EACH];
};

template <class T>
static IK_INLINE pack<T> get(const T *from)
{ return *reinterpret_cast<const pack<T> *>(from); }

template <class T>
static IK_INLINE void put(T *to, pack<T> made)
{ *reinterpret_cast<pack<T> *>(to) = made; }

/* Move a pack; of the last one only the `left` elements that exist. */
template <class T>
static IK_INLINE void move(T *to, const T *from, ik_index left)
{
    if (left >= EACH)
        put(to, get(from));
    else
        for (int i = 0; i < left; i++)
            to[i] = from[i];
}

/* A pack of elements of the type of `to`, to be written. */
template <class T>
static IK_INLINE pack<T> pack_of(T *)
{ return {}; }

/* Element i of a pack of tensor x, in the compute type. */
#define LOAD_OF(x, pack, i) (ik_c) IK_PASTE(ik_load_, IK_TYPE_##x)((pack).v, i)
#define STORE_OF(x, pack, i, value) IK_PASTE(ik_store_, IK_TYPE_##x)((pack).v, i, value)
#endif
