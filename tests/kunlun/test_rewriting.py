"""Test that launches become calls, and that all of the author's lines keep their numbers."""

from __future__ import annotations

import re

import pytest

from isokern_kunlun_sim.rewriting import KernelName, kernels, place, rewrite


def body(text: str) -> str:
    return rewrite(text, "k.xpu")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("f<<<1, 64>>>(x);", '::xpusim::kernel(f, "f").on(1, 64)(x);'),
        ("int s = f <<< n, 64, stream >>> (a, b);", 'int s = ::xpusim::kernel(f, "f").on( n, 64, stream ) (a, b);'),
        ("f<float><<<c, 64, s>>>(x);", '::xpusim::kernel(f<float>, "f<float>").on(c, 64, s)(x);'),
        ("a::f<T<int>, 3><<<c, 64>>>(x);", '::xpusim::kernel(a::f<T<int>, 3>, "a::f<T<int>, 3>").on(c, 64)(x);'),
    ],
)
def test_a_launch_becomes_a_call(given: str, made: str) -> None:
    assert body(given) == made


def test_comments_and_strings_are_left_alone() -> None:
    text = '// f<<<1, 2>>>(x)\n/* g<<<\n1>>>(y) */ const char *s = "h<<<1>>>(z)"; int i = 1 << 3 >> 1;\n'
    assert body(text) == text


def test_lines_stay() -> None:
    text = "int a;\nf<<<1,\n  64>>>(\n x);\nint b;\n"
    assert [n for n, line in enumerate(body(text).splitlines()) if "int b" in line] == [4]


@pytest.mark.parametrize("text", ["\n\nf<<<1, 2>>>;", "x = <<<1>>>(2);", "f<<<1, 2(x);"])
def test_what_is_no_launch_is_told_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=f"k.xpu:{text.count(chr(10)) + 1}: <<<"):
        rewrite(text, "k.xpu")


@pytest.mark.parametrize(
    ("given", "whole"),
    [
        ("__group_shared__ float m[64];", {"m": "float[64]"}),
        ("__group_shared__ __simd__ unsigned\n int m[2][3], n;", {"m": "unsigned int[2][3]", "n": "unsigned int"}),
        ("__group_shared__ a::b<int> m[ N + 1 ];", {"m": "a::b<int>[N+1]"}),
    ],
)
def test_a_group_shared_object_becomes_one_a_group(given: str, whole: dict[str, str]) -> None:
    made = body(f"{given} int after;")
    for name, kind in whole.items():
        assert f"static thread_local xpusim_padded<{kind}> xpusim_groups_{name}[16]; " in made
        assert f"auto &{name} = xpusim_of_group(xpusim_groups_{name}); " in made
    assert made.count("\n") == given.count("\n")
    assert made.endswith(" int after;")


def test_a_cast_between_vectors_becomes_a_function() -> None:
    made = body(
        "a = reinterpret_cast<float32x16_t>(b); c = reinterpret_cast< int16x32_t >(d); p = reinterpret_cast<char *>(q);"
    )
    assert made == (
        "a = ::xpusim::vector_cast<float32x16_t>(b); c = ::xpusim::vector_cast<int16x32_t>(d);"
        " p = reinterpret_cast<char *>(q);"
    )


@pytest.mark.parametrize("keywords", ["asm", "__asm__ __volatile__", "asm volatile "])
def test_inline_assembly_becomes_a_call_on_its_line(keywords: str) -> None:
    made = body(f'// __asm__\nvoid f(int x) {{ {keywords}("nop %0, (\\n"\n  : "=r"(x)); }}')
    assert made == "// __asm__\nvoid f(int x) { ::xpusim::assembly()\n; }"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ('asm("mfence{lm}");', "::mfence_lm();"),
        (
            '__asm__ __volatile__("loada.w %0,%1" : "=&r"(a[f(1, 2)]) : "r"(p ? p : q));',
            "(a[f(1, 2)]) = ::SM2REG_atomic(p ? p : q);",
        ),
        ('asm("storea.w %0, %1, %2\\t\\n":"=&r"(a) :"r"(n::v), "r"(p) : "memory");', "(a) = ::REG2SM_atomic(p, n::v);"),
        ('asm("storea.w %0,%1,%2" : : "r"(v), "r"(p));', "::xpusim::assembly();"),
        ('asm("loada.w %0,%1\\n" "nop" : "=&r"(a) : "r"(p));', "::xpusim::assembly();"),
        ('asm("mfence{sm}; mfence{lm}");', "(::mfence_sm(), ::mfence_lm());"),
        (
            'asm("sync_local\\t\\n" "csr_set csr3, %0\\t\\n" "sync_group csr3" :: "r"(-1));',
            "(::sync_local(), ::sync_group(-1));",
        ),
        ('asm("csr_set csr3, %0" :: "r"(1));', "::xpusim::assembly();"),
        ('asm("vfloat2fix8_hl.rn %0, %2" : "=&v"(q) : "v"(x));', "::xpusim::assembly();"),
        (
            'asm("vfloat2fix8_hl.rn %0, %1" : "=&v"(q) : "v"(x));',
            "(q) = ::xpusim::narrow_quarter_to_bytes(x, q, 2);",
        ),
        (
            'asm("vfloat2fix8_lh.rn vr0, %0\\n" "vstore.mz vr0{mr1}, 0(%1)" :: "v"(x), "r"(p) : "vr0");',
            "::vstore_lm_int8x64(p, ::xpusim::narrow_quarter_to_bytes(x, ::xpusim::zero<int8x64_t>(), 1));",
        ),
    ],
)
def test_instructions_of_a_public_meaning_become_functions(given: str, made: str) -> None:
    assert body(given) == made


