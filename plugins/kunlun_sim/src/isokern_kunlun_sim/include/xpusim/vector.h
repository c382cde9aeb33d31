/* The vectors of the SIMD unit: 512 bits, on top of the compiler's vector extension. In checked kernels a vector also
 * tracks which of its bytes come from memory that nobody has written: they may travel, and are reported where a result
 * depends on them. */
#ifndef XPUSIM_VECTOR_H
#define XPUSIM_VECTOR_H
#include <initializer_list>
#include <type_traits>

#include "device.h"
#include "fused.h"
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

/* The 64 bytes of a vector of T, and what is done to each element of them.
 *
 * In checked kernels they are one vector of the compiler's, which it keeps apart from memory. In fast kernels they are
 * four of 16 bytes, because the compiler turns comparisons and selections of vectors that are larger than the machine's
 * into code for one element after the other. */
#ifdef XPUSIM_CHECKED
template <class T>
struct raw {
    typedef T type __attribute__((vector_size(64)));
};

template <class F, class... A>
XPUSIM_INLINE auto each(F f, const A &...a)
{ return f(a...); }

template <class To, class From>
XPUSIM_INLINE To recast(const From &from)
{ return reinterpret_cast<To>(from); }
#else
template <class T>
struct quarters {
    typedef T quarter __attribute__((vector_size(16)));
    quarter q[4];
    static constexpr int size = 16 / static_cast<int>(sizeof(T));
    XPUSIM_MEMBER T operator[](int i) const { return q[i / size][i % size]; }
};
template <class T>
struct raw {
    using type = quarters<T>;
};

/* Apply a function of the compiler's vectors to all elements. */
template <class F, class... A>
XPUSIM_INLINE auto each(F f, const A &...a)
{
    using T = std::remove_cv_t<std::remove_reference_t<decltype(f(a.q[0]...)[0])>>;
    return quarters<T>{ { f(a.q[0]...), f(a.q[1]...), f(a.q[2]...), f(a.q[3]...) } };
}

template <class To, class From>
XPUSIM_INLINE To recast(const quarters<From> &from)
{
    using Q = typename To::quarter;
    return To{ { reinterpret_cast<Q>(from.q[0]), reinterpret_cast<Q>(from.q[1]), reinterpret_cast<Q>(from.q[2]),
        reinterpret_cast<Q>(from.q[3]) } };
}
#endif
template <class L>
using raw_of = typename raw<lane_type<L>>::type;

/* The type of the lanes of a comparison. */
template <class L>
using mask_type = std::conditional_t<sizeof(lane_type<L>) == 4, int32_t, int16_t>;

/* A vector of 64 bytes of the compiler's as what it is here. */
template <class T, class V>
XPUSIM_INLINE typename raw<T>::type of_whole(const V &whole)
{
    typename raw<T>::type v;
    __builtin_memcpy(&v, &whole, 64);
    return v;
}

/* The same value in all elements. */
template <class R, class T>
XPUSIM_INLINE R fill(T value)
{
    return each([value](auto none) __attribute__((always_inline)) { return value - none; }, R{});
}

constexpr uint64_t NONE = 0, ALL = ~uint64_t{ 0 };

/* The lanes of a vector one by one. In fast kernels they are an array, because the compiler vectorises loops over
 * arrays; in checked kernels they stay a vector, because accesses of arrays are instrumented. */
template <class L>
struct lane_array {
#ifdef XPUSIM_CHECKED
    raw_of<L> x;
    XPUSIM_MEMBER explicit lane_array(raw_of<L> v = raw_of<L>{}) : x(v) {}
    XPUSIM_MEMBER raw_of<L> raw() const { return x; }
#else
    lane_type<L> x[64 / sizeof(lane_type<L>)];
    XPUSIM_MEMBER lane_array() = default;
    XPUSIM_MEMBER explicit lane_array(raw_of<L> v) { __builtin_memcpy(x, &v, 64); }
    XPUSIM_MEMBER raw_of<L> raw() const
    {
        raw_of<L> v;
        __builtin_memcpy(&v, x, 64);
        return v;
    }
#endif
};

