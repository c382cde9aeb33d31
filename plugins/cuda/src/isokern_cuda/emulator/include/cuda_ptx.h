/* PTX instructions as functions (PTX ISA): emulator/assembly.py calls the one of the instruction's name, with its
 * operands in order. */
#ifndef ISOKERN_CUDA_PTX_H
#define ISOKERN_CUDA_PTX_H
#include "cuda_language.h"

namespace cuda_emulator
{
namespace ptx
{

/* The pointer of an operand in brackets; a 32-bit address is one of shared memory. */
template <class T>
CUDA_EMULATOR_INLINE char *address(T *p, long long offset)
{ return const_cast<char *>(reinterpret_cast<const volatile char *>(p)) + offset; }
CUDA_EMULATOR_INLINE char *address(uint64_t p, long long offset)
{
    return offset
        + (p >> 32 == 0 ? static_cast<char *>(cuda_emulator_shared_pointer(static_cast<unsigned>(p)))
                        : reinterpret_cast<char *>(p));
}
CUDA_EMULATOR_INLINE char *address(uint32_t p, long long offset) { return address(static_cast<uint64_t>(p), offset); }
CUDA_EMULATOR_INLINE char *address(int p, long long offset) { return address(static_cast<uint32_t>(p), offset); }
CUDA_EMULATOR_INLINE char *address(unsigned long long p, long long offset)
{ return address(static_cast<uint64_t>(p), offset); }
CUDA_EMULATOR_INLINE char *address(long long p, long long offset) { return address(static_cast<uint64_t>(p), offset); }

CUDA_EMULATOR_INLINE unsigned thread_number()
{ return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x; }
CUDA_EMULATOR_INLINE unsigned special_laneid() { return thread_number() % 32; }
CUDA_EMULATOR_INLINE unsigned special_warpid() { return thread_number() / 32; }
CUDA_EMULATOR_INLINE unsigned special_smid() { return 0; }
CUDA_EMULATOR_INLINE unsigned special_clock() { return static_cast<unsigned>(cuda_emulator_clock()); }
CUDA_EMULATOR_INLINE uint64_t special_clock64() { return static_cast<uint64_t>(cuda_emulator_clock()); }
CUDA_EMULATOR_INLINE uint64_t special_globaltimer() { return static_cast<uint64_t>(cuda_emulator_clock()); }
CUDA_EMULATOR_INLINE unsigned special_lanemask_lt() { return (1u << special_laneid()) - 1; }
CUDA_EMULATOR_INLINE unsigned special_lanemask_le() { return special_lanemask_lt() << 1 | 1; }
CUDA_EMULATOR_INLINE unsigned special_lanemask_eq() { return 1u << special_laneid(); }
CUDA_EMULATOR_INLINE unsigned special_lanemask_gt() { return ~special_lanemask_le(); }
CUDA_EMULATOR_INLINE unsigned special_lanemask_ge() { return ~special_lanemask_lt(); }
CUDA_EMULATOR_INLINE unsigned special_tid_x() { return threadIdx.x; }
CUDA_EMULATOR_INLINE unsigned special_tid_y() { return threadIdx.y; }
CUDA_EMULATOR_INLINE unsigned special_tid_z() { return threadIdx.z; }
CUDA_EMULATOR_INLINE unsigned special_ntid_x() { return blockDim.x; }
CUDA_EMULATOR_INLINE unsigned special_ctaid_x() { return blockIdx.x; }
CUDA_EMULATOR_INLINE unsigned special_ctaid_y() { return blockIdx.y; }
CUDA_EMULATOR_INLINE unsigned special_nctaid_x() { return gridDim.x; }

/* Moves and arithmetic */
#define CUDA_EMULATOR_PTX_EACH_INTEGER(entry) \
    entry(u16, uint16_t) entry(s16, int16_t) entry(u32, uint32_t) entry(s32, int32_t) entry(u64, uint64_t) \
        entry(s64, int64_t)
#define CUDA_EMULATOR_PTX_EACH_BITS(entry) entry(b16, uint16_t) entry(b32, uint32_t) entry(b64, uint64_t)
#define CUDA_EMULATOR_PTX_EACH_FLOAT(entry) entry(f32, float) entry(f64, double)
template <class T, class D, class S>
CUDA_EMULATOR_INLINE void move(D &d, S s)
{
    static_assert(sizeof(D) >= sizeof(T), "the register is too small for the type");
    T value{};
    if constexpr (sizeof(S) == sizeof(T))
        __builtin_memcpy(&value, &s, sizeof value);
    else
        value = static_cast<T>(s);
    if constexpr (sizeof(D) == sizeof(T))
        __builtin_memcpy(&d, &value, sizeof value);
    else
        d = static_cast<D>(value);
}
template <class T, class S>
CUDA_EMULATOR_INLINE T read(S s)
{
    T value{};
    move<T>(value, s);
    return value;
}
#define CUDA_EMULATOR_PTX_MOVE(name, T) \
    template <class D, class S> \
    CUDA_EMULATOR_INLINE void mov_##name(D &d, S s) \
    { move<T>(d, s); } \
    template <class D, class P> \
    CUDA_EMULATOR_INLINE void ld_global_##name(D &d, P *p) \
    { move<T>(d, *reinterpret_cast<const T *>(p)); } \
    template <class D, class P> \
    CUDA_EMULATOR_INLINE void ld_global_nc_##name(D &d, P *p) \
    { move<T>(d, *reinterpret_cast<const T *>(p)); } \
    template <class D, class P> \
    CUDA_EMULATOR_INLINE void ld_shared_##name(D &d, P *p) \
    { move<T>(d, *reinterpret_cast<const T *>(p)); } \
    template <class D, class P> \
    CUDA_EMULATOR_INLINE void ld_volatile_global_##name(D &d, P *p) \
    { move<T>(d, *reinterpret_cast<const volatile T *>(p)); } \
    template <class P, class S> \
    CUDA_EMULATOR_INLINE void st_global_##name(P *p, S s) \
    { *reinterpret_cast<T *>(p) = read<T>(s); } \
    template <class P, class S> \
    CUDA_EMULATOR_INLINE void st_shared_##name(P *p, S s) \
    { *reinterpret_cast<T *>(p) = read<T>(s); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void selp_##name(D &d, A a, B b, bool p) \
    { p ? move<T>(d, a) : move<T>(d, b); }
CUDA_EMULATOR_PTX_EACH_INTEGER(CUDA_EMULATOR_PTX_MOVE)
CUDA_EMULATOR_PTX_EACH_BITS(CUDA_EMULATOR_PTX_MOVE)
CUDA_EMULATOR_PTX_EACH_FLOAT(CUDA_EMULATOR_PTX_MOVE)
#define CUDA_EMULATOR_PTX_ARITHMETIC(name, T) \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void add_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(read<T>(a) + read<T>(b))); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void sub_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(read<T>(a) - read<T>(b))); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void min_##name(D &d, A a, B b) \
    { move<T>(d, read<T>(b) < read<T>(a) ? read<T>(b) : read<T>(a)); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void max_##name(D &d, A a, B b) \
    { move<T>(d, read<T>(a) < read<T>(b) ? read<T>(b) : read<T>(a)); } \
    CUDA_EMULATOR_PTX_COMPARE(eq_##name, T, ==) \
    CUDA_EMULATOR_PTX_COMPARE(ne_##name, T, !=) \
    CUDA_EMULATOR_PTX_COMPARE(lt_##name, T, <) \
    CUDA_EMULATOR_PTX_COMPARE(le_##name, T, <=) \
    CUDA_EMULATOR_PTX_COMPARE(gt_##name, T, >) \
    CUDA_EMULATOR_PTX_COMPARE(ge_##name, T, >=)
#define CUDA_EMULATOR_PTX_COMPARE(name, T, relation) \
    template <class A, class B> \
    CUDA_EMULATOR_INLINE void setp_##name(bool &d, A a, B b) \
    { d = read<T>(a) relation read<T>(b); }
CUDA_EMULATOR_PTX_EACH_INTEGER(CUDA_EMULATOR_PTX_ARITHMETIC)
CUDA_EMULATOR_PTX_EACH_FLOAT(CUDA_EMULATOR_PTX_ARITHMETIC)
CUDA_EMULATOR_PTX_COMPARE(eq_b32, uint32_t, ==)
CUDA_EMULATOR_PTX_COMPARE(ne_b32, uint32_t, !=)
#define CUDA_EMULATOR_PTX_LOW(name, T) \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void mul_lo_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(read<T>(a) * read<T>(b))); } \
    template <class D, class A, class B, class C> \
    CUDA_EMULATOR_INLINE void mad_lo_##name(D &d, A a, B b, C c) \
    { move<T>(d, static_cast<T>(read<T>(a) * read<T>(b) + read<T>(c))); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void shr_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(b < 8 * sizeof(T) ? read<T>(a) >> b : read<T>(a) < 0 ? -1 : 0)); }
CUDA_EMULATOR_PTX_EACH_INTEGER(CUDA_EMULATOR_PTX_LOW)
#define CUDA_EMULATOR_PTX_BITWISE(name, T) \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void and_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(read<T>(a) & read<T>(b))); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void or_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(read<T>(a) | read<T>(b))); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void xor_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(read<T>(a) ^ read<T>(b))); } \
    template <class D, class A> \
    CUDA_EMULATOR_INLINE void not_##name(D &d, A a) \
    { move<T>(d, static_cast<T>(~read<T>(a))); } \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void shl_##name(D &d, A a, B b) \
    { move<T>(d, static_cast<T>(b < 8 * sizeof(T) ? read<T>(a) << b : 0)); }
CUDA_EMULATOR_PTX_EACH_BITS(CUDA_EMULATOR_PTX_BITWISE)
template <class D, class A, class B, class C>
CUDA_EMULATOR_INLINE void lop3_b32(D &d, A a, B b, C c, int table)
{
    uint32_t result = 0;
    for (int bit = 0; bit < 32; bit++) {
        const uint32_t row =
            (read<uint32_t>(a) >> bit & 1) << 2 | (read<uint32_t>(b) >> bit & 1) << 1 | (read<uint32_t>(c) >> bit & 1);
        result |= (static_cast<uint32_t>(table) >> row & 1) << bit;
    }
    move<uint32_t>(d, result);
}
template <class D, class A, class B, class C>
CUDA_EMULATOR_INLINE void prmt_b32(D &d, A a, B b, C c)
{ move<uint32_t>(d, __byte_perm(read<uint32_t>(a), read<uint32_t>(b), read<uint32_t>(c))); }
template <class D, class A>
CUDA_EMULATOR_INLINE void popc_b32(D &d, A a)
{ d = static_cast<D>(__popc(read<uint32_t>(a))); }
template <class D, class A>
CUDA_EMULATOR_INLINE void brev_b32(D &d, A a)
{ move<uint32_t>(d, __brev(read<uint32_t>(a))); }
#define CUDA_EMULATOR_PTX_FLOATS(name, T, expression) \
    template <class D, class A, class B> \
    CUDA_EMULATOR_INLINE void name(D &d, A a_, B b_) \
    { \
        const T a = read<T>(a_), b = read<T>(b_); \
        move<T>(d, expression); \
    }
#define CUDA_EMULATOR_PTX_FUNCTION(name, T, expression) \
    template <class D, class A> \
    CUDA_EMULATOR_INLINE void name(D &d, A a_) \
    { \
        const T a = read<T>(a_); \
        move<T>(d, expression); \
    }
CUDA_EMULATOR_PTX_FLOATS(mul_f32, float, a *b)
CUDA_EMULATOR_PTX_FLOATS(mul_rn_f32, float, a *b)
CUDA_EMULATOR_PTX_FLOATS(add_rn_f32, float, a + b)
CUDA_EMULATOR_PTX_FLOATS(mul_f64, double, a *b)
CUDA_EMULATOR_PTX_FLOATS(div_rn_f32, float, a / b)
CUDA_EMULATOR_PTX_FLOATS(div_approx_f32, float, a / b)
CUDA_EMULATOR_PTX_FLOATS(div_full_f32, float, a / b)
CUDA_EMULATOR_PTX_FUNCTION(ex2_approx_f32, float, exp2f(a))
CUDA_EMULATOR_PTX_FUNCTION(ex2_approx_ftz_f32, float, exp2f(a))
CUDA_EMULATOR_PTX_FUNCTION(lg2_approx_f32, float, log2f(a))
CUDA_EMULATOR_PTX_FUNCTION(lg2_approx_ftz_f32, float, log2f(a))
CUDA_EMULATOR_PTX_FUNCTION(rcp_approx_f32, float, 1.0f / a)
CUDA_EMULATOR_PTX_FUNCTION(rcp_approx_ftz_f32, float, 1.0f / a)
CUDA_EMULATOR_PTX_FUNCTION(rcp_rn_f32, float, 1.0f / a)
CUDA_EMULATOR_PTX_FUNCTION(sqrt_approx_f32, float, sqrtf(a))
CUDA_EMULATOR_PTX_FUNCTION(sqrt_rn_f32, float, sqrtf(a))
CUDA_EMULATOR_PTX_FUNCTION(rsqrt_approx_f32, float, 1.0f / sqrtf(a))
CUDA_EMULATOR_PTX_FUNCTION(rsqrt_approx_ftz_f32, float, 1.0f / sqrtf(a))
CUDA_EMULATOR_PTX_FUNCTION(tanh_approx_f32, float, tanhf(a))
CUDA_EMULATOR_PTX_FUNCTION(sin_approx_f32, float, sinf(a))
CUDA_EMULATOR_PTX_FUNCTION(cos_approx_f32, float, cosf(a))
CUDA_EMULATOR_PTX_FUNCTION(abs_f32, float, fabsf(a))
CUDA_EMULATOR_PTX_FUNCTION(neg_f32, float, -a)
template <class D, class A, class B, class C>
CUDA_EMULATOR_INLINE void fma_rn_f32(D &d, A a, B b, C c)
{ move<float>(d, fmaf(read<float>(a), read<float>(b), read<float>(c))); }
template <class D, class A, class B, class C>
CUDA_EMULATOR_INLINE void fma_rn_f64(D &d, A a, B b, C c)
{ move<double>(d, fma(read<double>(a), read<double>(b), read<double>(c))); }

/* Conversions */
template <class D, class A>
CUDA_EMULATOR_INLINE void cvt_rn_f16_f32(D &d, A a)
{ move<uint16_t>(d, ik_f32_to_f16(read<float>(a))); }
template <class D, class A>
CUDA_EMULATOR_INLINE void cvt_f32_f16(D &d, A a)
{ move<float>(d, ik_f16_to_f32(read<uint16_t>(a))); }
template <class D, class A>
CUDA_EMULATOR_INLINE void cvt_rn_bf16_f32(D &d, A a)
{ move<uint16_t>(d, ik_f32_to_bf16(read<float>(a))); }
template <class D, class A, class B>
CUDA_EMULATOR_INLINE void cvt_rn_f16x2_f32(D &d, A high, B low)
{ move<uint32_t>(d, static_cast<uint32_t>(ik_f32_to_f16(read<float>(high))) << 16 | ik_f32_to_f16(read<float>(low))); }
template <class D, class A, class B>
CUDA_EMULATOR_INLINE void cvt_rn_bf16x2_f32(D &d, A high, B low)
{
    move<uint32_t>(
        d, static_cast<uint32_t>(ik_f32_to_bf16(read<float>(high))) << 16 | ik_f32_to_bf16(read<float>(low)));
}
template <class D, class A>
CUDA_EMULATOR_INLINE void cvt_rna_tf32_f32(D &d, A a)
{ move<uint32_t>(d, (read<uint32_t>(a) + 0x1000u) & 0xffffe000u); }
template <class D, class A>
CUDA_EMULATOR_INLINE void cvta_to_shared_u64(D &d, A a)
{ d = static_cast<D>(cuda_emulator_shared_address(address(a, 0))); }
template <class D, class A>
CUDA_EMULATOR_INLINE void cvt_u32_u64(D &d, A a)
{ d = static_cast<D>(static_cast<uint32_t>(a)); }
template <class D, class A>
CUDA_EMULATOR_INLINE void cvt_u64_u32(D &d, A a)
{ d = static_cast<D>(static_cast<uint32_t>(a)); }

/* Order */
CUDA_EMULATOR_INLINE void bar_sync(int number)
{
    if (number != 0)
        cuda_emulator_trap("a named barrier (bar.sync), which is not emulated");
    cuda_emulator_barrier(0);
}
CUDA_EMULATOR_INLINE void barrier_sync(int number) { bar_sync(number); }
CUDA_EMULATOR_INLINE void bar_warp_sync(unsigned mask) { __syncwarp(mask); }
CUDA_EMULATOR_INLINE void membar_gl() { cuda_emulator_fence(1); }
CUDA_EMULATOR_INLINE void membar_sys() { cuda_emulator_fence(1); }
CUDA_EMULATOR_INLINE void membar_cta() { cuda_emulator_fence(0); }
CUDA_EMULATOR_INLINE void fence_acq_rel_gpu() { cuda_emulator_fence(1); }
CUDA_EMULATOR_INLINE void trap() { cuda_emulator_trap("trap"); }
CUDA_EMULATOR_INLINE void nanosleep_u32(unsigned) { cuda_emulator_active(); }
CUDA_EMULATOR_INLINE void prefetch_global_L2(const char *) {}
CUDA_EMULATOR_INLINE void prefetch_global_L1(const char *) {}

/* Asynchronous copies */
#define CUDA_EMULATOR_PTX_COPY(name) \
    CUDA_EMULATOR_INLINE void name(char *to, const char *from, int bytes) \
    { cuda_emulator_copy_async(to, from, bytes, bytes); } \
    CUDA_EMULATOR_INLINE void name(char *to, const char *from, int bytes, int given) \
    { cuda_emulator_copy_async(to, from, bytes, given); }
CUDA_EMULATOR_PTX_COPY(cp_async_cg_shared_global)
CUDA_EMULATOR_PTX_COPY(cp_async_ca_shared_global)
CUDA_EMULATOR_PTX_COPY(cp_async_cg_shared_global_L2_128B)
CUDA_EMULATOR_PTX_COPY(cp_async_ca_shared_global_L2_128B)
CUDA_EMULATOR_PTX_COPY(cp_async_cg_shared_global_L2_256B)
CUDA_EMULATOR_INLINE void cp_async_commit_group() { cuda_emulator_commit_copies(); }
CUDA_EMULATOR_INLINE void cp_async_wait_group(int pending) { cuda_emulator_wait_copies(pending); }
CUDA_EMULATOR_INLINE void cp_async_wait_all()
{
    cuda_emulator_commit_copies();
    cuda_emulator_wait_copies(0);
}

/* Matrices ("Warp Level Matrix Instructions"). A lane's group is lane / 4, its place in it lane % 4. */
template <int COUNT, bool TRANSPOSED>
CUDA_EMULATOR_INLINE void load_matrices(uint32_t *loaded, const char *row)
{
    uint64_t rows[32];
    cuda_emulator_meet(CUDA_REDUCE, ~0u, reinterpret_cast<uint64_t>(row), 0, 32, rows);
    const unsigned lane = special_laneid();
    for (unsigned m = 0; m < COUNT; m++) {
        if (TRANSPOSED) {
            const auto *const first = reinterpret_cast<const uint16_t *>(rows[8 * m + 2 * (lane % 4)]);
            const auto *const second = reinterpret_cast<const uint16_t *>(rows[8 * m + 2 * (lane % 4) + 1]);
            loaded[m] = static_cast<uint32_t>(second[lane / 4]) << 16 | first[lane / 4];
        } else {
            loaded[m] = reinterpret_cast<const uint32_t *>(rows[8 * m + lane / 4])[lane % 4];
        }
    }
    __syncwarp();
}
#define CUDA_EMULATOR_PTX_LOAD_MATRICES(name, transposed) \
    template <class D> \
    CUDA_EMULATOR_INLINE void ldmatrix_sync_aligned_##name##_shared_b16(D &a, char *row) \
    { \
        uint32_t r[1]; \
        load_matrices<1, transposed>(r, row); \
        a = r[0]; \
    } \
    template <class D> \
    CUDA_EMULATOR_INLINE void ldmatrix_sync_aligned_##name##_shared_b16(D &a, D &b, char *row) \
    { \
        uint32_t r[2]; \
        load_matrices<2, transposed>(r, row); \
        a = r[0], b = r[1]; \
    } \
    template <class D> \
    CUDA_EMULATOR_INLINE void ldmatrix_sync_aligned_##name##_shared_b16(D &a, D &b, D &c, D &d, char *row) \
    { \
        uint32_t r[4]; \
        load_matrices<4, transposed>(r, row); \
        a = r[0], b = r[1], c = r[2], d = r[3]; \
    }
CUDA_EMULATOR_PTX_LOAD_MATRICES(m8n8_x1, false)
CUDA_EMULATOR_PTX_LOAD_MATRICES(m8n8_x2, false)
CUDA_EMULATOR_PTX_LOAD_MATRICES(m8n8_x4, false)
CUDA_EMULATOR_PTX_LOAD_MATRICES(x1_m8n8, false)
CUDA_EMULATOR_PTX_LOAD_MATRICES(x2_m8n8, false)
CUDA_EMULATOR_PTX_LOAD_MATRICES(x4_m8n8, false)
CUDA_EMULATOR_PTX_LOAD_MATRICES(m8n8_x1_trans, true)
CUDA_EMULATOR_PTX_LOAD_MATRICES(m8n8_x2_trans, true)
CUDA_EMULATOR_PTX_LOAD_MATRICES(m8n8_x4_trans, true)
CUDA_EMULATOR_PTX_LOAD_MATRICES(x1_trans_m8n8, true)
CUDA_EMULATOR_PTX_LOAD_MATRICES(x2_trans_m8n8, true)
CUDA_EMULATOR_PTX_LOAD_MATRICES(x4_trans_m8n8, true)

/* The value of element i of a register. */
struct half_elements {
    static constexpr int each = 2;
    typedef float sum;
    static float at(uint32_t r, int i) { return ik_f16_to_f32(static_cast<uint16_t>(r >> 16 * i)); }
};
struct bfloat_elements {
    static constexpr int each = 2;
    typedef float sum;
    static float at(uint32_t r, int i) { return ik_bf16_to_f32(static_cast<uint16_t>(r >> 16 * i)); }
};
struct tf32_elements {
    static constexpr int each = 1;
    typedef float sum;
    static float at(uint32_t r, int) { return from_bits<float>(r & 0xffffe000u); }
};
struct signed_elements {
    static constexpr int each = 4;
    typedef int sum;
    static int at(uint32_t r, int i) { return static_cast<signed char>(r >> 8 * i); }
};
/* d = a · b + c for 16 × K and K × 8: a lane has two neighbours of row `group` and two of row `group` + 8. */
template <class E, int K>
CUDA_EMULATOR_INLINE void multiply(typename E::sum *d, const uint32_t *a, const uint32_t *b, const typename E::sum *c)
{
    constexpr int REGISTERS = K / (4 * E::each); /* of b; a has twice as many */
    uint64_t all_a[REGISTERS][32], all_b[32];
    for (int r = 0; r < REGISTERS; r++)
        cuda_emulator_meet(CUDA_REDUCE, ~0u, static_cast<uint64_t>(a[2 * r + 1]) << 32 | a[2 * r], 0, 32, all_a[r]);
    cuda_emulator_meet(
        CUDA_REDUCE, ~0u, static_cast<uint64_t>(REGISTERS > 1 ? b[REGISTERS - 1] : 0) << 32 | b[0], 0, 32, all_b);
    const int group = static_cast<int>(special_laneid()) / 4, place = static_cast<int>(special_laneid()) % 4;
    for (int i = 0; i < 4; i++) {
        const int column = 2 * place + i % 2;
        typename E::sum sum = c[i];
        for (int k = 0; k < K; k++) {
            const int lane = k / E::each % 4, r = k / (4 * E::each);
            sum += E::at(static_cast<uint32_t>(all_a[r][4 * group + lane] >> 32 * (i / 2)), k % E::each)
                * E::at(static_cast<uint32_t>(all_b[4 * column + lane] >> 32 * r), k % E::each);
        }
        d[i] = sum;
    }
}
#define CUDA_EMULATOR_PTX_MMA(name, E, K, T) \
    template <class D, class A, class B, class C> \
    CUDA_EMULATOR_INLINE void name( \
        D &d0, D &d1, D &d2, D &d3, A a0, A a1, A a2, A a3, B b0, B b1, C c0, C c1, C c2, C c3) \
    { \
        const uint32_t a[] = { read<uint32_t>(a0), read<uint32_t>(a1), read<uint32_t>(a2), read<uint32_t>(a3) }; \
        const uint32_t b[] = { read<uint32_t>(b0), read<uint32_t>(b1) }; \
        const T c[] = { read<T>(c0), read<T>(c1), read<T>(c2), read<T>(c3) }; \
        T d[4]; \
        multiply<E, K>(d, a, b, c); \
        move<T>(d0, d[0]), move<T>(d1, d[1]), move<T>(d2, d[2]), move<T>(d3, d[3]); \
    }
#define CUDA_EMULATOR_PTX_MMA_SHORT(name, E, K, T) \
    template <class D, class A, class B, class C> \
    CUDA_EMULATOR_INLINE void name(D &d0, D &d1, D &d2, D &d3, A a0, A a1, B b0, C c0, C c1, C c2, C c3) \
    { \
        const uint32_t a[] = { read<uint32_t>(a0), read<uint32_t>(a1) }, b[] = { read<uint32_t>(b0) }; \
        const T c[] = { read<T>(c0), read<T>(c1), read<T>(c2), read<T>(c3) }; \
        T d[4]; \
        multiply<E, K>(d, a, b, c); \
        move<T>(d0, d[0]), move<T>(d1, d[1]), move<T>(d2, d[2]), move<T>(d3, d[3]); \
    }
CUDA_EMULATOR_PTX_MMA(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, half_elements, 16, float)
CUDA_EMULATOR_PTX_MMA(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, bfloat_elements, 16, float)
CUDA_EMULATOR_PTX_MMA(mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32, tf32_elements, 8, float)
CUDA_EMULATOR_PTX_MMA(mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32, signed_elements, 32, int)
CUDA_EMULATOR_PTX_MMA_SHORT(mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32, half_elements, 8, float)
CUDA_EMULATOR_PTX_MMA_SHORT(mma_sync_aligned_m16n8k8_row_col_f32_bf16_bf16_f32, bfloat_elements, 8, float)
/* Sums of F16 are two in a register. */
template <int K, class D>
CUDA_EMULATOR_INLINE void multiply_halves(D &d0, D &d1, const uint32_t *a, const uint32_t *b, uint32_t c0, uint32_t c1)
{
    const float c[] = { half_elements::at(c0, 0), half_elements::at(c0, 1), half_elements::at(c1, 0),
        half_elements::at(c1, 1) };
    float d[4];
    multiply<half_elements, K>(d, a, b, c);
    d0 = static_cast<D>(static_cast<uint32_t>(ik_f32_to_f16(d[1])) << 16 | ik_f32_to_f16(d[0]));
    d1 = static_cast<D>(static_cast<uint32_t>(ik_f32_to_f16(d[3])) << 16 | ik_f32_to_f16(d[2]));
}
template <class D, class A, class B, class C>
CUDA_EMULATOR_INLINE void mma_sync_aligned_m16n8k16_row_col_f16_f16_f16_f16(
    D &d0, D &d1, A a0, A a1, A a2, A a3, B b0, B b1, C c0, C c1)
{
    const uint32_t a[] = { a0, a1, a2, a3 }, b[] = { b0, b1 };
    multiply_halves<16>(d0, d1, a, b, c0, c1);
}
template <class D, class A, class B, class C>
CUDA_EMULATOR_INLINE void mma_sync_aligned_m16n8k8_row_col_f16_f16_f16_f16(D &d0, D &d1, A a0, A a1, B b0, C c0, C c1)
{
    const uint32_t a[] = { a0, a1 }, b[] = { b0 };
    multiply_halves<8>(d0, d1, a, b, c0, c1);
}

} // namespace ptx
} // namespace cuda_emulator
#endif
