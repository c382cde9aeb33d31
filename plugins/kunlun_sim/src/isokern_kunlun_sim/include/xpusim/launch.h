/* Launches: `kernel<<<clusters, cores, stream>>>(arguments)` is rewritten to `::xpusim::kernel(kernel,
 * "kernel").on(clusters, cores, stream)(arguments)`. */
#ifndef XPUSIM_LAUNCH_H
#define XPUSIM_LAUNCH_H
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "../xpu/runtime.h"
#include "device.h"

/* What an XPUFunc points to for a kernel compiled for the emulator. */
struct xpusim_function {
    const char *name;
    void (*run)(void (*kernel)(), const char *parameters);
    void (*kernel)();
    unsigned parameter_bytes;
    int checked;
};

namespace xpusim
{

/* What rewriting.py puts after the declaration of a local array or variable: in checked mode it begins anew. Vectors
 * are not watched like this, because they are registers, nor arrays of structures, because parts of them are copied
 * that nobody writes. A single structure is, unless its constructor has written it. */
template <class T>
__attribute__((always_inline)) inline void fresh(const volatile void *array, std::size_t bytes, const volatile T &)
{
#ifdef XPUSIM_CHECKED
    constexpr bool plain = std::is_class_v<T> && std::is_trivially_default_constructible_v<T>;
    if (std::is_scalar_v<T> || sizeof(T) <= 2 || (plain && sizeof(T) == bytes))
        xpusim_fresh(array, bytes);
#else
    static_cast<void>(array), static_cast<void>(bytes);
#endif
}

#ifdef XPUSIM_CHECKED
/* What rewriting.py puts behind a local array that is the middle of a structure: what is around it is zones, which
 * no access may touch until the array's scope ends. */
class zones
{
  public:
    template <class W, class A>
    __attribute__((always_inline)) zones(const W &whole, const A &array) : whole_(&whole)
    {
        constexpr bool vectors = ::xpusim::is_vector<std::remove_cv_t<std::remove_all_extents_t<A>>>;
        xpusim_zones_begin(&whole, sizeof whole, &array, sizeof array, vectors);
    }
    __attribute__((always_inline)) ~zones() { xpusim_zones_end(whole_); }
    zones(const zones &) = delete;
    zones &operator=(const zones &) = delete;

  private:
    const volatile void *const whole_;
};

/* What lifetimes.py puts behind an array or a variable of the host. */
class lifetime
{
  public:
    template <class T>
    __attribute__((always_inline)) explicit lifetime(const T &object)
        : object_(__builtin_addressof(object)), bytes_(sizeof object)
    {
    }
    __attribute__((always_inline)) ~lifetime() { xpusim_lifetime_ends(object_, bytes_); }
    lifetime(const lifetime &) = delete;
    lifetime &operator=(const lifetime &) = delete;

  private:
    const volatile void *const object_;
    const std::size_t bytes_;
};

/* What announcing.py adds: an element that is moved as it is, */
template <class T>
__attribute__((always_inline)) constexpr void moved(const T &element, XPUSIM_HERE)
{
    if constexpr (std::is_scalar_v<T>)
        if (sizeof element >= 4 && !__builtin_is_constant_evaluated())
            xpusim_moved(&element, sizeof element, XPUSIM_SITE);
}

/* a variable that it was moved to and is moved on from, which is not reported once more, */
template <class T>
__attribute__((always_inline)) constexpr void moved_on(const T &variable)
{ moved(variable, nullptr, 0); }

/* what it was moved to: a variable, or (none given) elsewhere, */
__attribute__((always_inline)) constexpr void moved_to()
{
    if (!__builtin_is_constant_evaluated())
        xpusim_moved_to(nullptr);
}
template <class T>
__attribute__((always_inline)) constexpr void moved_to(const T &variable)
{
    if constexpr (std::is_scalar_v<T>)
        if (sizeof variable >= 4 && !__builtin_is_constant_evaluated())
            xpusim_moved_to(&variable);
}

/* the parameters of a function that are pointers of local memory, */
class local_pointers
{
  public:
    template <class... P>
    __attribute__((always_inline)) explicit local_pointers(P... all)
        : count_((0 + ... + xpusim_local_pointer_begins(all)))
    {
    }
    __attribute__((always_inline)) ~local_pointers()
    {
        if (count_ != 0)
            xpusim_local_pointers_end(count_);
    }
    local_pointers(const local_pointers &) = delete;
    local_pointers &operator=(const local_pointers &) = delete;

