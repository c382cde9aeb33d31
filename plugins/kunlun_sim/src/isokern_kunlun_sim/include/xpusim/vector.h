/* The vectors of the SIMD unit: 512 bits, on top of the compiler's vector extension. In checked kernels a vector also
 * tracks which of its bytes come from memory that nobody has written: they may travel, and are reported where a result
 * depends on them. */
#ifndef XPUSIM_VECTOR_H
#define XPUSIM_VECTOR_H
#include <type_traits>

#include "device.h"
#include "rounding.h"

namespace xpusim
{

template <class L>
struct lane {
    using type = L;
};
template <>
struct lane<fp16> {
    using type = uint16_t;
};
template <>
struct lane<bf16> {
    using type = uint16_t;
};

template <class L>
using lane_type = typename lane<L>::type;

template <class T>
struct raw {
    typedef T type __attribute__((vector_size(64)));
};
template <class L>
using raw_of = typename raw<lane_type<L>>::type;

constexpr uint64_t NONE = 0, ALL = ~uint64_t{ 0 };

template <class L>
struct vector {
    using stored = lane_type<L>;
    static constexpr int lanes = 64 / static_cast<int>(sizeof(stored));

    raw_of<L> v;
#ifdef XPUSIM_CHECKED
    uint64_t unwritten = ALL;
    XPUSIM_MEMBER vector() = default;
    XPUSIM_MEMBER void taint(uint64_t bytes) { unwritten = bytes; }
    XPUSIM_MEMBER uint64_t tainted() const { return unwritten; }
#else
    XPUSIM_MEMBER vector() = default;
    XPUSIM_MEMBER void taint(uint64_t) {}
    XPUSIM_MEMBER uint64_t tainted() const { return NONE; }
#endif
    XPUSIM_MEMBER vector(raw_of<L> value, uint64_t bytes) : v(value) { taint(bytes); }
    /* Sets every lane to the same value. */
    XPUSIM_MEMBER explicit vector(stored value) : v(value - raw_of<L>{}) { taint(NONE); }
};

template <class V>
struct lanes_in;
template <class L>
struct lanes_in<vector<L>> {
    using type = L;
};
template <class V>
using lane_of = typename lanes_in<V>::type;

template <class V>
XPUSIM_INLINE V zero()
{ return V(decltype(V::v){}, NONE); }

/* A scalar operand in every lane; a 16-bit float is given by its bits. */
template <class V, class S>
XPUSIM_INLINE V every(S a)
{
    if constexpr (std::is_class_v<S>)
        return V(static_cast<uint16_t>(a.val_));
    else
        return V(static_cast<typename V::stored>(a));
}

/* The same bits as lanes of another type: what reinterpret_cast between vectors means in a kernel. */
template <class To, class L>
XPUSIM_INLINE To vector_cast(const vector<L> &a)
{ return To(reinterpret_cast<decltype(To::v)>(a.v), a.tainted()); }

/* ---- Masks: bit i of an int stands for lane i; in checked kernels there are masks of bytes, too. ---- */

/* The bytes of all lanes of which `bytes` has any byte. */
template <class L>
XPUSIM_INLINE uint64_t whole_lanes(uint64_t bytes)
{
    if (sizeof(lane_type<L>) == 4) {
        bytes |= bytes >> 2;
        bytes |= bytes >> 1;
        return (bytes & 0x1111111111111111u) * 15;
    }
    return ((bytes | bytes >> 1) & 0x5555555555555555u) * 3;
}

/* The bytes of the lanes of a mask. */
template <class L>
XPUSIM_INLINE uint64_t bytes_of(uint32_t mask)
{
    constexpr int size = static_cast<int>(sizeof(lane_type<L>));
    uint64_t bytes = 0;
    for (int i = 0; i < vector<L>::lanes; i++)
        bytes |= static_cast<uint64_t>(mask >> i & 1) * ((1u << size) - 1) << (size * i);
    return bytes;
}

/* All bits of the lanes in the mask. */
template <class L>
XPUSIM_INLINE auto lanes_of(uint32_t mask)
{
    if constexpr (vector<L>::lanes == 16) {
        typedef int32_t V __attribute__((vector_size(64)));
        const V bit = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768 };
        return ((static_cast<int32_t>(mask) - V{}) & bit) == bit;
    } else {
        typedef int16_t V __attribute__((vector_size(64)));
        const int16_t top = static_cast<int16_t>(0x8000), l = static_cast<int16_t>(mask),
                      h = static_cast<int16_t>(mask >> 16);
        const V bit = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, top, 1, 2, 4, 8, 16, 32,
            64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, top };
        const V word = { l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, h, h, h, h, h, h, h, h, h, h, h, h, h, h, h,
            h };
        return (word & bit) == bit;
    }
}