G = "__attribute__((xpusim_pointer))"
AT = "::xpusim::local_pointer"


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("void f(float *p, int n) {", "void f(float *p, int n) { const ::xpusim::local_pointers xpusim_parameters(p);"),
        (f"int f(float p[4], {G} int *q) {{", "int f(float p[4],  int *q) { const … xpusim_parameters(p);"),
        ("[=](const char *const p) -> int {", "[=](const char *const p) -> int { const … xpusim_parameters(p);"),
        ("template <class T> void f(T *p) {", None),
        ("__attribute__((xpusim_kernel)) void f(float *p) {", None),
        ("void f(int n, float (*g)(float *), float *&r) { if (g(p * n)) {", None),
        ("constexpr int f(const int *p) {", None),
        ("struct s { float *p; }; x = a[2].s->p[3];", f"struct s {{ float *p; }}; x = {AT}(a[2].s->p)[3];"),
        (
            "struct s { float *p; }; x = *f(1).p; y = &t.p[3];",
            f"struct s {{ float *p; }}; x = *{AT}(f(1).p); y = &t.p[3];",
        ),
        (f"struct s {{ {G} float *p; }}; x = 1 + a.p[3];", "struct s {  float *p; }; x = 1 + a.p[3];"),
        ("struct s { float *p; }; x = g<int>(1).p[3];", None),
        ("long long n = 1; unsigned long long m = 2; long double d = 3; int64_t k = 4; n = 5;", None),
        ("long n = f(1, 2); n += 3;", "long n =::xpusim::fits<long>( f(1, 2)); ::xpusim::fitted(n += 3);"),
        ("for (size_t i = 0, j = 1; i < 2; i++)", "for (size_t i =::xpusim::fits<size_t>( 0), j = 1; i < 2; i++)"),
        ("size_t n = f<a, b>(c);", None),
        ("template <int A, size_t N = 4> struct s;", None),
        ("size_t n{}; size_t m = {}; if (n == 3) f(n);", None),
        ("; int a = x[i], b; y = x[i + 1];", "; int a = (…moved(x[i]), x[i]), b; y = (…moved(x[i + 1]), x[i + 1]);"),
        ("int a = x[i++]; auto &r = x[i]; a == x[i]; a = x[i] + 1; b = x[f(i)];", None),
        (
            "void f(int i) { int a = x[i], b; if (i) b = a; else y[0] = b; }",
            "void f(int i) { int a = (…moved(x[i]), x[i]), b; …moved_to(a); "
            "if (i) (b = (…moved_on(a), a), …moved_to(b)); else (y[0] = (…moved_on(b), b), …moved_to()); }",
        ),
        (
            "void f(int i) { const float v = x[i]; }",
            "void f(int i) { ::std::remove_const_t<const float > xpusim_moved_to_v = (…moved(x[i]), x[i]); "
            "…moved_to(xpusim_moved_to_v); const float &v = xpusim_moved_to_v; }",
        ),
        (
            "long n = 1; void f(int i) { n = x[i]; }",
            "long n =…fits<long>( 1); void f(int i) { (…fitted(n = (…moved(x[i]), x[i])), …moved_to(n)); }",
        ),
        ("void f(int i) { const float v = x[i], w = 1; for (int a = x[i], b = x[i]; i; a = x[i], i++) {} }", None),
        ("constexpr int t[] = { 1 }; void f() { const int n = t[0]; const int m = n; }", None),
        ("struct s { int a = x[0], b; }; enum { A = x[0], B }; void f(int a = x[0], int b = x[1], int c = 2) {}", None),
        ("void f(int i) { [&, a = x[i], i] {}; g(1, a = x[i], 2); decltype(i) b = x[i]; }", None),
    ],
)
def test_a_checked_kernel_announces_what_its_types_mean(given: str, made: str | None) -> None:
    whole = "const ::xpusim::local_pointers"
    expected = given if made is None else made.replace("const …", whole).replace("…", "::xpusim::")
    assert rewrite(given, "k.xpu", checked=True) == expected
    assert rewrite(given, "k.xpu") == given.replace(G, "")