template <class L>
struct alignas(64) vector {
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
    /* The first lanes; the others are 0. */
    XPUSIM_MEMBER vector(std::initializer_list<stored> first) : v(raw_of<L>{})
    {
        lane_array<L> r(v);
        int i = 0;
        for (const stored value : first)
            r.x[i++] = value;
        v = r.raw();
        taint(NONE);
    }
    /* Sets every lane to the same value. */
    XPUSIM_MEMBER explicit vector(stored value) : v(fill<raw_of<L>>(value)) { taint(NONE); }
};

template <class L>
constexpr bool is_vector<vector<L>> = true;

template <class V>
struct lanes_in;
template <class L>
struct lanes_in<vector<L>> {
    using type = L;
};
template <class V>
using lane_of = typename lanes_in<V>::type;

/* In lane i the bit i, of the 16 or twice 16 bits of a mask. */
template <class T>
XPUSIM_INLINE auto own_bits()
{
    if constexpr (sizeof(T) == 4) {
        typedef T V __attribute__((vector_size(64)));
        return of_whole<T>(V{ 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768 });
    } else {
        typedef T V __attribute__((vector_size(64)));
        constexpr T top = static_cast<T>(0x8000);
        return of_whole<T>(V{ 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, top, 1, 2, 4, 8, 16,
            32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, top });
    }
}

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
{ return To(recast<decltype(To::v)>(a.v), a.tainted()); }

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
    const auto own = [](auto word, auto bit) __attribute__((always_inline)) { return (word & bit) == bit; };
    if constexpr (vector<L>::lanes == 16) {
        return each(own, fill<raw<int32_t>::type>(static_cast<int32_t>(mask)), own_bits<int32_t>());
    } else {
        lane_array<int16_t> word;
        for (int i = 0; i < 32; i++)
            word.x[i] = static_cast<int16_t>(i < 16 ? mask : mask >> 16);
        return each(own, word.raw(), own_bits<int16_t>());
    }
}

/* The lanes of a comparison (all bits or none) as the bits of an int. */
template <class T>
XPUSIM_INLINE int bits_of(const typename raw<T>::type &all)
{
#ifdef XPUSIM_CHECKED
    uint32_t mask = 0;
    for (int i = 0; i < vector<T>::lanes; i++)
        mask |= static_cast<uint32_t>(all[i] & 1) << i;
    return static_cast<int>(mask);
#else
    /* Each lane keeps its own bit, and the bits are joined. */
    const auto own = recast<raw<int64_t>::type>(
        each([](auto a, auto bit) __attribute__((always_inline)) { return a & bit; }, all, own_bits<T>()));
    const auto low = own.q[0] | own.q[1], high = own.q[2] | own.q[3];
    if constexpr (sizeof(T) == 4) {
        const uint64_t bits = static_cast<uint64_t>(low[0] | low[1] | high[0] | high[1]);
        return static_cast<int>(bits | bits >> 32);
    } else {
        uint64_t l = static_cast<uint64_t>(low[0] | low[1]), h = static_cast<uint64_t>(high[0] | high[1]);
        l |= l >> 32, h |= h >> 32;
        l |= l >> 16, h |= h >> 16;
        return static_cast<int>(static_cast<uint32_t>((l & 0xffff) | h << 16));
    }
#endif
}

/* Elements of `a` where all bits of `where` are set, else of `b`. */
template <class W, class R>
XPUSIM_INLINE R select(const W &where, const R &a, const R &b)
{
    return each([](auto w, auto x, auto y) __attribute__((always_inline)) { return w ? x : y; }, where, a, b);
}

/* Lanes of `a` where the mask has a bit, else lanes of `hold`. */
template <class L>
XPUSIM_INLINE vector<L> blend(const vector<L> &a, const vector<L> &hold, int mask)
{
    vector<L> r(select(lanes_of<L>(static_cast<uint32_t>(mask)), a.v, hold.v), NONE);
#ifdef XPUSIM_CHECKED
    const uint64_t on = bytes_of<L>(static_cast<uint32_t>(mask));
    r.taint((a.tainted() & on) | (hold.tainted() & ~on));
#endif
    return r;
}

