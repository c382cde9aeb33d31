#include "cluster.h"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <system_error>
#include <thread>

#include "atomic.h"
#include "check.h"
#include "fault.h"
#include "lane.h"
#include "model.h"

extern "C" {
__thread xpusim_core *xpusim_current = nullptr;
}

namespace xpurt
{

/* ---- Device printf ---- */

static constexpr std::size_t MAX_OUTPUT = std::size_t{ 128 } << 20; /* the size of the device's buffer for it */

struct Line {
    int cluster, core;
    std::string text;
};
static constexpr std::size_t LINE_BYTES = 64; /* bytes of host memory for a line, besides its text */
static std::atomic<std::size_t> pending_bytes{ 0 }; /* of the running launches */
static std::mutex output_mutex;
static std::map<std::uint64_t, std::pair<const void *, std::string>> output; /* by launch: its stream, and the text */
static std::size_t output_bytes = 0;

static void keep_output(const Launch &l, std::vector<Line> &lines, bool lost)
{
    std::stable_sort(lines.begin(), lines.end(),
        [](const Line &a, const Line &b) { return std::pair(a.cluster, a.core) < std::pair(b.cluster, b.core); });
    std::string text;
    for (const Line &line : lines) {
        text += "[cluster " + std::to_string(line.cluster) + " core " + std::to_string(line.core) + "] " + line.text;
        pending_bytes -= line.text.size() + LINE_BYTES;
    }
    std::lock_guard lock(output_mutex);
    const bool full = output_bytes + text.size() > MAX_OUTPUT;
    if (full || lost)
        text = (full ? "" : text) + "[output of " + l.name + " is lost: the buffer of "
            + std::to_string(MAX_OUTPUT >> 20) + " MiB is full]\n";
    output_bytes += text.size();
    output[l.number] = { l.stream, std::move(text) };
}

std::string take_output(const void *stream)
{
    std::lock_guard lock(output_mutex);
    std::string taken;
    for (auto it = output.begin(); it != output.end();) {
        if (it->second.first != stream) {
            ++it;
            continue;
        }
        taken += it->second.second;
        output_bytes -= it->second.second.size();
        it = output.erase(it);
    }
    return taken;
}

void forget_output()
{
    std::lock_guard lock(output_mutex);
    output.clear();
    output_bytes = 0;
}

/* ---- Clusters ---- */

/* A kernel restores the registers of its callers from its own stack, which it may have overwritten. After this, none of
 * them is relied on. */
static inline __attribute__((always_inline)) void forget_registers()
{
#if defined(__x86_64__)
    __asm__ volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "memory");
#elif defined(__aarch64__)
    __asm__ volatile("" ::: "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "memory");
#endif
}

static void core_main(void *argument)
{
    xpusim_current = static_cast<xpusim_core *>(argument);
    const Launch &l = *lane->launch;
    {
        const At kernel(IN_KERNEL);
        if (l.function.checked != 0)
            /* The last call before the kernel, which finds its stack as it is now. */
            check::begin_core(*xpusim_current);
        l.function.run(l.function.kernel, l.parameters.data());
        forget_registers();
    }
    if (l.function.checked != 0)
        check::end_core();
    go_on();
}

/* Describe which cores wait where; a card would hang. */
static std::string deadlock(const ik_emulation::Group &group, int cores)
{
    std::map<std::pair<std::string, std::uint64_t>, std::vector<int>> places; /* by site and members */
    const std::vector<int> waiting = group.waiting();
    for (int i : waiting) {
        const ik_emulation::Barrier &barrier = group.barrier_of(i);
        const auto *site = static_cast<const xpusim_site *>(barrier.site);
        places[{ std::string(site->file) + ":" + std::to_string(site->line), barrier.width <= 4 ? barrier.mask : 0 }]
            .push_back(i);
    }
    std::string text = "deadlock at barriers:";
    const char *separator = " ";
    for (const auto &[place, members] : places) {
        char of[64] = "all cores of the cluster";
        if (place.second != 0)
            std::snprintf(of, sizeof of, "the %s in mask %#llx",
                width_of_groups(cores) == 4 ? "groups of four" : "cores",
                static_cast<unsigned long long>(place.second));
        text += separator + std::string(members.size() == 1 ? "core " : "cores ") + spans(members)
            + (members.size() == 1 ? " waits" : " wait") + " at " + place.first + " for " + of;
        separator = "; ";
    }
    if (waiting.size() < static_cast<std::size_t>(cores))
        text += "; the others have ended";
    return text;
}

/* A failed cluster, for messages. */
struct Verdict {
    int exception = 0, cluster = 0;
    std::string text;
};

/* A running launch; threads take its clusters one by one. */
struct Run {
    const Launch &launch;
    std::vector<int> order;             /* of the clusters */
    std::atomic<std::size_t> next{ 0 };   /* index into `order` */
    std::atomic<std::uint64_t> busy{ 0 }; /* bits of the physical clusters in use */
    std::atomic<bool> failed{ false };
    std::mutex mutex; /* of the members below */
    std::vector<Verdict> verdicts;
    std::vector<Line> lines;
    bool lost = false; /* whether lines were dropped */
    int helpers = 0; /* guarded by the pool's mutex */
};

/* Take the physical cluster that a batch of clusters in order would use, or another one while that is busy. There are
 * as many as threads. */
static int take_physical(Run &run, std::size_t at)
{
    const int count = settings().model.clusters, first = static_cast<int>(at % static_cast<std::size_t>(count));
    for (int i = first;; i = (i + 1) % count)
        if ((run.busy.fetch_or(std::uint64_t{ 1 } << i) >> i & 1) == 0)
            return i;
}

static std::uint64_t mix(std::uint64_t seed, std::uint64_t with)
{
    std::uint64_t x = seed * 0x9e3779b97f4a7c15u ^ (with + 0x632be59bd9b4e019u) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 32) | 1;
}

