/* Keys of elements: integers of the same order, in which NaN is the largest and -0 equals 0. They are made of bits
 * alone, by size. */
#ifndef IK_XPU_KEYS_H
#define IK_XPU_KEYS_H
#include "kernel.h"

/* An element as an integer of the same order, and its index. */
struct ik_entry {
    long long key, at;
};

/* How the bits of a dtype are ordered. */
struct ik_key_form {
    int size;                    /* in bytes */
    unsigned long long infinity; /* the bits of infinity; 0 for integers */
    unsigned long long flip;     /* what makes the bits of an integer ordered as unsigned */

    /* Element i of a tile, as a signed integer. */
    inline __device__ long long key_of(const char *tile, int i) const
    {
        unsigned long long u;
        switch (size) {
        case 1: u = ((const unsigned char *)tile)[i]; break;
        case 2: u = ((const unsigned short *)tile)[i]; break;
        case 4: u = ((const unsigned *)tile)[i]; break;
        default: u = ((const unsigned long long *)tile)[i];
        }
        if (infinity == 0)
            return (long long)(u ^ flip);
        const long long magnitude = (long long)(u & (flip - 1));
        return magnitude > (long long)infinity ? __LONG_LONG_MAX__ : (u & flip) != 0 ? -magnitude : magnitude;
    }
};

/* Host: the form of a dtype's keys. The keys of narrow integers are their bits as unsigned; of those of 64 bits, as
 * signed. */
static inline ik_key_form ik_key_form_of(int dtype)
{
    const int size = (int)ik_itemsize(dtype);
    const unsigned long long top = 1ull << (8 * size - 1);
    switch (dtype) {
    case IK_F32: return { size, 0x7f800000, top };
    case IK_F64: return { size, 0x7ff0000000000000, top };
    case IK_F16: return { size, 0x7c00, top };
    case IK_BF16: return { size, 0x7f80, top };
    case IK_I8:
    case IK_I16:
    case IK_I32: return { size, 0, top };
    case IK_U64: return { size, 0, top };
    default: return { size, 0, 0 };
    }
}
#endif