template <class L>
XPUSIM_INLINE vector<L> zero_masked(const vector<L> &a, int mask)
{ return blend(a, zero<vector<L>>(), mask); }

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
    return { *static_cast<const raw_of<L> *>(p), NONE };
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
    raw_of<L> &to = *static_cast<raw_of<L> *>(p);
    to = enabled == -1 ? a.v : select(lanes_of<L>(static_cast<uint32_t>(enabled)), a.v, to);
#endif
}

/* Load lanes from base + offset in bytes, aligned to a lane; lanes that the mask lacks are those of `hold`. */
template <class L>
XPUSIM_INLINE vector<L> gather(
    const void *base, const vector<int32_t> &offsets, int mask, const vector<L> &hold, int space, xpusim_site site)
{
    lane_array<L> r(hold.v);
    const lane_array<int32_t> at_byte(offsets.v);
    uint64_t unwritten = hold.tainted() & ~bytes_of<L>(static_cast<uint32_t>(mask));
    uses(offsets.tainted() & bytes_of<int32_t>(static_cast<uint32_t>(mask)), site);
    for (int i = 0; i < 16; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        const char *at = static_cast<const char *>(base) + at_byte.x[i];
#ifdef XPUSIM_CHECKED
        unwritten |= (xpusim_vector_load(at, 4, space, site) & 15) << (4 * i);
        r.x[i] = bits_as<L>(word_at(at));
#else
        L value;
        __builtin_memcpy(&value, at, sizeof value);
        r.x[i] = value;
#endif
    }
    (void)space;
    return { r.raw(), unwritten };
}

template <class L>
XPUSIM_INLINE void scatter(
    void *base, const vector<L> &a, const vector<int32_t> &offsets, int mask, int space, xpusim_site site)
{
    const lane_array<L> given(a.v);
    const lane_array<int32_t> at_byte(offsets.v);
    uses(offsets.tainted() & bytes_of<int32_t>(static_cast<uint32_t>(mask)), site);
    for (int i = 0; i < 16; i++) {
        if ((mask >> i & 1) == 0)
            continue;
        char *at = static_cast<char *>(base) + at_byte.x[i];
        const L value = given.x[i];
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
    static constexpr bool chooses = false;
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a + b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return sum_to_odd(a, b); }
};
struct sub {
    static constexpr bool chooses = false;
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a - b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return sum_to_odd(a, -b); }
};
struct mul {
    static constexpr bool chooses = false;
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a * b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return a * b; } /* a product of 2 x 24 bits fits */
};
struct max {
    static constexpr bool chooses = true; /* the result is an operand */
    template <class T>
    static XPUSIM_MEMBER T direct(T a, T b)
    { return a > b ? a : b; }
    static XPUSIM_MEMBER double exact(double a, double b) { return a > b ? a : b; }
};
struct min {
    static constexpr bool chooses = true; /* the result is an operand */
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
    const uint64_t unwritten = whole_lanes<L>(a.tainted() | b.tainted());
    if constexpr (!narrow_float<L>)
        if (std::is_integral_v<L> || mode == round::rn)
            return { each([](auto x, auto y) __attribute__((always_inline)) { return Op::direct(x, y); }, a.v, b.v),
                unwritten };
    if constexpr (!std::is_integral_v<L>) {
        const lane_array<L> x(a.v), y(b.v);
        lane_array<L> r;
        for (int i = 0; i < vector<L>::lanes; i++)
            r.x[i] = round_to<L>(Op::exact(value_of<L>(x.x[i]), value_of<L>(y.x[i])), mode);
        return { r.raw(), unwritten };
    }
    __builtin_unreachable();
}

