/* CUDA's vector types (CUDA C++ Programming Guide, "Built-in Vector Types"). A vector of 2, 4, 8 or 16 bytes is copied
 * by one load and one store, as on the GPU, so that the checks see one access. */
#ifndef ISOKERN_CUDA_VECTORS_H
#define ISOKERN_CUDA_VECTORS_H

namespace cuda_emulator
{

/* An integer or vector of so many bytes, through which an object of another type may be copied. */
template <int BYTES>
struct whole;
template <>
struct whole<2> {
    typedef unsigned short __attribute__((may_alias)) type;
};
template <>
struct whole<4> {
    typedef unsigned __attribute__((may_alias)) type;
};
template <>
struct whole<8> {
    typedef unsigned long long __attribute__((may_alias)) type;
};
template <>
struct whole<16> {
    typedef int __attribute__((vector_size(16), may_alias)) type;
};

} // namespace cuda_emulator

#define CUDA_EMULATOR_COPIES(name) \
    name() = default; \
    name(const name &other) : whole(other.whole) {} \
    name &operator=(const name &other) \
    { \
        whole = other.whole; \
        return *this; \
    }
#define CUDA_EMULATOR_VECTORS(base, T) \
    struct base##1 { T x; }; \
    struct alignas(2 * sizeof(T)) base##2 \
    { \
        union { \
            struct { \
                T x, y; \
            }; \
            cuda_emulator::whole<2 * sizeof(T)>::type whole; \
        }; \
        CUDA_EMULATOR_COPIES(base##2) \
        base##2(T x, T y = {}) : x(x), y(y) {} \
    }; \
    struct base##3 { T x, y, z; }; \
    static inline base##1 make_##base##1(T x) { return { x }; } \
    static inline base##2 make_##base##2(T x, T y) { return { x, y }; } \
    static inline base##3 make_##base##3(T x, T y, T z) { return { x, y, z }; }
#define CUDA_EMULATOR_VECTORS_OF_FOUR(base, T) \
    struct alignas(4 * sizeof(T)) base##4 \
    { \
        union { \
            struct { \
                T x, y, z, w; \
            }; \
            cuda_emulator::whole<4 * sizeof(T)>::type whole; \
        }; \
        CUDA_EMULATOR_COPIES(base##4) \
        base##4(T x, T y = {}, T z = {}, T w = {}) : x(x), y(y), z(z), w(w) {} \
    }; \
    static inline base##4 make_##base##4(T x, T y, T z, T w) { return { x, y, z, w }; }
/* The GPU moves these by two instructions. */
#define CUDA_EMULATOR_VECTORS_OF_32_BYTES(base, T) \
    struct alignas(16) base##4 { T x, y, z, w; }; \
    static inline base##4 make_##base##4(T x, T y, T z, T w) { return { x, y, z, w }; }

CUDA_EMULATOR_VECTORS(char, signed char)
CUDA_EMULATOR_VECTORS(uchar, unsigned char)
CUDA_EMULATOR_VECTORS(short, short)
CUDA_EMULATOR_VECTORS(ushort, unsigned short)
CUDA_EMULATOR_VECTORS(int, int)
CUDA_EMULATOR_VECTORS(uint, unsigned)
CUDA_EMULATOR_VECTORS(float, float)
CUDA_EMULATOR_VECTORS(long, long)
CUDA_EMULATOR_VECTORS(ulong, unsigned long)
CUDA_EMULATOR_VECTORS(longlong, long long)
CUDA_EMULATOR_VECTORS(ulonglong, unsigned long long)
CUDA_EMULATOR_VECTORS(double, double)
CUDA_EMULATOR_VECTORS_OF_FOUR(char, signed char)
CUDA_EMULATOR_VECTORS_OF_FOUR(uchar, unsigned char)
CUDA_EMULATOR_VECTORS_OF_FOUR(short, short)
CUDA_EMULATOR_VECTORS_OF_FOUR(ushort, unsigned short)
CUDA_EMULATOR_VECTORS_OF_FOUR(int, int)
CUDA_EMULATOR_VECTORS_OF_FOUR(uint, unsigned)
CUDA_EMULATOR_VECTORS_OF_FOUR(float, float)
CUDA_EMULATOR_VECTORS_OF_32_BYTES(long, long)
CUDA_EMULATOR_VECTORS_OF_32_BYTES(ulong, unsigned long)
CUDA_EMULATOR_VECTORS_OF_32_BYTES(longlong, long long)
CUDA_EMULATOR_VECTORS_OF_32_BYTES(ulonglong, unsigned long long)
CUDA_EMULATOR_VECTORS_OF_32_BYTES(double, double)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
#endif