/* Lanes of `a` where the mask has a bit, else lanes of `hold`. */
template <class L>
XPUSIM_INLINE vector<L> blend(const vector<L> &a, const vector<L> &hold, int mask)
{
    vector<L> r(lanes_of<L>(static_cast<uint32_t>(mask)) ? a.v : hold.v, NONE);
#ifdef XPUSIM_CHECKED
    const uint64_t on = bytes_of<L>(static_cast<uint32_t>(mask));
    r.taint((a.tainted() & on) | (hold.tainted() & ~on));
#endif
    return r;
}

template <class L>
XPUSIM_INLINE vector<L> zero_masked(const vector<L> &a, int mask)
{ return blend(a, zero<vector<L>>(), mask); }

/* The lanes of a comparison (all bits or none) as the bits of an int. */
template <class C>
XPUSIM_INLINE int bits_of(C all)
{
    constexpr int lanes = 64 / static_cast<int>(sizeof(all[0]));
    uint32_t mask = 0;
    for (int i = 0; i < lanes; i++)
        mask |= static_cast<uint32_t>(all[i] & 1) << i;
    return static_cast<int>(mask);
}

/* Report that a result depends on these bytes. */
XPUSIM_INLINE void uses(uint64_t unwritten, xpusim_site site)
{
#ifdef XPUSIM_CHECKED
    if (unwritten != 0)
        xpusim_use(unwritten, site);
#else
    (void)unwritten, (void)site;
#endif
}

/* ---- Memory. The moves of checked kernels are out of line, because the compiler's instrumentation would treat them as
 * scalar accesses. ---- */

#ifdef XPUSIM_CHECKED
static __attribute__((noinline, no_sanitize("thread"), unused)) uint32_t word_at(const void *p)
{
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return word;
}
static __attribute__((noinline, no_sanitize("thread"), unused)) void byte_to(void *p, uint8_t byte)
{ *static_cast<uint8_t *>(p) = byte; }
#endif

XPUSIM_INLINE void aligned(const void *p, xpusim_site site)
{
    if (reinterpret_cast<uintptr_t>(p) % 64 != 0)
        xpusim_raise(XPUSIM_SIMD_UNALIGNED,
            "a vector's address is not a multiple of 64: declare the memory __simd__, or keep offsets at whole vectors",
            site);
}

template <class L>
XPUSIM_INLINE vector<L> load(const void *p, int space, xpusim_site site)
{
    aligned(p, site);
#ifdef XPUSIM_CHECKED
    const uint64_t unwritten = xpusim_vector_load(p, 64, space, site);
    typedef uint32_t W __attribute__((vector_size(64)));
    W w;
    for (int i = 0; i < 16; i++)
        w[i] = word_at(static_cast<const char *>(p) + 4 * i);
    return { reinterpret_cast<raw_of<L>>(w), unwritten };
#else
    (void)space;
    raw_of<L> v;
    __builtin_memcpy(&v, __builtin_assume_aligned(p, 64), 64);
    return { v, NONE };
#endif
}

/* Load; lanes that the mask lacks are not read. */
template <class L>
XPUSIM_INLINE vector<L> load(const void *p, int mask, const vector<L> &hold, int space, xpusim_site site)
{
#ifdef XPUSIM_CHECKED
    constexpr int size = static_cast<int>(sizeof(lane_type<L>));
    const uint32_t on = static_cast<uint32_t>(mask) & (vector<L>::lanes == 16 ? 0xffffu : 0xffffffffu);
    aligned(p, site);
    if (on == (vector<L>::lanes == 16 ? 0xffffu : 0xffffffffu))
        return load<L>(p, space, site);
    vector<L> r = hold;
    uint64_t unwritten = hold.tainted() & ~bytes_of<L>(on);
    for (int i = 0; i < vector<L>::lanes; i++)
        if ((on >> i & 1) != 0) {
            const char *at = static_cast<const char *>(p) + i * size;
            unwritten |= (xpusim_vector_load(at, size, space, site) & ((1u << size) - 1)) << (size * i);
            const uint32_t word = word_at(static_cast<const char *>(p) + i * size / 4 * 4);
            if constexpr (size == 4)
                r.v[i] = bits_as<lane_type<L>>(word);
            else
                r.v[i] = static_cast<lane_type<L>>(word >> (i % 2 * 16));
        }
    r.taint(unwritten);
    return r;
#else
    return blend(load<L>(p, space, site), hold, mask);
#endif
}