  private:
    const int count_;
};

/* a member of a structure that is dereferenced, */
template <class P>
__attribute__((always_inline)) constexpr P &&local_pointer(P &&pointer, XPUSIM_HERE)
{
    if constexpr (std::is_pointer_v<std::remove_reference_t<P>>)
        if (!__builtin_is_constant_evaluated())
            xpusim_local_pointer(pointer, XPUSIM_SITE);
    return static_cast<P &&>(pointer);
}

/* and what a variable is given that has 32 bits on the device (long long, another type, has not). An unsigned one that
 * has wrapped at 0 fits. */
template <class T>
__attribute__((always_inline)) constexpr void fitted(const T &given, XPUSIM_HERE)
{
    using type = std::remove_volatile_t<T>;
    if constexpr (std::is_same_v<type, long> || std::is_same_v<type, unsigned long>) {
        const auto value = static_cast<int64_t>(given);
        const bool fits = value >= INT32_MIN && value <= (std::is_signed_v<type> ? INT32_MAX : int64_t{ UINT32_MAX });
        if (!fits && !__builtin_is_constant_evaluated())
            xpusim_long(value, XPUSIM_SITE);
    }
}
template <class T>
__attribute__((always_inline)) constexpr T fits(T given, XPUSIM_HERE)
{
    fitted(given, file, line);
    return given;
}
#endif

/* What rewriting.py puts in the place of inline assembly. */
__attribute__((error("not modelled: inline assembly: the XPU's instructions are not public"))) void assembly();

/* In the parameter block, 8-byte values start at a multiple of 8, all others at a multiple of 4 (XPU3). */
template <class T>
constexpr size_t aligned(size_t offset)
{
    constexpr size_t to = alignof(T) >= 8 ? 8 : 4;
    return (offset + to - 1) / to * to;
}

template <class... P>
struct layout {
    size_t offsets[sizeof...(P) + 1] = {};
    size_t bytes = 0;
    constexpr layout()
    {
        size_t at = 0, i = 0;
        ((at = aligned<P>(at), offsets[i++] = at, at += (sizeof(P) + 3) / 4 * 4), ...);
        bytes = at;
    }
};

/* Code from here to the kernel is not instrumented, so that the first function that the emulator sees entered is the
 * kernel; and it is inlined, so that no other function uses the stack where the kernel's will be. */
template <class T>
__attribute__((no_sanitize("thread"), always_inline)) inline T parameter(const char *block, size_t offset)
{
    T value;
    __builtin_memcpy(&value, block + offset, sizeof value);
    return value;
}

template <class... P, size_t... I>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(P...), const char *block, std::index_sequence<I...>)
{
    constexpr layout<P...> where;
    (void)block;
    kernel(parameter<P>(block, where.offsets[I])...);
}

template <class... P>
__attribute__((no_sanitize("thread"))) void run(void (*kernel)(), const char *block)
{ call(reinterpret_cast<void (*)(P...)>(kernel), block, std::index_sequence_for<P...>{}); }

template <class... P>
struct launcher {
    void (*kernel)(P...);
    const char *name;
    int clusters, cores;
    XPUStream stream;

    int operator()(P... arguments) const
    {
        static_assert((std::is_trivially_copyable_v<P> && ...), "kernel parameters are copied as bytes");
        constexpr layout<P...> where;
        xpusim_function function{
            name, &run<P...>, reinterpret_cast<void (*)()>(kernel), static_cast<unsigned>(where.bytes),
#ifdef XPUSIM_CHECKED
            1
#else
            0
#endif
        };
        int status = xpu_launch_config(clusters, cores, stream);
        size_t i = 0;
        ((status = status != 0 ? status : xpu_launch_argument_set(&arguments, sizeof arguments, where.offsets[i++])),
            ...);
        return status != 0 ? status : xpu_launch_async(&function);
    }
};

template <class... P>
struct kernel_of {
    void (*function)(P...);
    const char *name;
    launcher<P...> on(int clusters, int cores, XPUStream stream = nullptr) const
    { return { function, name, clusters, cores, stream }; }
};

template <class... P>
kernel_of<P...> kernel(void (*function)(P...), const char *name)
{ return { function, name }; }

} // namespace xpusim
#endif