static void run_cluster(Run &run, Lane &mine, int cluster, int physical)
{
    const Launch &l = run.launch;
    void *arguments[MAX_CORES];
    for (int i = 0; i < l.cores; i++) {
        mine.cores[i] = { i, l.cores, cluster, l.clusters, physical };
        arguments[i] = &mine.cores[i];
    }
    const std::uint64_t order = seed() == 0 ? 0 : mix(mix(seed(), l.number), static_cast<std::uint64_t>(cluster));
    const bool checked = l.function.checked != 0;
    begin_cluster(order, checked);
    if (checked)
        check::begin_cluster(mine.group, cluster, order);
    Lanes::begin(&mine);
    const bool ended = mine.group.run(l.cores, core_main, arguments, order, checked ? check::record_release : nullptr);
    Lanes::end(&mine);
    xpusim_current = nullptr;
    if (checked)
        check::end_cluster();
    if (ended && mine.printed.empty())
        return;
    std::lock_guard lock(run.mutex);
    for (auto &[core, text] : mine.printed)
        run.lines.push_back({ cluster, core, std::move(text) });
    run.lost |= mine.lost;
    mine.lost = false;
    mine.printed.clear();
    if (ended)
        return;
    run.failed = true;
    const Failure &f = mine.failure;
    if (!mine.group.abandoned()) {
        run.verdicts.push_back({ XPUSIM_TASK_TIMEOUT, cluster, deadlock(mine.group, l.cores) });
        if (checked)
            check::deadlock();
        return;
    }
    std::string where = f.where;
    if (where.empty() && f.count != 0)
        where = (checked ? check::source_line : source_line)(
            f.frames, f.count, 1, reinterpret_cast<const void *>(l.function.kernel));
    if (checked)
        check::exception(f, where);
    run.verdicts.push_back({ f.exception, cluster,
        "core " + std::to_string(f.core) + ": " + f.what + (where.empty() ? "" : " (" + where + ")") });
}

/* Run clusters of the launch in this thread; returns false if the host has no memory or no thread for a lane. */
static bool take_part(Run &run)
{
    Lane *mine = nullptr;
    try {
        mine = lanes().take();
    } catch (const std::exception &) {
        return false;
    }
    mine->launch = &run.launch;
    for (std::size_t at = run.next++; at < run.order.size() && !run.failed; at = run.next++) {
        mine->failure = {};
        mine->more_clusters = at + 1 < run.order.size();
        const int physical = take_physical(run, at);
        run_cluster(run, *mine, run.order[at], physical);
        run.busy.fetch_and(~(std::uint64_t{ 1 } << physical));
    }
    lanes().give(mine);
    return true;
}

/* Threads that help the streams' threads to run clusters. */
class ThreadPool
{
  public:
    ThreadPool()
    {
        const unsigned hosts = std::max(1u, std::thread::hardware_concurrency());
        try {
            for (unsigned i = 1; i < hosts; i++, count_++)
                std::thread([this] { help(); }).detach();
        } catch (const std::system_error &) { /* fewer threads are enough */
        }
    }

    /* Run a launch with as many helpers as are idle. Returns false if this thread could not take part and the others
     * did not run all clusters. */
    bool run(Run &all)
    {
        const bool alone = all.launch.function.checked != 0;
        const int useful =
            alone ? 0 : std::min({ count_, static_cast<int>(all.order.size()) - 1, settings().model.clusters - 1 });
        if (useful > 0) {
            std::lock_guard lock(mutex_);
            open_.push_back({ &all, useful });
            more_.notify_one();
        }
        const bool here = take_part(all);
        if (useful > 0) {
            std::unique_lock lock(mutex_);
            open_.erase(
                std::remove_if(open_.begin(), open_.end(), [&](const Open &o) { return o.run == &all; }), open_.end());
            done_.wait(lock, [&] { return all.helpers == 0; });
        }
        return here || all.next >= all.order.size();
    }