COPY = "void bring(const void *p) { xpu_memcpy_async(y, p, 4, 1, s); } "


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("void f() { int x[4] = { 1, 2 }, *p = x; bring(x); }", ["x"]),
        ("void f() { int x = 1, z = 2; std::vector<int> v(3); bring(&x); bring(v.data()); }", ["x", "v"]),
        ("void f() { auto g = [&](int n) { int own[2] = { n }; bring(own); }; k<<<1, 2>>>(); }", ["own"]),
        ("void f() { bring(p); } int g(int n) { long long x[2]; f(); }", ["x"]),
        ("void f(int n) { static int x[4]; bring(x); return n; }", []),
        ("void f(int n) { int x[4]; switch (n) { case 1: bring(x); } }", []),
        ("int pure(int n) { int x[4] = { 1 }; return x[n]; }", []),
        ("void f() { struct s { int x[4]; }; bring(p); }", []),
        ("void f() { struct alignas(sizeof(int) * (4)) s { int x[4]; }; bring(p); }", []),
        ("__attribute__((xpusim_kernel)) void k(int *y) { int x[4] = { 1 }; f(x); } void f(int *p) { bring(p); }", []),
    ],
)
def test_what_the_host_declares_is_announced_to_end(given: str, names: list[str]) -> None:
    made = rewrite(COPY + given, "k.xpu", checked=True)
    assert re.findall(r"const ::xpusim::lifetime xpusim_lifetime_\w+\((\w+)\);", made) == names
    assert "lifetime" not in rewrite(COPY + given, "k.xpu")
    assert "lifetime" not in rewrite(given, "k.xpu", checked=True), "nothing is copied"


@pytest.mark.parametrize("flags", ["3", "3 4"])
def test_a_macro_of_a_system_header_is_the_authors_code(flags: str) -> None:
    own, system = '# 3 "k.xpu"', f'# 3 "k.xpu" {flags}'
    parts = [system, "__builtin_va_start(", own, "list", system, ",", own, "last", system, ")", own, ";"]
    text = "\n".join(['# 1 "k.xpu"', "void f(int last, ...)", "{", *parts, "}", ""])
    assert rewrite(text, "k.xpu", checked=True) == text


LOCAL = "void f(int n) {{ {0} }}"
SHARED = "static thread_local __attribute__((aligned(64)))"


@pytest.mark.parametrize(
    ("given", "zoned"),
    [
        ("float x[4];", ["x"]),
        ("const __attribute__((aligned(64))) float x[4][2 * 3], y, z[7 % 4];", ["x", "z"]),
        ("float *x[4];", ["x"]),
        (f"{SHARED} float x[4];", ["x"]),
        (f"{SHARED} int n, x[64];", ["x"]),
        ("constexpr int m = 4; float x[m];", ["x"]),
        ("float x[n];", []),
        ("float x[m + 1];", []),
        ("float *p, x[4];", []),
        ("float x[4] = {};", []),
        ("struct { float x[4]; } s;", []),
        ("switch (n) { case 0: break; float x[4]; }", []),
        ("float x[4]; decltype(x) y;", []),
        ("float x[4]; again: if (n) goto again;", []),
        (f"{SHARED} int n;", []),
    ],
)
def test_arrays_of_a_constant_size_lie_between_zones(given: str, zoned: list[str]) -> None:
    text = LOCAL.format(given)
    assert re.findall(r"auto &(\w+) = xpusim_zoned_\1\.xpusim_array;", rewrite(text, "k.xpu", checked=True)) == zoned
    assert "zone" not in rewrite(text, "k.xpu")


def test_a_name_that_is_also_a_variable_is_no_constant() -> None:
    text = "template <int n> void f() { float x[n]; } void g(int n) { float y[n]; }"
    assert "zoned" not in rewrite(text, "k.xpu", checked=True)
    assert "zoned" in rewrite(text.replace("int n)", "int m)").replace("y[n]", "y[m]"), "k.xpu", checked=True)


