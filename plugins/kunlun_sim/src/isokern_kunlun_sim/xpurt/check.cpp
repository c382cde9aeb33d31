#include "check_state.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "atomic.h"
#include "fault.h"

namespace xpurt
{

/* A pattern that is NaN as a half, a bfloat16, a float and a double. */
static constexpr std::uint32_t POISON = 0xfff7fff3;
/* The most bytes of a new allocation that are poisoned. */
static constexpr std::uint64_t POISONED = std::uint64_t{ 256 } << 20;

void poison(char *at, std::uint64_t bytes)
{
    std::uint64_t done = std::min<std::uint64_t>(bytes, 64);
    for (std::uint64_t i = 0; i < done; i++)
        at[i] = static_cast<char>(POISON >> (reinterpret_cast<std::uintptr_t>(at + i) % 4 * 8));
    for (; done < bytes; done *= 2)
        std::memcpy(at + done, at, std::min(done, bytes - done));
}

GmShadow::GmShadow(std::uint64_t n) : bytes(n)
{
    void *memory = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        throw std::bad_alloc();
    written = static_cast<std::uint8_t *>(memory);
}

GmShadow::~GmShadow() { munmap(written, bytes); }

std::shared_ptr<GmShadow> gm_shadow(char *start, std::uint64_t bytes)
{
    if (!settings().checked || bytes == 0)
        return nullptr;
    poison(start, std::min(bytes, POISONED));
    return std::make_shared<GmShadow>(bytes);
}

void record_gm_write(const void *to, std::uint64_t bytes)
{
    auto a = memory().find(to);
    if (a != nullptr && a->shadow != nullptr && a->has(to))
        std::memset(a->shadow->written + (static_cast<const char *>(to) - a->start), 1, bytes);
}

void record_gm_copy(const void *to, const void *from, std::uint64_t bytes)
{
    auto a = memory().find(to), b = memory().find(from);
    if (a == nullptr || a->shadow == nullptr || b == nullptr || b->shadow == nullptr)
        return;
    std::memmove(a->shadow->written + (static_cast<const char *>(to) - a->start),
        b->shadow->written + (static_cast<const char *>(from) - b->start), bytes);
}

namespace check
{

/* Never destroyed: a stream's thread may run a launch while the process ends. */
alignas(State) static char state_memory[sizeof(State)];
State &state = *new (state_memory) State;
thread_local Core *self = nullptr;

static std::mutex one_launch, one_finding;

static ik_emulation::Findings &findings()
{
    static auto *all = [] {
        auto *made = new ik_emulation::Findings("xpurt", "core", "cluster");
        const char *path = std::getenv("ISOKERN_XPU_SUPPRESS");
        if (path != nullptr && *path != '\0' && !made->suppress(path))
            std::fprintf(stderr, "xpurt: ISOKERN_XPU_SUPPRESS=%s cannot be read\n", path);
        return made;
    }();
    return *all;
}

std::string spell(const Site &s)
{
    if (s.file != nullptr)
        return std::string(s.file) + ":" + std::to_string(s.line);
    return s.pc == nullptr ? "" : state.library->line(s.pc);
}

/* The caller holds `one_finding`. */
static void count_error(const Rule &rule, int number)
{
    if (number >= 0 && rule.severity == ik_emulation::Severity::error)
        state.errors++;
}

bool is_repeated(const Rule &rule, const Site &site, const Site &other)
{
    const auto found = state.reported.find({ &rule, state.launch->function.kernel, site, other });
    if (found == state.reported.end())
        return false;
    const std::lock_guard lock(one_finding);
    findings().again(found->second);
    count_error(rule, found->second);
    return true;
}

static void add(const Rule &rule, const Site &site, const Site &other, ik_emulation::Finding f)
{
    f.rule = &rule;
    f.kernel = state.launch->name;
    const std::lock_guard lock(one_finding);
    const int number = findings().add(std::move(f));
    state.reported[{ &rule, state.launch->function.kernel, site, other }] = number;
    count_error(rule, number);
}

void report(const Rule &rule, const Core &c, const Site &site, const std::string &what, const std::string &bytes,
    const std::string &remedy)
{
    if (is_repeated(rule, site))
        return;
    ik_emulation::Finding f;
    f.place = { state.cluster, c.id, spell(site), what };
    f.bytes = bytes;
    f.remedy = remedy;
    add(rule, site, Site(), std::move(f));
}

static void report_pair(const Rule &rule, const Core &c, const Site &site, const std::string &what,
    const std::string &bytes, int other_cluster, int other_core, const Site &other_site, const std::string &other_what,
    const std::string &remedy)
{
    if (is_repeated(rule, site, other_site))
        return;
    ik_emulation::Finding f;
    f.place = { state.cluster, c.id, spell(site), what };
    f.other = { other_cluster, other_core, spell(other_site), other_what };
    f.bytes = bytes;
    f.remedy = remedy;
    add(rule, site, other_site, std::move(f));
}

void report(const Rule &rule, const Core &c, const Site &site, const std::string &what, const std::string &bytes,
    const Core &other, const Site &other_site, const std::string &other_what, const std::string &remedy)
{ report_pair(rule, c, site, what, bytes, state.cluster, other.id, other_site, other_what, remedy); }

void report_access(const Rule &rule, const Core &c, const Site &site, const std::string &what, const std::string &bytes,
    const Access &theirs, const std::string &other_what, const std::string &remedy)
{
    report_pair(
        rule, c, site, what, bytes, theirs.group, theirs.member, state.origins[theirs.origin].site, other_what, remedy);
}

std::string plural(std::uint64_t count, const char *what)
{ return std::to_string(count) + " " + what + (count == 1 ? "" : "s"); }

/* Launches */

Checks::Checks(const Launch &l) : lock_(one_launch)
{
    state.launch = &l;
    state.model = settings().model;
    state.errors = 0;
    state.library = Library::of(reinterpret_cast<const void *>(l.function.kernel));
    state.accesses.assign(1, Access());
    state.origins.assign(1, Origin());
    state.atomics.clear();
    state.profile.clear();
    state.sm_reported = false;
    state.sm_max = 0;
    for (auto &near : state.near)
        near = nullptr;
}

static std::string counts_of(const Counts &k)
{
    std::string j;
    for (int d = 0; d < 6; d++)
        if (k.copies[d] != 0)
            j += std::string(", \"") + name_of(static_cast<xpusim_direction>(d))
                + "\": {\"copies\": " + std::to_string(k.copies[d]) + ", \"bytes\": " + std::to_string(k.bytes[d])
                + ", \"lines\": " + std::to_string(k.lines[d]) + "}";
    const std::pair<const char *, std::uint64_t> all[] = { { "fences", k.fences }, { "barriers", k.barriers },
        { "gm_loads", k.gm_loads }, { "gm_stores", k.gm_stores }, { "vector_loads", k.vector_loads },
        { "vector_stores", k.vector_stores }, { "scalar_loads", k.scalar_loads }, { "scalar_stores", k.scalar_stores },
        { "atomics", k.atomics }, { "lm", k.lm } };
    for (const auto &[name, value] : all)
        if (value != 0)
            j += std::string(", \"") + name + "\": " + std::to_string(value);
    return j;
}

/* Write one line of JSON for the launch. */
static void write_profile()
{
    const char *path = std::getenv("ISOKERN_XPU_PROFILE");
    if (path == nullptr || *path == '\0')
        return;
    std::FILE *file = std::fopen(path, "a");
    if (file == nullptr) {
        std::fprintf(stderr, "xpurt: ISOKERN_XPU_PROFILE=%s cannot be written\n", path);
        return;
    }
    const Launch &l = *state.launch;
    std::string j = "{\"kernel\": " + ik_emulation::quote(l.name) + ", \"launch\": " + std::to_string(l.number)
        + ", \"model\": " + ik_emulation::quote(state.model.name) + ", \"fix_mfence\": "
        + (settings().fix_mfence ? "\"all\"" : "\"none\"") + ", \"clusters\": " + std::to_string(l.clusters)
        + ", \"cores\": " + std::to_string(l.cores) + ", \"sm\": " + std::to_string(state.sm_max) + ", \"per_core\": [";
    for (std::size_t i = 0; i < state.profile.size(); i++)
        j += (i == 0 ? "" : ", ") + state.profile[i];
    j += "]}\n";
    std::fwrite(j.data(), 1, j.size(), file);
    std::fclose(file);
}

/* The caller holds `one_finding`. */
static void report_findings()
{
    const char *report = std::getenv("ISOKERN_XPU_REPORT");
    if (findings().report_findings(stderr, report == nullptr ? "" : report, seed()))
        std::fprintf(stderr, "xpurt: found with ISOKERN_XPU_SEED=%llu%s\n", static_cast<unsigned long long>(seed()),
            settings().fix_mfence ? " ISOKERN_XPU_FIX_MFENCE=all" : "");
}

std::uint64_t Checks::end()
{
    use_launched(state.launch->moment);
    write_profile();
    const std::lock_guard lock(one_finding);
    report_findings();
    return state.errors;
}

Checks::~Checks()
{
    for (const auto &shadow : state.touched) {
        shadow->cells.clear();
        shadow->touched = false;
    }
    state.touched.clear();
    for (auto &near : state.near)
        near = nullptr;
}

/* Clusters */

/* Reset a core's stack to what a kernel finds: poisoned, and no byte of it written. */
static void reset(Core &c, int id)
{
    const auto &stack = state.group->stack(id);
    char *low = stack.high() - WINDOW;
    if (c.window_state.empty()) {
        c.window_state.resize(WINDOW + 64);
        c.window_stale.resize(WINDOW + 64);
    }
    c.id = id;
    /* Bytes below are unchanged since the last reset. */
    char *from = c.low == low && c.mark != nullptr ? std::max(low, std::min(c.mark, c.lowest_zone)) : low;
    c.low = low;
    c.high = stack.high();
    c.base = c.high;
    c.deepest = c.mark = c.fast = c.lowest_zone = c.high;
    c.beyond = {};
    c.arguments_end = c.high;
    c.state = c.window_state.data();
    c.stale = c.window_stale.data();
    poison(from, static_cast<std::uint64_t>(c.high - from));
    std::memcpy(c.stale + (from - low), from, static_cast<std::size_t>(c.high - from));
    std::memset(c.state + (from - low), 0, static_cast<std::size_t>(c.high - from));
    c.depth = 0;
    c.knowledge.group = state.cluster;
    c.knowledge.own = {};
    c.knowledge.others.clear();
    c.now = 1;
    c.flights.clear();
    c.suspicions.clear();
    c.as_local.clear();
    c.zones.clear();
    std::memset(c.recent, 0, sizeof c.recent);
    c.counts = {};
    c.barriers = 0;
    c.stored = {};
    c.moving = nullptr;
    c.moved = {};
    c.moves = c.ended = c.overflow = false;
    c.reached = 0;
    c.arrays.clear();
}

void begin_cluster(ik_emulation::Group &group, int cluster, std::uint64_t seed)
{
    state.group = &group;
    state.cluster = cluster;
    state.count = state.launch->cores;
    state.random.seed(seed);
    state.serial++;
    for (int i = 0; i < state.count; i++)
        reset(state.cores[i], i);
    state.sm = state.library->segment();
    state.sm_bytes = state.sm == nullptr ? 0 : state.library->segment_bytes();
    state.sm_written.assign(state.sm_bytes, 0);
    state.sm_cells.clear();
    state.sm_used = 0;
    state.sm_has_lock = false;
    const std::size_t initialised = std::min(state.library->initialised_bytes(), state.sm_bytes);
    std::fill_n(state.sm_written.begin(), initialised, std::uint8_t{ 1 });
    if (state.sm != nullptr)
        poison(state.sm + initialised, state.sm_bytes - initialised);
    for (auto it = state.atomics.begin(); it != state.atomics.end();)
        it = it->first == nullptr || (it->first >= state.sm && it->first < state.sm + state.sm_bytes)
            ? state.atomics.erase(it)
            : std::next(it);
    state.groups_own.clear();
    state.moved_bytes.clear();
    state.interval = 0;
    state.stagers.assign(1, Stager());
}

void end_cluster()
{
    self = nullptr;
    state.sm_max = std::max(state.sm_max, state.sm_used);
    for (int i = 0; i < state.count; i++) {
        const Core &c = state.cores[i];
        state.profile.push_back("{\"cluster\": " + std::to_string(state.cluster) + ", \"core\": " + std::to_string(i)
            + counts_of(c.counts) + "}");
    }
}

void exception(const Failure &failure, const std::string &where)
{
    const int number = failure.exception;
    ik_emulation::Finding f;
    f.place = { state.cluster, failure.core, where,
        number == XPUSIM_TASK_TIMEOUT ? failure.what
                                      : "raises exception " + std::to_string(number) + ": " + failure.what };
    const Rule &rule = number == XPUSIM_SIMD_UNALIGNED ? rules::simd_alignment
        : number != XPUSIM_TASK_TIMEOUT                ? rules::exception
        : failure.other_cluster                        ? rules::cluster_order
                                                       : rules::endless;
    add(rule, Site(), Site(), std::move(f));
}

std::string source_line(void *const *frames, int count, int exact, const void *function)
{
    Library *library = Library::of(function);
    for (int i = 0; i < count; i++) {
        if (!library->contains(frames[i]))
            continue;
        std::string line = library->line(static_cast<const char *>(frames[i]) + (i < exact ? 1 : 0));
        if (!of_the_language(line))
            return line;
    }
    return {};
}

static Site site_of(int core)
{
    const auto *site = static_cast<const xpusim_site *>(state.group->barrier_of(core).site);
    return site == nullptr ? Site() : Site(*site);
}

/* Group cores by where they wait: "cores 0-3 at a.xpu:5; cores 4-7 at a.xpu:9". */
static std::string by_place(const std::vector<int> &cores)
{
    std::map<std::string, std::vector<int>> places;
    for (int i : cores)
        places[spell(site_of(i))].push_back(i);
    std::string t;
    for (const auto &[place, who] : places)
        t += (t.empty() ? "cores " : "; cores ") + spans(who) + " at " + place;
    return t;
}

void deadlock()
{
    self = nullptr;
    const auto waiting = state.group->waiting();
    std::vector<int> ended;
    for (int i = 0; i < state.count; i++)
        if (state.cores[i].ended)
            ended.push_back(i);
    std::string who = by_place(waiting);
    if (!ended.empty())
        who += "; cores " + spans(ended) + " have ended";
    report(rules::deadlock, state.cores[waiting.front()], site_of(waiting.front()), "waits for ever", who);
}

void record_release(void *, const ik_emulation::Barrier &barrier, const std::vector<int> &members)
{
    const int first = members.front();
    const Site at = site_of(first);
    for (int i : members) {
        const Site other = site_of(i);
        if (at < other || other < at) {
            report(rules::divergent, state.cores[first], at, "comes to one barrier", by_place(members), state.cores[i],
                other, "comes to another, and the two are taken for one");
            break;
        }
    }
    std::vector<int> gone;
    for (int i = 0; i < state.count; i++)
        if (barrier.has(i) && state.cores[i].ended && state.cores[i].barriers != 0)
            gone.push_back(i);
    if (!gone.empty())
        report(rules::exited, state.cores[first], at, "waits here",
            "cores " + spans(gone) + " took part in earlier barriers and have ended, core "
                + std::to_string(gone.front()) + " after " + plural(state.cores[gone.front()].barriers, "barrier"));
    ik_emulation::Knowledge all;
    all.group = state.cluster;
    for (int i : members) {
        Core &c = state.cores[i];
        c.knowledge.own.passed[i] = c.now++;
        all.join(c.knowledge);
    }
    for (int i : members) {
        state.cores[i].knowledge = all;
        state.cores[i].barriers++;
        state.cores[i].counts.barriers++;
    }
    if (members.size() > 1) {
        state.interval++;
        state.stagers.emplace_back();
    }
}

/* Cores */

void begin_core(const xpusim_core &core)
{
    Core &c = state.cores[core.core];
    c.base = static_cast<char *>(__builtin_frame_address(0)); /* the kernel's own frame, once it is entered */
    /* The stack that is used on the way here belongs to the kernel soon. */
    char *from = c.base - 1024;
    std::memcpy(c.stale + (from - c.low), from, static_cast<std::size_t>(c.high - from));
    self = &c;
}

void end_core()
{
    Core &c = *self;
    report_beyond(c, nullptr, 0, "computes an address");
    if (xpusim_site locked; release_lock(c.id, locked)) {
        report(rules::lock_held, c, locked, "gets the lock and returns from the kernel without releasing it", "");
        atomic(c, nullptr, 0, locked); /* for the cores that go on, the lock is released in order */
    }
    self = nullptr;
    settle(c);
    c.ended = true;
}

void arrive()
{
    settle(*self);
    self = nullptr;
}

void record_group_shared(const void *object, std::uint64_t bytes)
{
    const auto *at = static_cast<const char *>(object);
    if (self != nullptr && at >= state.sm && at < state.sm + state.sm_bytes)
        state.groups_own[static_cast<std::size_t>(at - state.sm)] = { bytes,
            self->id / width_of_groups(state.launch->cores) };
}

void resume(const xpusim_core &core) { self = &state.cores[core.core]; }

} // namespace check

void check::report_once(const Rule &rule, ik_emulation::Finding f)
{
    static auto *seen = new std::map<std::string, int>;
    const std::string key = std::string(rule.id) + '\n' + f.kernel + '\n' + f.place.where + '\n'
        + (f.place.where.empty() ? f.bytes : f.other.where);
    const std::lock_guard lock(one_finding);
    const auto [before, first] = seen->try_emplace(key, -1);
    if (!first) {
        findings().again(before->second);
        return;
    }
    f.rule = &rule;
    before->second = findings().add(std::move(f));
    report_findings();
}

void report(const ik_emulation::Rule &rule, const std::string &text, const std::string &remedy)
{
    static auto *seen = new std::map<std::pair<std::string, std::string>, int>;
    const std::lock_guard lock(check::one_finding);
    const auto [before, first] = seen->try_emplace({ rule.id, text }, -1);
    if (!first) {
        check::findings().again(before->second);
        return;
    }
    ik_emulation::Finding f;
    f.rule = &rule;
    f.place.what = text;
    f.remedy = remedy;
    before->second = check::findings().add(std::move(f));
    check::report_findings();
}

} // namespace xpurt
