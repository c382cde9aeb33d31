/* The scalar language's named functions on integers, in the common subset of C, OpenCL C and CUDA C++. Signed overflow
 * wraps (computed unsigned); a quotient by zero is 0, and that of the smallest number by -1 wraps. */
#ifndef ISOKERN_INT_H
#define ISOKERN_INT_H

#ifndef IK_INLINE
#define IK_INLINE inline __attribute__((always_inline))
#endif
#ifndef IK_INT64
#define IK_INT64 long long
#endif
#ifndef IK_UINT64
#define IK_UINT64 unsigned long long
#endif

static IK_INLINE IK_INT64 ik_abs_i64(IK_INT64 x)
{
    const IK_INT64 minus = (IK_INT64)(0 - (IK_UINT64)x);
    return x > minus ? x : minus; /* LLVM turns x < 0 into an intrinsic that some OpenCL drivers lack */
}
static IK_INLINE IK_UINT64 ik_abs_u64(IK_UINT64 x) { return x; }
static IK_INLINE IK_INT64 ik_sign_i64(IK_INT64 x) { return (x > 0) - (x < 0); }
static IK_INLINE IK_UINT64 ik_sign_u64(IK_UINT64 x) { return x > 0; }
static IK_INLINE IK_INT64 ik_minimum_i64(IK_INT64 a, IK_INT64 b) { return a < b ? a : b; }
static IK_INLINE IK_UINT64 ik_minimum_u64(IK_UINT64 a, IK_UINT64 b) { return a < b ? a : b; }
static IK_INLINE IK_INT64 ik_maximum_i64(IK_INT64 a, IK_INT64 b) { return a > b ? a : b; }
static IK_INLINE IK_UINT64 ik_maximum_u64(IK_UINT64 a, IK_UINT64 b) { return a > b ? a : b; }
static IK_INLINE IK_UINT64 ik_quotient_u64(IK_UINT64 a, IK_UINT64 b) { return b ? a / b : 0; }

/* Quotient rounded towards negative infinity, as by NumPy's floor_divide. */
static IK_INLINE IK_INT64 ik_quotient_i64(IK_INT64 a, IK_INT64 b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return (IK_INT64)(0 - (IK_UINT64)a);
    IK_INT64 q = a / b; /* no a % b as well: LLVM combines the two into code that Oclgrind cannot check */
    return q - ((a - q * b != 0) & ((a < 0) != (b < 0)));
}

/* Remainders with the divisor's sign, and with the dividend's; the dividend where the divisor is 0. */
static IK_INLINE IK_UINT64 ik_remainder_u64(IK_UINT64 a, IK_UINT64 b) { return a - ik_quotient_u64(a, b) * b; }
static IK_INLINE IK_INT64 ik_remainder_i64(IK_INT64 a, IK_INT64 b)
{ return (IK_INT64)((IK_UINT64)a - (IK_UINT64)ik_quotient_i64(a, b) * (IK_UINT64)b); }
static IK_INLINE IK_UINT64 ik_fmod_u64(IK_UINT64 a, IK_UINT64 b) { return ik_remainder_u64(a, b); }
static IK_INLINE IK_INT64 ik_fmod_i64(IK_INT64 a, IK_INT64 b)
{
    const IK_INT64 r = ik_remainder_i64(a, b);
    return ((r != 0) & ((r < 0) != (a < 0))) ? (IK_INT64)((IK_UINT64)r - (IK_UINT64)b) : r;
}

/* Shifts; by a count outside 0 .. 63 they give 0, or for the right shift of a negative number -1. Right shifts keep the
 * sign; they shift what follows it, since AVX2 has no arithmetic shift of 64 bits. */
static IK_INLINE IK_UINT64 ik_shift_left_u64(IK_UINT64 a, IK_UINT64 b) { return b < 64 ? a << (b & 63) : 0; }
static IK_INLINE IK_INT64 ik_shift_left_i64(IK_INT64 a, IK_INT64 b)
{ return (IK_INT64)ik_shift_left_u64((IK_UINT64)a, (IK_UINT64)b); }
static IK_INLINE IK_UINT64 ik_shift_right_u64(IK_UINT64 a, IK_UINT64 b) { return b < 64 ? a >> (b & 63) : 0; }
static IK_INLINE IK_INT64 ik_shift_right_i64(IK_INT64 a, IK_INT64 b)
{
    const IK_UINT64 sign = 0 - ((IK_UINT64)a >> 63);
    return (IK_INT64)(ik_shift_right_u64((IK_UINT64)a ^ sign, (IK_UINT64)b) ^ sign);
}

static IK_INLINE IK_INT64 ik_bitand_i64(IK_INT64 a, IK_INT64 b) { return a & b; }
static IK_INLINE IK_UINT64 ik_bitand_u64(IK_UINT64 a, IK_UINT64 b) { return a & b; }
static IK_INLINE IK_INT64 ik_bitor_i64(IK_INT64 a, IK_INT64 b) { return a | b; }
static IK_INLINE IK_UINT64 ik_bitor_u64(IK_UINT64 a, IK_UINT64 b) { return a | b; }
static IK_INLINE IK_INT64 ik_bitxor_i64(IK_INT64 a, IK_INT64 b) { return a ^ b; }
static IK_INLINE IK_UINT64 ik_bitxor_u64(IK_UINT64 a, IK_UINT64 b) { return a ^ b; }
static IK_INLINE IK_INT64 ik_bitnot_i64(IK_INT64 x) { return ~x; }
static IK_INLINE IK_UINT64 ik_bitnot_u64(IK_UINT64 x) { return ~x; }

#endif