#ifndef XPUSIM_CHECKED
typedef double two_doubles __attribute__((vector_size(16)));
typedef double four_doubles __attribute__((vector_size(32)));
typedef int32_t int_quarter __attribute__((vector_size(16)));
typedef int64_t long_quarter __attribute__((vector_size(16)));
struct double_quarter {
    two_doubles d[2];
};

XPUSIM_INLINE double_quarter to_double(const float_quarter &a)
{ return __builtin_bit_cast(double_quarter, __builtin_convertvector(a, four_doubles)); }

XPUSIM_INLINE bool any(const int_quarter &lanes)
{
    const auto both = reinterpret_cast<long_quarter>(lanes);
    return (both[0] | both[1]) != 0;
}

/* Lanes where the sum lies in the middle between two normal floats: its low 29 bits are 0x10000000. */
XPUSIM_INLINE int_quarter in_the_middle(const two_doubles &sum)
{
    const int_quarter low = { 0x1fffffff, 0, 0x1fffffff, 0 }, middle = { 0x10000000, -1, 0x10000000, -1 };
    return (reinterpret_cast<int_quarter>(sum) & low) == middle;
}

/* a b + c in double, rounded to float. That is a b + c rounded once unless the sum lies in the middle between two
 * floats, where what it lost decides. Returns false where any lane may be such. */
XPUSIM_INLINE bool accumulate_in_double(
    const raw_of<float> &a, const raw_of<float> &b, const raw_of<float> &c, raw_of<float> &r)
{
    double_quarter sums[4];
    int_quarter doubtful{};
    for (int k = 0; k < 4; k++) {
        const double_quarter x = to_double(a.q[k]), y = to_double(b.q[k]), z = to_double(c.q[k]);
        const double_quarter sum = { { x.d[0] * y.d[0] + z.d[0], x.d[1] * y.d[1] + z.d[1] } };
        r.q[k] = __builtin_convertvector(__builtin_bit_cast(four_doubles, sum), float_quarter);
        doubtful |= in_the_middle(sum.d[0]) | in_the_middle(sum.d[1]);
        doubtful |= (reinterpret_cast<int_quarter>(r.q[k]) & 0x7fffffff) < 0x00800000; /* less than a normal float */
        sums[k] = sum;
    }
    if (__builtin_expect(!any(doubtful), 1))
        return true;
    doubtful = int_quarter{};
    for (int k = 0; k < 8; k++) {
        const two_doubles sum = sums[k / 2].d[k % 2];
        const auto tiny = (sum < 0x1p-126) & (sum > -0x1p-126) & (sum != 0);
        doubtful |= in_the_middle(sum) | reinterpret_cast<int_quarter>(tiny);
    }
    return !any(doubtful);
}
#endif

/* a b + c, rounded once. */
template <class L>
XPUSIM_INLINE vector<L> multiply_accumulate(
    const vector<L> &a, const vector<L> &b, const vector<L> &c, round mode = round::rn)
{
    const uint64_t unwritten = whole_lanes<L>(a.tainted() | b.tainted() | c.tainted());
    if constexpr (std::is_integral_v<L>) {
        return { each([](auto x, auto y, auto z) __attribute__((always_inline)) { return x * y + z; }, a.v, b.v, c.v),
            unwritten };
    } else {
#ifndef XPUSIM_CHECKED
        if constexpr (std::is_same_v<L, float>) {
            if (mode == round::rn && has_fused)
                return { each(fused, a.v, b.v, c.v), unwritten };
            raw_of<L> r;
            if (mode == round::rn && accumulate_in_double(a.v, b.v, c.v, r))
                return { r, unwritten };
        }
#endif
        const lane_array<L> x(a.v), y(b.v), z(c.v);
        lane_array<L> r;
        for (int i = 0; i < vector<L>::lanes; i++)
            r.x[i] = round_to<L>(sum_to_odd(value_of<L>(x.x[i]) * value_of<L>(y.x[i]), value_of<L>(z.x[i])), mode);
        return { r.raw(), unwritten };
    }
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
    const W bits = each(
        [](auto x, auto y) __attribute__((always_inline)) { return Op::direct(x, y); }, recast<W>(a.v), recast<W>(b.v));
    return { recast<raw_of<L>>(bits), a.tainted() | b.tainted() };
}