/* Store; only lanes of `enabled` (a mask) are written. */
template <class L>
XPUSIM_INLINE void store(void *p, const vector<L> &a, int enabled, int space, xpusim_site site)
{
    aligned(p, site);
#ifdef XPUSIM_CHECKED
    const uint64_t on = bytes_of<L>(static_cast<uint32_t>(enabled));
    xpusim_vector_store(p, 64, space, a.tainted(), on, site);
    typedef uint8_t B __attribute__((vector_size(64)));
    const B b = reinterpret_cast<B>(a.v);
    for (int i = 0; i < 64; i++)
        if ((on >> i & 1) != 0)
            byte_to(static_cast<char *>(p) + i, b[i]);
#else
    (void)space;
    raw_of<L> v;
    void *to = __builtin_assume_aligned(p, 64);
    __builtin_memcpy(&v, to, 64);
    v = lanes_of<L>(static_cast<uint32_t>(enabled)) ? a.v : v;
    __builtin_memcpy(to, &v, 64);
#endif
}

/* Load lanes from base + offset in bytes, aligned to a lane; lanes that the mask lacks are those of `hold`. */
template <class L>
XPUSIM_INLINE vector<L> gather(
    const void *base, const vector<int32_t> &offsets, int mask, const vector<L> &hold, int space, xpusim_site site)
{
    vector<L> r = hold;
    uint64_t unwritten = hold.tainted() & ~bytes_of<L>(static_cast<uint32_t>(mask));
    uses(offsets.tainted() & bytes_of<int32_t>(static_cast<uint32_t>(mask)), site);
    for (int i = 0; i < 16; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        const char *at = static_cast<const char *>(base) + offsets.v[i];
#ifdef XPUSIM_CHECKED
        unwritten |= (xpusim_vector_load(at, 4, space, site) & 15) << (4 * i);
        r.v[i] = bits_as<L>(word_at(at));
#else
        L value;
        __builtin_memcpy(&value, at, sizeof value);
        r.v[i] = value;
#endif
    }
    (void)space;
    r.taint(unwritten);
    return r;
}

template <class L>
XPUSIM_INLINE void scatter(
    void *base, const vector<L> &a, const vector<int32_t> &offsets, int mask, int space, xpusim_site site)
{
    uses(offsets.tainted() & bytes_of<int32_t>(static_cast<uint32_t>(mask)), site);
    for (int i = 0; i < 16; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        char *at = static_cast<char *>(base) + offsets.v[i];
        const L value = a.v[i];
#ifdef XPUSIM_CHECKED
        xpusim_vector_store(at, 4, space, a.tainted() >> (4 * i) & 15, 15, site);
        for (int b = 0; b < 4; b++)
            byte_to(at + b, static_cast<uint8_t>(bits_as<uint32_t>(value) >> (8 * b)));
#else
        __builtin_memcpy(at, &value, sizeof value);
#endif
    }
    (void)space;
}

/* ---- Arithmetic: in the lanes' own type if it rounds to nearest, otherwise from the exact result. ---- */

struct add {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a + b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return sum_to_odd(a, b); }
};
struct sub {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a - b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return sum_to_odd(a, -b); }
};
struct mul {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a * b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return a * b; } /* a product of 2 x 24 bits fits */
};
struct max {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a > b ? a : b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return a > b ? a : b; }
};
struct min {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a < b ? a : b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return a < b ? a : b; }
};

template <class L>
constexpr bool narrow_float = false;
template <>
constexpr bool narrow_float<fp16> = true;
template <>
constexpr bool narrow_float<bf16> = true;

template <class L>
XPUSIM_INLINE double value_of(lane_type<L> stored)
{
    if constexpr (narrow_float<L>)
        return widen<L>(stored);
    else
        return stored;
}

