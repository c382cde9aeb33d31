/* Launching a kernel of any signature with arguments that are known only at run time: `isokern-xpu run` compiles this
 * after the author's file. */
#ifndef XPUSIM_RUN_H
#define XPUSIM_RUN_H
#include "launch.h"

/* One argument of the command line: an address ('p') of elements with their size, an integer ('i') or a real number
 * ('f'). */
struct xpusim_argument {
    long long kind;
    void *pointer;
    long long integer;
    double real;
    long long element_bytes, element_is_real;
};

namespace xpusim
{

/* Whether an array's elements are what a parameter points to. Bytes may be anything, and so may structures; a 16-bit
 * float is a class. */
template <class E>
bool has_elements(const xpusim_argument &a)
{
    if constexpr (std::is_arithmetic_v<E> && sizeof(E) > 1)
        return a.element_bytes == sizeof(E) && (a.element_is_real != 0) == std::is_floating_point_v<E>;
    else if constexpr (std::is_class_v<E> && sizeof(E) == 2)
        return a.element_bytes == 2;
    else
        return true;
}

/* Convert an argument to a parameter of type P. On a mismatch, `wrong` becomes the argument's number, counted from 1,
 * and the argument's kind becomes the parameter's, or 'e' with what the elements should be. */
template <class P>
P convert(xpusim_argument &a, int number, int &wrong)
{
    const auto refuse = [&](char kind) { wrong = number, a.kind = kind; };
    if constexpr (std::is_pointer_v<P>) {
        if (a.kind != 'p')
            refuse('p');
        if constexpr (!std::is_void_v<std::remove_pointer_t<P>>) {
            using E = std::remove_cv_t<std::remove_pointer_t<P>>;
            if (a.kind == 'p' && a.pointer != nullptr && !has_elements<E>(a)) {
                refuse('e');
                a.element_bytes = sizeof(E), a.element_is_real = !std::is_integral_v<E>;
            }
        }
        return static_cast<P>(a.pointer);
    } else if constexpr (std::is_floating_point_v<P>) {
        if (a.kind == 'p')
            refuse('f');
        return static_cast<P>(a.real);
    } else if constexpr (std::is_arithmetic_v<P>) {
        const P value = static_cast<P>(a.integer);
        if (a.kind != 'i' || (std::is_unsigned_v<P> && a.integer < 0) || static_cast<long long>(value) != a.integer)
            refuse('i');
        return value;
    } else {
        static_assert(std::is_arithmetic_v<P>, "isokern-xpu run gives pointers and numbers to kernels, no structures");
    }
}

template <class... P, size_t... I>
int run_with(void (*kernel)(P...), const char *name, int clusters, int cores, XPUStream stream, xpusim_argument *given,
    std::index_sequence<I...>)
{
    int wrong = 0;
    std::tuple<P...> values{ convert<P>(given[I], static_cast<int>(I) + 1, wrong)... };
    (void)given, (void)values;
    return wrong != 0 ? -wrong : launcher<P...>{ kernel, name, clusters, cores, stream }(std::get<I>(values)...);
}

/* Return a code of the runtime; -n if argument n has another kind than the parameter; -1000 - n if the kernel takes n
 * arguments. */
template <class... P>
int run_kernel(void (*kernel)(P...), const char *name, int clusters, int cores, XPUStream stream,
    xpusim_argument *given, int count)
{
    if (count != static_cast<int>(sizeof...(P)))
        return -1000 - static_cast<int>(sizeof...(P));
    return run_with(kernel, name, clusters, cores, stream, given, std::index_sequence_for<P...>{});
}

} // namespace xpusim
#endif
