/* The portable kernels' words in C++17: an item is a fiber of host.cpp, global and local memory are the host's. */
#include <stddef.h>
#include <stdint.h>

#include <utility>

#define IK_SIMT /* isokern_*.h: the types of stdint.h are named here */

/* What host.cpp exports. The results do not change while an item runs, which is what `const` declares to the
 * compiler. */
extern "C" {
__attribute__((const)) int64_t acme_group();
__attribute__((const)) int acme_item();
void acme_barrier(const char *site);
uint64_t acme_shuffle_down(uint64_t bits, int lanes, int width, const char *site);
const char *acme_run(
    void (*item)(void *), void *values, int64_t groups, int local, char *memory, size_t memory_bytes, uint64_t seed);
/* Defined by the linker around the section of that name, where there is one. */
extern char __start_acme_local[] __attribute__((weak, visibility("hidden")));
extern char __stop_acme_local[] __attribute__((weak, visibility("hidden")));
}

/* entry(*values[0], *values[1], ...), each read as the type of its parameter. */
template <class... P, size_t... I>
static void acme_call(void (*entry)(P...), void **values, std::index_sequence<I...>)
{ entry(*static_cast<P *>(values[I])...); }
template <class... P>
static void acme_call(void (*entry)(P...), void *values)
{ acme_call(entry, static_cast<void **>(values), std::index_sequence_for<P...>()); }

/* The function that Python finds in the library, and then the head of the entry itself. */
#define IK_ENTRY(name) \
    static void name(IK_PARAMS); \
    extern "C" const char *acme_launch(void *values, int64_t groups, uint64_t seed) \
    { \
        const size_t bytes = static_cast<size_t>(__stop_acme_local - __start_acme_local); \
        return acme_run( \
            [](void *v) { acme_call(name, v); }, values, groups, IK_GROUP, __start_acme_local, bytes, seed); \
    } \
    static void name

#define IK_RECORD(type) const type &
#define IK_GLOBAL
#define IK_LOCAL
#define IK_INLINE inline __attribute__((always_inline))
#define IK_LOCAL_ARRAY(type, name, count) static type name[count] __attribute__((section("acme_local")))
#define ACME_TEXT_(x) #x
#define ACME_TEXT(x) ACME_TEXT_(x)
#define ACME_SITE __FILE__ ":" ACME_TEXT(__LINE__)
#define IK_BARRIER() acme_barrier(ACME_SITE)
#define IK_BARRIER_GLOBAL() IK_BARRIER()
#define IK_GROUP_ID ((ik_index)acme_group())
#define IK_LOCAL_ID (acme_item())
#define IK_ITEM ((ik_index)(acme_group() * IK_GROUP + acme_item()))

#define IK_F32_BITS(x) __builtin_bit_cast(uint32_t, x)
#define IK_BITS_F32(u) __builtin_bit_cast(float, u)
#define IK_F64_BITS(x) __builtin_bit_cast(uint64_t, x)
#define IK_BITS_F64(u) __builtin_bit_cast(double, u)

/* Sub-groups, which a device need not have. */
template <class T>
static T acme_shuffled(T value, int lanes, int width, const char *site)
{
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = acme_shuffle_down(bits, lanes, width, site);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
#define IK_SUBGROUP (IK_GROUP < 16 ? IK_GROUP : 16)
#define IK_SUBGROUP_ID (acme_item() / IK_SUBGROUP)
#define IK_SUBGROUP_LANE (acme_item() % IK_SUBGROUP)
#define IK_SHUFFLE_DOWN(value, lanes) acme_shuffled(value, lanes, IK_SUBGROUP, ACME_SITE)
