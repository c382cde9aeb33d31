/* Rounding in all four modes of the SIMD unit, independent of the host's rounding mode: an exact result is converted to
 * a double that is rounded to odd (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008), from
 * which one more rounding to any narrower format is correct. */
#ifndef XPUSIM_ROUNDING_H
#define XPUSIM_ROUNDING_H
#include <cstdint>
#include <cstring>

#include "device.h"

#define XPUSIM_INLINE static inline __attribute__((always_inline, XPUSIM_OWN, unused))
#define XPUSIM_MEMBER inline __attribute__((always_inline, XPUSIM_OWN))

namespace xpusim
{

enum class round { rn, rz, ru, rd };

template <class To, class From>
XPUSIM_INLINE To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a reinterpretation keeps the bits");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

/* Return a + b, rounded to odd. */
XPUSIM_INLINE double sum_to_odd(double a, double b)
{
    const double s = a + b, t = s - a, error = (a - (s - t)) + (b - t); /* Knuth's TwoSum: s + error is exact */
    const int64_t bits = bits_as<int64_t>(s);
    if (!(error < 0 || error > 0) || (bits & 1) != 0)
        return s;
    return bits_as<double>(bits + ((error > 0) == (s > 0) ? 1 : -1));
}

/* Return the float that the mode asks for, where `rounded` is the float nearest to `exact`. */
XPUSIM_INLINE float round_directed(double exact, float rounded, round mode)
{
    const double r = rounded;
    if (mode == round::rn || r == exact || exact != exact || __builtin_isinf(exact))
        return rounded;
    const bool up = mode == round::ru || (mode == round::rz && exact < 0);
    if (up ? r > exact : r < exact)
        return rounded;
    if (rounded == 0)
        return up ? 0x1p-149f : -0x1p-149f;
    return bits_as<float>(bits_as<int32_t>(rounded) + ((rounded > 0) == up ? 1 : -1));
}

XPUSIM_INLINE float to_float(double exact, round mode)
{ return round_directed(exact, static_cast<float>(exact), mode); }

/* Return the bits of a 16-bit float of P mantissa bits and exponent bias B. */
template <int P, int B>
XPUSIM_INLINE uint16_t to_narrow(double exact, round mode)
{
    const uint64_t bits = bits_as<uint64_t>(exact);
    const uint16_t sign = static_cast<uint16_t>(bits >> 48 & 0x8000),
                   infinity = static_cast<uint16_t>((2 * B + 1) << P);
    if (exact != exact)
        return static_cast<uint16_t>(sign | infinity | 1 << (P - 1) | (bits >> (52 - P) & ((1 << P) - 1)));
    const double magnitude = exact < 0 ? -exact : exact;
    if (__builtin_isinf(exact) || magnitude == 0)
        return static_cast<uint16_t>(sign | (magnitude == 0 ? 0 : infinity));
    int e = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
    e = e < 1 - B ? 1 - B : e > B ? B : e;
    /* In units of the result's last place; exact. */
    const double steps = magnitude * bits_as<double>(static_cast<uint64_t>(1023 + P - e) << 52);
    const bool away = mode == round::ru ? sign == 0 : mode == round::rd && sign != 0, nearest = mode == round::rn;
    const double max_steps = static_cast<double>(4 << P);
    uint32_t n = static_cast<uint32_t>(steps < max_steps ? steps : max_steps);
    const double rest = steps - n;
    n += nearest ? rest > 0.5 || (rest == 0.5 && (n & 1) != 0) : away && rest > 0;
    if (e == B && n >= 2u << P) /* overflow */
        return static_cast<uint16_t>(sign | (nearest || away ? infinity : infinity - 1));
    const uint32_t result = n < 1u << P ? n : (static_cast<uint32_t>(e + B) << P) + n - (1u << P);
    return static_cast<uint16_t>(sign | result);
}

template <int P, int B>
XPUSIM_INLINE float from_narrow(uint16_t h)
{
    constexpr uint32_t infinity = (2 * B + 1) << P;
    const uint32_t magnitude = h & 0x7fff, sign = static_cast<uint32_t>(h & 0x8000) << 16;
    const float scaled =
        bits_as<float>(magnitude << (23 - P)) * bits_as<float>(static_cast<uint32_t>(127 + 127 - B) << 23);
    const uint32_t finite = B == 127 ? magnitude << 16 : bits_as<uint32_t>(scaled);
    return bits_as<float>(sign | (magnitude >= infinity ? magnitude << (23 - P) | 0x7f800000u : finite));
}

/* The lane formats, by the names of the language. */
struct fp16 {
    static constexpr int P = 10, B = 15;
};
struct bf16 {
    static constexpr int P = 7, B = 127;
};

template <class F>
XPUSIM_INLINE float widen(uint16_t bits)
{ return from_narrow<F::P, F::B>(bits); }

template <class F>
XPUSIM_INLINE uint16_t narrow(double exact, round mode = round::rn)
{ return to_narrow<F::P, F::B>(exact, mode); }

} // namespace xpusim
#endif