  private:
    struct Open {
        Run *run;
        int places;
    };

    void help()
    {
        std::unique_lock lock(mutex_);
        for (;;) {
            more_.wait(lock, [this] { return !open_.empty(); });
            Run &run = *open_.front().run;
            run.helpers++;
            if (--open_.front().places == 0)
                open_.pop_front();
            if (!open_.empty())
                more_.notify_one(); /* another helper may join */
            lock.unlock();
            take_part(run); /* if this thread gets no lane, the others run the clusters */
            lock.lock();
            run.helpers--;
            done_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable more_, done_;
    std::deque<Open> open_;
    int count_ = 0;
};

Status run_launch(const Launch &l)
{
    static ThreadPool *pool = new ThreadPool; /* never destroyed: threads may outlive exit */
    const auto checks = l.function.checked == 0 ? nullptr : std::make_unique<check::Checks>(l);
    Run run{ l, {}, {}, {}, {}, {}, {}, {}, false, 0 };
    run.order.resize(static_cast<std::size_t>(l.clusters));
    std::iota(run.order.begin(), run.order.end(), 0);
    if (seed() != 0)
        std::shuffle(run.order.begin(), run.order.end(), std::mt19937_64(mix(seed(), l.number)));
    if (!pool->run(run))
        return { XPUERR_NOCPUMEM, l.name + ": the host has no memory or no thread for an emulated cluster" };
    if (!run.lines.empty() || run.lost)
        keep_output(l, run.lines, run.lost);
    const std::uint64_t errors = checks == nullptr ? 0 : checks->end();
    if (run.verdicts.empty())
        return errors == 0 ? Status{}
                           : Status{ XPUERR_KEXCEPTION,
                                 "kernel " + l.name + ": the checked mode met " + std::to_string(errors) + " errors" };
    const Verdict &first = *std::min_element(run.verdicts.begin(), run.verdicts.end(),
        [](const Verdict &a, const Verdict &b) { return a.cluster < b.cluster; });
    return { first.exception == XPUSIM_TASK_TIMEOUT ? XPUERR_TIMEOUT : XPUERR_KEXCEPTION,
        "kernel " + l.name + ", exception " + std::to_string(first.exception) + ", cluster "
            + std::to_string(first.cluster) + ", " + first.text };
}

/* Let other cores run by `stop`, until this one goes on. If the time limit has passed by then, that is where it was. */
template <class Stop>
static void stop_at(const xpusim_site &site, const Stop &stop)
{
    struct Waits {
        ~Waits() { lane->waits_at = nullptr; }
    } const waits;
    xpusim_core *self = xpusim_current;
    const At runtime(IN_RUNTIME);
    const bool checked = lane->launch->function.checked != 0;
    if (checked)
        check::arrive();
    stop();
    lane->waits_at = &site;
    xpusim_current = self;
    if (checked)
        check::resume(*self);
}

void yield(const xpusim_site &site)
{
    stop_at(site, [] { lane->group.pass(); });
}

} // namespace xpurt

using namespace xpurt;

extern "C" {

void xpusim_raise(int exception, const char *what, xpusim_site site) { leave(exception, what, &site); }

void xpusim_barrier(int64_t groups, xpusim_site site)
{
    ik_emulation::Barrier barrier;
    if (groups != -1)
        barrier.width = width_of_groups(xpusim_current->cores), barrier.mask = static_cast<std::uint64_t>(groups);
    barrier.site = &site;
    stop_at(site, [&] { lane->group.wait(barrier); });
    go_on();
}

int xpusim_print(const char *format, va_list arguments)
{
    static constexpr char TRUNCATED[] = "[cut]\n";
    char text[1024];
    int printed;
    {
        const At behalf(ON_BEHALF);
        printed = std::vsnprintf(text, sizeof text, format, arguments);
    }
    if (printed < 0)
        return printed;
    if (printed >= static_cast<int>(sizeof text))
        std::memcpy(text + sizeof text - sizeof TRUNCATED, TRUNCATED, sizeof TRUNCATED);
    const At runtime(IN_RUNTIME);
    const std::size_t bytes = std::strlen(text) + LINE_BYTES;
    if (pending_bytes.fetch_add(bytes) > MAX_OUTPUT) {
        pending_bytes -= bytes;
        lane->lost = true;
        return printed;
    }
    lane->printed.emplace_back(xpusim_current->core, text);
    return printed;
}
}