# What the preprocessor makes of a file: its lines, those of headers, and those of system headers
EXPANDED = """# 0 "k.xpu"
# 1 "k.xpu"
# 1 "/usr/include/s.h" 1 3 4
extern int f() __asm__ ("g"); int a = b<<<c;
# 2 "k.xpu" 2
# 1 "the header.h" 1
int one;
void h() { k<float>
# 7 "the header.h"
            <<<1, 64>>>(x); }
# 3 "k.xpu" 2
int three;
"""


def test_only_what_is_the_author_s_is_rewritten_and_its_lines_stay() -> None:
    made = rewrite(EXPANDED, "k.xpu")
    launch = '::xpusim::kernel(k<float>, "k<float>")\n# 7 "the header.h"\n.on(1, 64)(x); }'
    assert made == EXPANDED.replace('k<float>\n# 7 "the header.h"\n            <<<1, 64>>>(x); }', launch)


@pytest.mark.parametrize(("at", "line"), [("one", "the header.h:1"), ("<<<1", "the header.h:7"), ("three", "k.xpu:3")])
def test_a_place_is_told_with_its_file(at: str, line: str) -> None:
    assert place(EXPANDED, EXPANDED.index(at), "k.xpu") == line


def test_a_launch_in_a_header_is_told_with_the_header_s_line() -> None:
    with pytest.raises(ValueError, match=r"^the header\.h:7: <<< is not part of a launch"):
        rewrite(EXPANDED.replace(">>>(x)", ">>>"), "k.xpu")


def test_kernels_have_their_namespaces() -> None:
    text = """
    __global__ void a(int n) { if (n) { } }
    namespace b { namespace { __global__ void c(); } struct d { int e; }; }
    namespace f::g { template <class T, int N> static __global__ void h(T *x); using namespace b; }
    namespace i = f; extern "C" { void __global__ j(); __global__ void __attribute__((noinline)) l(int); }
    __attribute__((xpusim_kernel)) void a(int n); // "namespace x {" __global__ void y()
    """
    names = [
        KernelName("a", False),
        KernelName("b::c", False),
        KernelName("f::g::h", True),
        KernelName("j", False),
        KernelName("l", False),
    ]
    assert kernels(text) == names


@pytest.mark.parametrize("kind", ["long", "unsigned long", "const size_t", "std::ptrdiff_t", "long int"])
def test_a_parameter_that_the_device_reads_differently_is_told(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^k\.xpu:2: f: .* has 32 bits on the device and 64 on the host"):
        rewrite(f"\n__global__ void f(int n, {kind} m) {{}}", "k.xpu")


def test_parameters_of_64_bits_and_pointers_are_taken() -> None:
    text = "__global__ void f(long long n, unsigned long long int m, int64_t k, const uint64_t l, const long *p) {}"
    assert rewrite(text, "k.xpu") == text


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("float x[16];", " ::xpusim::fresh(&x, sizeof x, x[0]);"),
        (
            "__local__ __simd__ float x[16], y[4][N], *z;",
            " ::xpusim::fresh(&x, sizeof x, x[0]); ::xpusim::fresh(&y, sizeof y, y[0][0]);",
        ),
        ("std::pair<int, int> *p[2 * N];", " ::xpusim::fresh(&p, sizeof p, p[0]);"),
        ("auto f = [&](int i) { int c[4]; return c[i]; };", None),
        ("__attribute__((aligned(64))) float x[16];", " ::xpusim::fresh(&x, sizeof x, x[0]);"),
        ("float x[2] = {1, 2};", ""),
        ("__shared__ float x[16];", ""),
        ("static const int *x[16];", ""),
        ("return x[3];", ""),
        ("if (n) y = 1; else x[3];", ""),
        ("struct s { float x[4]; } y;", ""),
        ("x[3] = y[2];", ""),
        ("for (int i = 0; i < n; i++) x[i];", ""),
        ('const char *s = "int x[4];"; // int y[3];', ""),
    ],
)
def test_a_local_array_begins_anew(statement: str, after: str | None) -> None:
    expected = (
        statement.replace("c[4];", "c[4]; ::xpusim::fresh(&c, sizeof c, c[0]);") if after is None else statement + after
    )
    for begin, end in (("void f(int n) {", "}"), ("struct t { void f() const\n{ if (n) {", "} } };")):
        assert body(f"{begin} {statement} {end}") == f"{begin} {expected} {end}"


@pytest.mark.parametrize("text", ["float x[4];", "struct s { float x[4]; };", "namespace n { float x[4]; }"])
def test_an_array_outside_of_functions_stays(text: str) -> None:
    assert body(text) == text