template <class L>
XPUSIM_INLINE lane_type<L> round_to(double exact, round mode)
{
    if constexpr (narrow_float<L>)
        return narrow<L>(exact, mode);
    else
        return to_float(exact, mode);
}

template <class Op, class L>
XPUSIM_INLINE vector<L> compute(const vector<L> &a, const vector<L> &b, round mode = round::rn)
{
    vector<L> r(raw_of<L>{}, whole_lanes<L>(a.tainted() | b.tainted()));
    if constexpr (std::is_integral_v<L>) {
        r.v = Op::direct(a.v, b.v);
    } else {
        if (!narrow_float<L> && mode == round::rn) {
            if constexpr (!narrow_float<L>)
                r.v = Op::direct(a.v, b.v);
        } else {
            for (int i = 0; i < vector<L>::lanes; i++)
                r.v[i] = round_to<L>(Op::exact(value_of<L>(a.v[i]), value_of<L>(b.v[i])), mode);
        }
    }
    return r;
}

/* a b + c, rounded once. */
template <class L>
XPUSIM_INLINE vector<L> multiply_accumulate(
    const vector<L> &a, const vector<L> &b, const vector<L> &c, round mode = round::rn)
{
    vector<L> r(raw_of<L>{}, whole_lanes<L>(a.tainted() | b.tainted() | c.tainted()));
    if constexpr (std::is_integral_v<L>)
        r.v = a.v * b.v + c.v;
    else
        for (int i = 0; i < vector<L>::lanes; i++)
            r.v[i] = round_to<L>(sum_to_odd(value_of<L>(a.v[i]) * value_of<L>(b.v[i]), value_of<L>(c.v[i])), mode);
    return r;
}

struct bit_and {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a & b; }
};
struct bit_or {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a | b; }
};
struct bit_xor {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a ^ b; }
};
struct bit_xnor {
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return ~(a ^ b); }
};

template <class Op, class L>
XPUSIM_INLINE vector<L> bitwise(const vector<L> &a, const vector<L> &b)
{
    using W = typename raw<uint32_t>::type;
    return { reinterpret_cast<raw_of<L>>(Op::direct(reinterpret_cast<W>(a.v), reinterpret_cast<W>(b.v))),
        a.tainted() | b.tainted() };
}

/* ---- Comparisons. They use the lanes of the mask. ---- */

struct lt {
    template <class T>
    static XPUSIM_MEMBER auto direct(T a, T b)
    { return a < b; }
};
struct gt {
    template <class T>
    static XPUSIM_MEMBER auto direct(T a, T b)
    { return a > b; }
};
struct le {
    template <class T>
    static XPUSIM_MEMBER auto direct(T a, T b)
    { return a <= b; }
};
struct eq {
    template <class T>
    static XPUSIM_MEMBER auto direct(T a, T b)
    { return a == b; }
};
struct neq {
    template <class T>
    static XPUSIM_MEMBER auto direct(T a, T b)
    { return a != b; }
};

template <class Op, class L>
XPUSIM_INLINE auto lanes_where(const vector<L> &a, const vector<L> &b)
{
    if constexpr (narrow_float<L>) {
        typename raw<int16_t>::type r{};
        for (int i = 0; i < 32; i++)
            r[i] = Op::direct(widen<L>(a.v[i]), widen<L>(b.v[i])) ? -1 : 0;
        return r;
    } else {
        return Op::direct(a.v, b.v);
    }
}

template <class Op, class L>
XPUSIM_INLINE int compare(const vector<L> &a, const vector<L> &b, int mask, int hold, xpusim_site site)
{
    uses((a.tainted() | b.tainted()) & bytes_of<L>(static_cast<uint32_t>(mask)), site);
    return (bits_of(lanes_where<Op>(a, b)) & mask) | (hold & ~mask & (vector<L>::lanes == 16 ? 0xffff : -1));
}

/* 1 in lanes where the comparison holds, else 0, in the lanes' type. */
template <class Op, class L>
XPUSIM_INLINE vector<L> ones_where(const vector<L> &a, const vector<L> &b)
{
    vector<L> one(raw_of<L>{}, NONE);
    if constexpr (narrow_float<L>)
        one = vector<L>(narrow<L>(1.0));
    else
        one = vector<L>(static_cast<lane_type<L>>(1));
    return { lanes_where<Op>(a, b) ? one.v : raw_of<L>{}, whole_lanes<L>(a.tainted() | b.tainted()) };
}