template <class L, class F>
XPUSIM_INLINE vector<L> shift_lanes(const vector<L> &a, F shift)
{ return { each(shift, a.v), whole_lanes<L>(a.tainted()) }; }

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
        const lane_array<L> x(a.v), y(b.v);
        lane_array<int16_t> r;
        for (int i = 0; i < 32; i++)
            r.x[i] = Op::direct(widen<L>(x.x[i]), widen<L>(y.x[i])) ? -1 : 0;
        return r.raw();
    } else {
        return each([](auto x, auto y) __attribute__((always_inline)) { return Op::direct(x, y); }, a.v, b.v);
    }
}

template <class Op, class L>
XPUSIM_INLINE int compare(const vector<L> &a, const vector<L> &b, int mask, int hold, xpusim_site site)
{
    uses((a.tainted() | b.tainted()) & bytes_of<L>(static_cast<uint32_t>(mask)), site);
    return (bits_of<mask_type<L>>(lanes_where<Op>(a, b)) & mask)
        | (hold & ~mask & (vector<L>::lanes == 16 ? 0xffff : -1));
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
    return { select(lanes_where<Op>(a, b), one.v, raw_of<L>{}), whole_lanes<L>(a.tainted() | b.tainted()) };
}

/* ---- Permutations of lanes. ---- */

