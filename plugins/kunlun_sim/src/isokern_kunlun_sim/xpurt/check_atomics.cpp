/* The atomic operations of C++ in a checked library. gcc's -fsanitize=thread turns them into calls of these functions,
 * both in kernels and in the host code that is compiled with them. */
#include <cstdint>

#include "check_state.h"

using namespace xpurt;
using namespace xpurt::check;

template <class T>
static T *order_atomic(volatile T *at, const void *pc)
{
    T *word = const_cast<T *>(at);
    if (self != nullptr)
        atomic(*self, reinterpret_cast<char *>(word), sizeof(T), Site(pc));
    return word;
}

#define HERE __builtin_return_address(0)
#define CHANGE(bits, name) \
    std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t *at, std::uint##bits##_t value, int) \
    { return __atomic_##name(order_atomic(at, HERE), value, __ATOMIC_SEQ_CST); }
/* clang-format off */
#define CHANGES(bits) \
    std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t *at, int) \
    { \
        return __atomic_load_n(order_atomic(const_cast<volatile std::uint##bits##_t *>(at), HERE), __ATOMIC_SEQ_CST); \
    } \
    void __tsan_atomic##bits##_store(volatile std::uint##bits##_t *at, std::uint##bits##_t value, int) \
    { \
        __atomic_store_n(order_atomic(at, HERE), value, __ATOMIC_SEQ_CST); \
    } \
    std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t *at, std::uint##bits##_t value, \
                                                       int) \
    { \
        return __atomic_exchange_n(order_atomic(at, HERE), value, __ATOMIC_SEQ_CST); \
    } \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t *at, \
                                                       std::uint##bits##_t *expected, std::uint##bits##_t value, int, \
                                                       int) \
    { \
        return __atomic_compare_exchange_n(order_atomic(at, HERE), expected, value, false, __ATOMIC_SEQ_CST, \
            __ATOMIC_SEQ_CST); \
    } \
    bool __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t *at, std::uint##bits##_t *expected, \
                                                     std::uint##bits##_t value, int, int) \
    { \
        return __atomic_compare_exchange_n(order_atomic(at, HERE), expected, value, false, __ATOMIC_SEQ_CST, \
            __ATOMIC_SEQ_CST); \
    } \
    CHANGE(bits, fetch_add) CHANGE(bits, fetch_sub) CHANGE(bits, fetch_and) CHANGE(bits, fetch_or) \
    CHANGE(bits, fetch_xor) CHANGE(bits, fetch_nand)
/* clang-format on */

/* The language's operations are each for the words of one memory. */
static void check_word(const Core &c, const void *address, std::size_t bytes, int space, const Site &site)
{
    const At runtime(IN_RUNTIME);
    const Where w = where(c, address);
    if ((w.kind == Kind::local && space != XPUSIM_LM) || (w.kind == Kind::shared && space != XPUSIM_SM)
        || (w.kind == Kind::global && space != XPUSIM_GM))
        report(rules::space, c, site,
            space == XPUSIM_SM ? "operates atomically on shared memory" : "operates atomically on global memory",
            describe(c, w, address, bytes));
    if (reinterpret_cast<std::uintptr_t>(address) % 4 != 0)
        report(rules::scalar_alignment, c, site, "operates atomically", describe(c, w, address, bytes));
}

extern "C" {
CHANGES(8)
CHANGES(16)
CHANGES(32)
CHANGES(64)
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
}

void xpurt::check::record_atomic(const void *address, int bytes, int space, xpusim_site site)
{
    if (self == nullptr)
        return;
    if (address != nullptr)
        check_word(*self, address, static_cast<std::size_t>(bytes), space, site);
    else
        use_lock(*self, site);
    atomic(*self, static_cast<char *>(const_cast<void *>(address)), static_cast<std::size_t>(bytes), site);
}
