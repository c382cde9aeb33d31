/* The program that isokern-gpu starts: the description of the launch, its arguments, signals, and the result. */
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "emulator.h"
#include "isokern_half.h"

namespace cuda_emulator
{

static void refuse(const std::string &text)
{
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(2);
}

/* Memory with pages around it that cannot be accessed. */
char *map_guarded(std::size_t bytes)
{
    const std::size_t size = (bytes + 4095) / 4096 * 4096;
    void *memory = mmap(nullptr, size + 2 * guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        refuse("there is no memory for an array of " + std::to_string(bytes) + " bytes; use a smaller one");
    char *begin = static_cast<char *>(memory) + guard;
    if (size != 0 && mprotect(begin, size, PROT_READ | PROT_WRITE) != 0)
        refuse("there is no memory for an array of " + std::to_string(bytes) + " bytes; use a smaller one");
    return begin;
}

void unmap_guarded(char *begin, std::size_t bytes) { munmap(begin - guard, (bytes + 4095) / 4096 * 4096 + 2 * guard); }

/* Map the memory of `extern __shared__` variables, as much as a block can have. */
void map_dynamic()
{
    dynamic.begin = cuda_emulator_dynamic = map_guarded(MAX_SHARED);
    dynamic.shared = fixed.shared = true;
    dynamic.name = "the dynamic shared memory";
}

/* A line of the description: an argument, or memory to which arguments point. */
struct Given {
    std::string kind, text, file, type, label;
    bool initialised = false, saved = false;
    std::size_t region = 0;
    long long integer = 0;
    double real = 0;
    std::vector<char> initial;
    alignas(8) char value[8] = {};
};

/* Whether an array of NumPy's kind and size, such as f4, is what a pointer of the kernel's type points to. */
static bool fits(std::string wanted, const std::string &given)
{
    wanted.erase(0, wanted[0] == '?');
    if (wanted.empty())
        return true;
    const bool integers = std::strchr("iub", given[0]) != nullptr && std::strchr("iu", wanted[0]) != nullptr;
    const bool bits = std::strchr("hb", wanted[0]) != nullptr && std::strchr("ui", given[0]) != nullptr;
    return wanted.substr(1) == given.substr(1)
        && (wanted[0] == given[0] || integers || bits || (wanted[0] == 'h' && given[0] == 'f'));
}

static const char *spell_type(const std::string &type)
{
    static const std::unordered_map<std::string, const char *> names{ { "f4", "float32" }, { "f8", "float64" },
        { "h2", "float16" }, { "b2", "uint16 (the bits of bfloat16)" }, { "i1", "int8" }, { "u1", "uint8" },
        { "i2", "int16" }, { "u2", "uint16" }, { "i4", "int32" }, { "u4", "uint32" }, { "i8", "int64" },
        { "u8", "uint64" } };
    const auto found = names.find(type.substr(type[0] == '?' ? 1 : 0));
    return found == names.end() ? "another type" : found->second;
}

static void store_number(Given &g, const std::string &type, int number)
{
    const std::string argument = "argument " + std::to_string(number) + ", " + g.text;
    const int size = type.size() > 1 ? type[1] - '0' : 0;
    if (type[0] == '?')
        refuse(argument + "; the kernel's parameter is a structure: pointers and numbers can be given");
    if (type[0] == 'i' || type[0] == 'u') {
        const int bits = 8 * size;
        const bool narrow = bits < 64
            && (type[0] == 'u' ? g.integer >> bits != 0
                               : (g.integer >> (bits - 1) != 0 && g.integer >> (bits - 1) != -1));
        if (g.kind != "int" || narrow || (type[0] == 'u' && g.integer < 0))
            refuse(argument + "; allowed: a whole number that " + spell_type(type) + " holds");
        std::memcpy(g.value, &g.integer, static_cast<std::size_t>(size));
        return;
    }
    if (g.kind != "int" && g.kind != "real")
        refuse(argument + "; allowed: a number");
    const auto single = static_cast<float>(g.real);
    const std::uint16_t half = type[0] == 'b' ? ik_f32_to_bf16(single) : ik_f32_to_f16(single);
    if (size == 8)
        std::memcpy(g.value, &g.real, 8);
    else if (size == 4)
        std::memcpy(g.value, &single, 4);
    else
        std::memcpy(g.value, &half, 2);
}

static void store(std::vector<Given> &given, std::size_t i, const std::string &type)
{
    Given &g = given[i];
    const std::string argument = "argument " + std::to_string(i + 1) + ", " + g.text;
    if (g.kind == "record")
        return;
    if (type[0] != 'p') {
        store_number(g, type, static_cast<int>(i) + 1);
        return;
    }
    if (g.kind == "null")
        return;
    if (g.kind != "array")
        refuse(argument + "; allowed: an array, or null");
    if (!g.type.empty() && !fits(type.substr(1), g.type))
        refuse(argument + "; the kernel's parameter points to " + spell_type(type.substr(1)) + ": convert the array");
    char *const at = arrays[g.region].begin + g.integer;
    std::memcpy(g.value, &at, sizeof at);
}

static void load_array(Given &g)
{
    std::ifstream in(g.file, std::ios::binary);
    g.initial.assign(std::istreambuf_iterator<char>(in), {});
    Region r;
    r.bytes = g.initial.size();
    r.begin = map_guarded(r.bytes);
    r.name = g.label;
    r.watched = !g.initialised;
    r.saved = g.saved;
    g.region = arrays.size();
    arrays.push_back(std::move(r));
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const auto *const c = static_cast<const ucontext_t *>(context);
#if defined(__x86_64__)
    Pc pc = reinterpret_cast<Pc>(c->uc_mcontext.gregs[REG_RIP]) + 1;
#else
    Pc pc = reinterpret_cast<Pc>(c->uc_mcontext.pc) + 1;
#endif
    signal(number, SIG_DFL);
    const int thread = self == nullptr ? 0 : self->id;
    if (launch.check && self != nullptr && self->pc != nullptr)
        pc = self->pc; /* the last access that was announced */
    const char *const at = static_cast<const char *>(info->si_addr);
    const ik_emulation::Rule *rule = &rules::crash;
    std::string what = number == SIGSEGV || number == SIGBUS ? "accesses memory that is not there"
                                                             : "causes signal " + std::to_string(number);
    if (number == SIGALRM) {
        rule = &rules::endless;
        what = "still runs when the time is over";
    } else if (number == SIGFPE) {
        rule = &rules::division;
        what = "divides an integer by zero";
    } else if (self != nullptr && self->fiber.stack().in_guard(at)) {
        what = "overflows its stack of " + std::to_string(STACK >> 10) + " KiB for local variables and calls";
    } else if (number == SIGSEGV && self == nullptr && !describe_host_access(at).empty()) {
        rule = &rules::host_access;
        what = describe_host_access(at);
    } else if (number == SIGSEGV && !describe_freed(at).empty()) {
        rule = &rules::wild_pointer;
        what = describe_freed(at);
    } else if (number == SIGSEGV) {
        rule = self == nullptr ? &rules::crash : &rules::wild_pointer;
        for (const Region &r : arrays)
            if (at >= r.begin - guard && at < r.begin + r.bytes + guard) {
                rule = &rules::global_bounds;
                what = "accesses offset " + std::to_string(at - r.begin) + " of " + r.name + ", which has "
                    + std::to_string(r.bytes) + " bytes";
            }
    }
    if (self == nullptr && launch.program)
        find_host(*rule, pc, what, "");
    else
        find(*rule, block_number, thread, pc, what, "");
    launch.stopped = true;
    report();
    _exit(1);
}

void catch_signals(unsigned seconds)
{
    static char stack[64 << 10];
    stack_t own{};
    own.ss_sp = stack;
    own.ss_size = sizeof stack;
    sigaltstack(&own, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int number : { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM })
        sigaction(number, &action, nullptr);
    alarm(seconds);
}

} // namespace cuda_emulator

using namespace cuda_emulator;

extern "C" int cuda_emulator_main(char **argv, const char *const *types, int count, void (*call)(void *))
{
    std::ifstream in(argv[1]);
    std::vector<Given> given, memories;
    std::uint64_t seeds = 1, shared = 0;
    unsigned limit = 60;
    for (std::string line; std::getline(in, line);) {
        std::vector<std::string> f;
        std::stringstream parts(line);
        for (std::string part; std::getline(parts, part, '\t');)
            f.push_back(part);
        const auto number = [&](std::size_t i) { return std::strtoull(f[i].c_str(), nullptr, 10); };
        const auto index = [&] {
            return Index{ static_cast<unsigned>(number(1)), static_cast<unsigned>(number(2)),
                static_cast<unsigned>(number(3)) };
        };
        if (f[0] == "grid")
            gridDim = launch.grid = index();
        else if (f[0] == "block")
            blockDim = launch.block = index();
        else if (f[0] == "shared")
            shared = number(1);
        else if (f[0] == "seeds")
            launch.first_seed = number(1), seeds = number(2);
        else if (f[0] == "check")
            launch.check = number(1) != 0;
        else if (f[0] == "limit")
            limit = static_cast<unsigned>(number(1));
        else if (f[0] == "report")
            launch.json = f.size() > 1 ? f[1] : "";
        else if (f[0] == "kernel")
            launch.kernel = f[1];
        else {
            Given g;
            g.kind = f[0];
            g.text = f[1];
            if (g.kind == "array" || g.kind == "memory") {
                g.file = f[2];
                g.type = f[3];
                g.initialised = f[4] == "1";
                g.saved = f[5] == "1";
                g.label = f[6];
                load_array(g);
            } else if (g.kind == "same") {
                const auto of = static_cast<std::size_t>(number(2));
                g.kind = "array";
                g.type = given[of].type;
                g.region = given[of].region;
            } else if (g.kind == "pointer") {
                g.kind = "array";
                g.region = static_cast<std::size_t>(number(2));
                g.integer = static_cast<long long>(number(3));
            } else if (g.kind == "record") {
                std::ifstream bytes(f[2], std::ios::binary);
                g.initial.assign(std::istreambuf_iterator<char>(bytes), {});
            } else if (g.kind != "null") {
                g.integer = std::strtoll(f[2].c_str(), nullptr, 10);
                g.real = std::strtod(f[2].c_str(), nullptr);
            }
            (g.kind == "memory" ? memories : given).push_back(std::move(g));
        }
    }
    if (static_cast<int>(given.size()) != count)
        refuse(std::to_string(given.size()) + " arguments; allowed: the kernel takes " + std::to_string(count));
    for (std::size_t i = 0; i < given.size(); i++)
        store(given, i, types[i]);
    std::vector<const Given *> files;
    for (const std::vector<Given> *list : { &given, &memories })
        for (const Given &g : *list)
            if (!g.file.empty())
                files.push_back(&g);
    std::vector<void *> values; /* where each argument is */
    for (Given &g : given)
        values.push_back(g.kind == "record" ? g.initial.data() : g.value);
    kernel_call = call;
    kernel_given = values.data();
    set_threads(static_cast<int>(launch.block.x * launch.block.y * launch.block.z));
    read_symbols(argv[2]);
    map_dynamic();
    dynamic.bytes = shared;
    if (fixed.bytes + shared > MAX_SHARED)
        refuse(std::to_string(fixed.bytes + shared) + " bytes of shared memory; a block has at most 232448");
    catch_signals(limit);
    for (std::uint64_t seed = launch.first_seed; seed < launch.first_seed + seeds; seed++) {
        for (const Given *g : files)
            if (!g->initial.empty())
                std::memcpy(arrays[g->region].begin, g->initial.data(), g->initial.size());
        forget_contents();
        run_grid(seed);
        std::fflush(stdout);
        if (seed == launch.first_seed && !launch.stopped)
            for (const Given *g : files)
                if (g->saved)
                    std::ofstream(g->file, std::ios::binary)
                        .write(arrays[g->region].begin, static_cast<std::streamsize>(arrays[g->region].bytes));
        if (launch.stopped)
            break;
    }
    return report();
}