/* Lane i of the result is lane `from(i)` of a, or of b where that is beyond a's lanes. */
template <class L, class From>
XPUSIM_INLINE vector<L> rearrange(const vector<L> &a, const vector<L> &b, From from)
{
    constexpr int n = vector<L>::lanes, size = 64 / n;
    const lane_array<L> x(a.v), y(b.v);
    lane_array<L> r;
    uint64_t unwritten = 0;
    for (int i = 0; i < n; i++) {
        const int at = from(i);
        r.x[i] = at < n ? x.x[at] : y.x[at - n];
        unwritten |= ((at < n ? a.tainted() >> at * size : b.tainted() >> (at - n) * size) & ((1u << size) - 1))
            << i * size;
    }
    return { r.raw(), unwritten };
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

/* Lane i of the result is lane i + by of a, or 0 beyond the last. */
template <class L>
XPUSIM_INLINE vector<L> shift_down(const vector<L> &a, int by)
{
    return rearrange(a, zero<vector<L>>(), [by](int i) __attribute__((always_inline)) { return i + by; });
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

#ifndef XPUSIM_CHECKED
/* The floats of four 16-bit floats; what from_narrow does, without branches. */
template <class F>
XPUSIM_INLINE float_quarter widen_quarter(int_quarter bits)
{
    if constexpr (std::is_same_v<F, bf16>)
        return reinterpret_cast<float_quarter>(bits << 16);
    const int_quarter magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
    const auto scaled = reinterpret_cast<float_quarter>(magnitude << 13) * 0x1p112f;
    const int_quarter finite = reinterpret_cast<int_quarter>(scaled), other = magnitude << 13 | 0x7f800000;
    return reinterpret_cast<float_quarter>(sign | (magnitude >= 0x7c00 ? other : finite));
}

/* The 16-bit floats nearest to four floats, which are given by their bits, or for bfloat16 the next ones towards zero;
 * what to_narrow does, without branches. */
template <class F>
XPUSIM_INLINE int_quarter narrow_quarter(int_quarter bits, bool truncate)
{
    constexpr int drop = 23 - F::P; /* bits of the significand */
    const int_quarter magnitude = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    const int_quarter odd = (magnitude >> drop) & 1, payload = (magnitude >> drop) & ((1 << F::P) - 1);
    const int_quarter nan = payload | ((2 * F::B + 1) << F::P | 1 << (F::P - 1));
    int_quarter r =
        (magnitude + (truncate ? int_quarter{} : odd + ((1 << (drop - 1)) - 1)) - ((127 - F::B) << 23)) >> drop;
    if constexpr (std::is_same_v<F, fp16>) {
        /* The last place of 0.5 is that of the least half-precision numbers. */
        const auto small =
            reinterpret_cast<int_quarter>(reinterpret_cast<float_quarter>(magnitude) + 0.5f) - 0x3f000000;
        r = magnitude < 0x38800000 ? small : r; /* 2^-14, the least normal number */
        r = magnitude >= 0x47800000 ? int_quarter{} + 0x7c00 : r; /* 2^16 and more: infinity */
    }
    return sign | (magnitude > 0x7f800000 ? nan : r);
}
#endif

XPUSIM_INLINE vector<float> nearest_float(const vector<int32_t> &a)
{
    const lane_array<int32_t> x(a.v);
    lane_array<float> r;
    for (int i = 0; i < 16; i++)
        r.x[i] = static_cast<float>(x.x[i]);
    return { r.raw(), whole_lanes<float>(a.tainted()) };
}

/* `into`, with a quarter of its bytes converted from a's floats: to nearest even, and to the end of the range beyond
 * it, which public sources do not need. */
XPUSIM_INLINE vector<int8_t> narrow_quarter_to_bytes(const vector<float> &a, const vector<int8_t> &into, int quarter)
{
    const lane_array<float> x(a.v);
    lane_array<int8_t> r(into.v);
    uint64_t unwritten = into.tainted() & ~(uint64_t{ 0xffff } << (16 * quarter));
    for (int i = 0; i < 16; i++) {
        const float value = __builtin_rintf(x.x[i]);
        r.x[16 * quarter + i] = static_cast<int8_t>(value < 127 ? value > -128 ? value : -128 : 127);
        unwritten |= uint64_t{ (a.tainted() >> (4 * i) & 15) != 0 } << (16 * quarter + i);
    }
    return { r.raw(), unwritten };
}

template <class F, class L>
XPUSIM_INLINE vector<float> widen_half(const vector<L> &a, int half)
{
    const lane_array<L> x(a.v);
    const uint64_t unwritten = double_taint(a.tainted() >> (32 * half));
#ifdef XPUSIM_CHECKED
    lane_array<float> r;
    for (int i = 0; i < 16; i++)
        r.x[i] = widen<F>(static_cast<uint16_t>(x.x[16 * half + i]));
    return { r.raw(), unwritten };
#else
    lane_array<int32_t> bits;
    for (int i = 0; i < 16; i++)
        bits.x[i] = static_cast<uint16_t>(x.x[16 * half + i]);
    return { each([](auto b) __attribute__((always_inline)) { return widen_quarter<F>(b); }, bits.raw()), unwritten };
#endif
}

/* `into`, with half of its lanes converted from a's. */
template <class F, class L>
XPUSIM_INLINE vector<L> narrow_half(const vector<float> &a, const vector<L> &into, int half, round mode)
{
    lane_array<L> r(into.v);
    const uint64_t unwritten =
        (into.tainted() & ~(uint64_t{ 0xffffffff } << (32 * half))) | halve_taint(a.tainted()) << (32 * half);
#ifndef XPUSIM_CHECKED
    if (mode == round::rn || (std::is_same_v<F, bf16> && mode == round::rz)) {
        const lane_array<int32_t> bits(
            each([mode](auto x) __attribute__((
                     always_inline)) { return narrow_quarter<F>(reinterpret_cast<int_quarter>(x), mode == round::rz); },
                a.v));
        for (int i = 0; i < 16; i++)
            r.x[16 * half + i] = static_cast<lane_type<L>>(bits.x[i]);
        return { r.raw(), unwritten };
    }
#endif
    const lane_array<float> x(a.v);
    for (int i = 0; i < 16; i++)
        r.x[16 * half + i] = narrow<F>(x.x[i], mode);
    return { r.raw(), unwritten };
}

} // namespace xpusim
#endif