/* ---- Permutations of lanes. ---- */

/* Lane i of the result is lane `from(i)` of a, or of b where that is beyond a's lanes. */
template <class L, class From>
XPUSIM_INLINE vector<L> rearrange(const vector<L> &a, const vector<L> &b, From from)
{
    constexpr int n = vector<L>::lanes, size = 64 / n;
    vector<L> r(raw_of<L>{}, NONE);
    uint64_t unwritten = 0;
    for (int i = 0; i < n; i++) {
        const int at = from(i);
        r.v[i] = at < n ? a.v[at] : b.v[at - n];
        unwritten |= ((at < n ? a.tainted() >> at * size : b.tainted() >> (at - n) * size) & ((1u << size) - 1))
            << i * size;
    }
    r.taint(unwritten);
    return r;
}

/* The lanes of the low (0) or high (1) halves of a and b, alternately. */
template <class L>
XPUSIM_INLINE vector<L> merge(const vector<L> &a, const vector<L> &b, int half)
{
    constexpr int n = vector<L>::lanes;
    return rearrange(a, b, [half](int i) __attribute__((always_inline)) { return half * (n / 2) + i / 2 + i % 2 * n; });
}

template <class L>
XPUSIM_INLINE vector<L> swap_neighbours(const vector<L> &a)
{
    return rearrange(a, a, [](int i) __attribute__((always_inline)) { return i ^ 1; });
}

template <class L>
XPUSIM_INLINE lane_type<L> extract(const vector<L> &a, int mask, xpusim_site site)
{
    const uint32_t on = static_cast<uint32_t>(mask) & (vector<L>::lanes == 16 ? 0xffffu : 0xffffffffu);
    if (__builtin_popcount(on) != 1)
        xpusim_raise(XPUSIM_CORE_TRAP, "vextract: the mask has to have one bit, the lane's", site);
    uses(a.tainted() & bytes_of<L>(on), site);
    return a.v[__builtin_ctz(on)];
}

template <class L>
XPUSIM_INLINE lane_type<L> greatest(const vector<L> &a, xpusim_site site)
{
    uses(a.tainted(), site);
    lane_type<L> best = a.v[0];
    for (int i = 1; i < vector<L>::lanes; i++)
        best = value_of<L>(a.v[i]) > value_of<L>(best) ? a.v[i] : best;
    return best;
}

/* ---- Conversions between float lanes and half a vector of 16-bit lanes. ---- */

/* Convert masks of bytes of a float vector to masks of bytes of 16-bit lanes, and back, lane by lane. */
XPUSIM_INLINE uint64_t halve_taint(uint64_t bytes)
{
    uint64_t r = 0;
    for (int i = 0; i < 16; i++)
        r |= (bytes >> (4 * i) & 15) != 0 ? uint64_t{ 3 } << (2 * i) : 0;
    return r;
}
XPUSIM_INLINE uint64_t double_taint(uint64_t bytes)
{
    uint64_t r = 0;
    for (int i = 0; i < 16; i++)
        r |= (bytes >> (2 * i) & 3) != 0 ? uint64_t{ 15 } << (4 * i) : 0;
    return r;
}

template <class F, class L>
XPUSIM_INLINE vector<float> widen_half(const vector<L> &a, int half)
{
    vector<float> r(raw_of<float>{}, NONE);
    for (int i = 0; i < 16; i++)
        r.v[i] = widen<F>(static_cast<uint16_t>(a.v[16 * half + i]));
    r.taint(double_taint(a.tainted() >> (32 * half)));
    return r;
}

/* `into`, with half of its lanes converted from a's. */
template <class F, class L>
XPUSIM_INLINE vector<L> narrow_half(const vector<float> &a, const vector<L> &into, int half, round mode)
{
    vector<L> r = into;
    for (int i = 0; i < 16; i++)
        r.v[16 * half + i] = narrow<F>(a.v[i], mode);
    r.taint((into.tainted() & ~(uint64_t{ 0xffffffff } << (32 * half))) | halve_taint(a.tainted()) << (32 * half));
    return r;
}

} // namespace xpusim
#endif
