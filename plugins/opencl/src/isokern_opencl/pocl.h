/* Makes programs cheap to build on PoCL; pocl.py says when it is used.
 *
 * PoCL parses 18,000 lines of declarations in front of each program, and leaves them out where the header's guard,
 * _OPENCL_H_, is defined. These are the ones that the kernels use. */
#ifndef IK_POCL_H
#define IK_POCL_H
#define IK_BUILTIN __attribute__((overloadable, const))
size_t IK_BUILTIN get_global_id(uint dim);
size_t IK_BUILTIN get_group_id(uint dim);
size_t IK_BUILTIN get_local_id(uint dim);
void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags flags);
float IK_BUILTIN sqrt(float x);
float IK_BUILTIN fma(float a, float b, float c);
#ifndef IK_NO_F64
double IK_BUILTIN sqrt(double x);
double IK_BUILTIN fma(double a, double b, double c);
#endif
int IK_BUILTIN min(int a, int b);
int IK_BUILTIN max(int a, int b);
long IK_BUILTIN min(long a, long b);
long IK_BUILTIN max(long a, long b);
uint16 IK_BUILTIN convert_uint16(ushort16 x);
float16 __attribute__((overloadable, pure)) vload_half16(size_t at, const __private half *from);
void __attribute__((overloadable)) vstore_half16_rte(float16 v, size_t at, __private half *to);

/* PoCL emits the code of a kernel three times, and optimises each copy by itself; functions that it does not inline are
 * compiled once. So where a group is one item that does much, the kernel only calls a function, to which the record is
 * copied. The function may not query item or group numbers, because PoCL inlines functions that do: entries have the
 * group's number as a parameter, and pass it to functions by IK_PASSED and IK_ARGUMENTS. */
#ifdef IK_SINGLE
#define IK_PARAMS IK_KERNEL_PARAMS, const size_t ik_group
#define IK_PASSED IK_KERNEL_PASSED, const size_t ik_group
#define IK_ARGUMENTS IK_KERNEL_ARGUMENTS, ik_group
#define IK_ENTRY(name) \
    static void ik_single_##name(IK_PARAMS); \
    IK_KERNEL_ATTRIBUTES __kernel __attribute__((reqd_work_group_size(1, 1, 1))) void name(IK_KERNEL_PARAMS) \
    { ik_single_##name(IK_KERNEL_ARGUMENTS, get_group_id(0)); } \
    static IK_KERNEL_ATTRIBUTES __attribute__((noinline)) void ik_single_##name
#define IK_LOCAL
#define IK_LOCAL_ARRAY(type, name, count) type name[count]
#define IK_BARRIER()
#define IK_BARRIER_GLOBAL()
#define IK_ITEM ((ik_index)ik_group)
#define IK_GROUP_ID ((ik_index)ik_group)
#define IK_LOCAL_ID 0
#endif
#endif
