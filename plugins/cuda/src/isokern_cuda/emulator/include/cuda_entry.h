/* The entry of a program that launches one kernel of any signature: `isokern-gpu` compiles this after the author's
 * file. */
#ifndef ISOKERN_CUDA_ENTRY_H
#define ISOKERN_CUDA_ENTRY_H
#include "cuda_runtime.h"

/* Run the kernel as the file argv[1] says. `types` are the kernel's parameters: a kind (f and h and b: float, half,
 * bfloat16; i, u; ? for anything else) with the size in bytes, behind a p for pointers. */
extern "C" int cuda_emulator_main(char **argv, const char *const *types, int count, void (*call)(void *values));

namespace cuda_emulator
{

template <class T>
struct kind {
    static constexpr const char *value = "?", *pointer = "p?";
};
#define CUDA_EMULATOR_KIND(T, text) \
    template <> \
    struct kind<T> { \
        static constexpr const char *value = text, *pointer = "p" text; \
    };
#define CUDA_EMULATOR_VECTOR_KIND(T, text) \
    CUDA_EMULATOR_KIND(T##1, "?" text) \
    CUDA_EMULATOR_KIND(T##2, "?" text) CUDA_EMULATOR_KIND(T##3, "?" text) CUDA_EMULATOR_KIND(T##4, "?" text)
CUDA_EMULATOR_KIND(bool, "u1")
CUDA_EMULATOR_KIND(char, "i1")
CUDA_EMULATOR_KIND(signed char, "i1")
CUDA_EMULATOR_KIND(unsigned char, "u1")
CUDA_EMULATOR_KIND(short, "i2")
CUDA_EMULATOR_KIND(unsigned short, "u2")
CUDA_EMULATOR_KIND(int, "i4")
CUDA_EMULATOR_KIND(unsigned, "u4")
CUDA_EMULATOR_KIND(long, "i8")
CUDA_EMULATOR_KIND(unsigned long, "u8")
CUDA_EMULATOR_KIND(long long, "i8")
CUDA_EMULATOR_KIND(unsigned long long, "u8")
CUDA_EMULATOR_KIND(float, "f4")
CUDA_EMULATOR_KIND(double, "f8")
CUDA_EMULATOR_KIND(__half, "h2")
CUDA_EMULATOR_KIND(__nv_bfloat16, "b2")
CUDA_EMULATOR_KIND(__half2, "?h2")
CUDA_EMULATOR_KIND(__nv_bfloat162, "?b2")
CUDA_EMULATOR_VECTOR_KIND(char, "i1")
CUDA_EMULATOR_VECTOR_KIND(uchar, "u1")
CUDA_EMULATOR_VECTOR_KIND(short, "i2")
CUDA_EMULATOR_VECTOR_KIND(ushort, "u2")
CUDA_EMULATOR_VECTOR_KIND(int, "i4")
CUDA_EMULATOR_VECTOR_KIND(uint, "u4")
CUDA_EMULATOR_VECTOR_KIND(longlong, "i8")
CUDA_EMULATOR_VECTOR_KIND(ulonglong, "u8")
CUDA_EMULATOR_VECTOR_KIND(float, "f4")
CUDA_EMULATOR_VECTOR_KIND(double, "f8")

template <class T>
struct plain {
    typedef T type;
    static constexpr const char *text = kind<T>::value;
};
template <class T>
struct plain<const T> : plain<T> {};
template <class T>
struct plain<volatile T> : plain<T> {};
template <class T>
struct plain<const volatile T> : plain<T> {};
template <class T>
struct plain<T *> {
    typedef T *type;
    static constexpr const char *text = kind<typename plain<T>::type>::pointer;
};

/* What the emulator itself loads here is not the kernel's. */
template <class... P, size_t... I>
__attribute__((no_sanitize("thread"))) static void call_with(void (*kernel)(P...), void *const *values, numbers<I...>)
{ kernel(*static_cast<typename plain<P>::type *>(values[I])...); }
template <class... P>
static void (*chosen)(P...);
template <class... P>
__attribute__((no_sanitize("thread"))) static void call(void *values)
{ call_with(chosen<P...>, static_cast<void *const *>(values), numbers<__integer_pack(sizeof...(P))...>()); }

template <class... P>
static int run(void (*kernel)(P...), char **argv)
{
    static const char *const types[] = { plain<P>::text..., nullptr };
    chosen<P...> = kernel;
    return cuda_emulator_main(argv, types, sizeof...(P), call<P...>);
}

} // namespace cuda_emulator
#endif
