#include "cluster.h"

#include <csetjmp>
#include <csignal>
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include <pthread.h>

#include "../include/xpusim/device.h"
#include "check.h"
#include "group.h"

extern "C" {
thread_local xpusim_core *xpusim_current = nullptr;
}

namespace xpurt {

static constexpr std::size_t STACK = 256 * 1024; /* of the host; how much of it is local memory is a check's business */
static constexpr int MOST_CORES = 64;

/* A kernel that ended early: where and why. */
struct Failure {
    int exception = 0, core = -1, cluster = -1;
    std::string what;
};

/* One thread of the host with the fibers of one cluster. */
struct Lane {
    ik_emulation::Group group{MOST_CORES, STACK};
    xpusim_core cores[MOST_CORES];
    const Launch *launch = nullptr;
    sigjmp_buf escape; /* to the scheduler, from wherever the kernel is */
    volatile bool inside = false;
    Failure failure;
    pthread_t thread{};
};

static thread_local Lane *lane = nullptr;

Pause::Pause() : inside_(lane->inside) { lane->inside = false; }
Pause::~Pause() { lane->inside = inside_; }

static std::mutex output_mutex;
static std::string output;

std::string take_output()
{
    std::lock_guard lock(output_mutex);
    std::string taken;
    taken.swap(output);
    return taken;
}

[[noreturn]] static void leave(int exception, const std::string &what)
{
    lane->failure.exception = exception;
    lane->failure.what = what;
    if (xpusim_current != nullptr) {
        lane->failure.core = xpusim_current->core;
        lane->failure.cluster = xpusim_current->cluster;
    }
    lane->inside = false;
    siglongjmp(lane->escape, 1);
}

/* Signals that a kernel causes become exceptions of the device; all others go where they went before. */
static struct sigaction before[NSIG];
static constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGUSR2};

static void on_signal(int number, siginfo_t *info, void *context)
{
    if (lane != nullptr && lane->inside) {
        char text[96];
        std::snprintf(text, sizeof text, "%s at address %p", number == SIGFPE ? "integer division by zero" : "access to memory that is not there", info->si_addr);
        if (number == SIGUSR2)
            leave(XPUSIM_TASK_TIMEOUT, "the kernel does not end");
        leave(number == SIGFPE || number == SIGILL ? XPUSIM_CORE_TRAP : XPUSIM_MEMORY_EXCEEDED, text);
    }
    const struct sigaction &old = before[number];
    if ((old.sa_flags & SA_SIGINFO) != 0 && old.sa_sigaction != nullptr) {
        old.sa_sigaction(number, info, context);
    } else if (old.sa_handler == SIG_DFL) {
        if (number == SIGUSR2)
            return; /* a late alarm for a kernel that has ended */
        signal(number, SIG_DFL);
        raise(number);
    } else if (old.sa_handler != SIG_IGN) {
        old.sa_handler(number);
    }
}

static void install_handlers()
{
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action {};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&action.sa_mask);
        for (int number : SIGNALS)
            sigaction(number, &action, &before[number]);
    });
}

/* A stack for signals, for kernels that use up their own. */
struct SignalStack {
    std::unique_ptr<char[]> memory{new char[1 << 16]};
    stack_t old{};
    SignalStack()
    {
        stack_t mine{};
        mine.ss_sp = memory.get();
        mine.ss_size = 1 << 16;
        sigaltstack(&mine, &old);
    }
    ~SignalStack() { sigaltstack(&old, nullptr); }
};

static void core_main(void *argument)
{
    xpusim_current = static_cast<xpusim_core *>(argument);
    lane->inside = true;
    const Launch &l = *lane->launch;
    if (l.function.checked != 0)
        check::begin_core(*xpusim_current);
    l.function.run(l.function.kernel, l.parameters.data());
    lane->inside = false;
    if (l.function.checked != 0)
        check::end_core();
}

/* Whether the cluster ran to its end. */
static bool run_cluster(Lane &mine, int cluster, int physical)
{
    const Launch &l = *mine.launch;
    void *arguments[MOST_CORES];
    for (int i = 0; i < l.cores; i++) {
        mine.cores[i] = {i, l.cores, cluster, l.clusters, physical};
        arguments[i] = &mine.cores[i];
    }
    const bool checked = l.function.checked != 0;
    if (checked)
        check::begin_cluster(mine.group, cluster);
    if (sigsetjmp(mine.escape, 1) != 0) {
        if (checked)
            check::abandon_cluster(mine.failure.exception, mine.failure.core, mine.failure.what);
        return false;
    }
    if (mine.group.run(l.cores, core_main, arguments, checked ? check::seed_of(cluster) : 0, checked ? check::released : nullptr)) {
        if (checked)
            check::end_cluster();
        return true;
    }
    const auto waiting = mine.group.waiting();
    mine.failure = {XPUSIM_TASK_TIMEOUT, waiting.front(), cluster, "deadlock: " + std::to_string(waiting.size()) + " cores wait at barriers that others never reach"};
    if (checked)
        check::deadlock(cluster);
    return false;
}

int run_launch(const Launch &l, const Model &m, std::string &what)
{
    install_handlers();
    const int hosts = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const bool checked = l.function.checked != 0;
    const auto check = checked ? std::make_unique<check::Run>(l, m) : nullptr;
    const int threads = checked ? 1 : std::min({hosts, l.clusters, m.clusters});
    std::atomic<int> next{0}, finished{0};
    std::atomic<bool> failed{false};
    std::mutex mutex;
    Failure failure;
    static thread_local std::vector<std::unique_ptr<Lane>> pool; /* of the stream's worker: lanes are used again */
    while (static_cast<int>(pool.size()) < threads)
        pool.push_back(std::make_unique<Lane>());
    auto work = [&](Lane *mine) {
        SignalStack stack;
        lane = mine;
        mine->launch = &l;
        mine->thread = pthread_self();
        for (int c = next++; c < l.clusters && !failed; c = next++) {
            mine->failure = {};
            if (!run_cluster(*mine, c, c % m.clusters)) {
                std::lock_guard lock(mutex);
                if (!failed)
                    failure = mine->failure;
                failed = true;
            }
        }
        xpusim_current = nullptr;
        lane = nullptr;
        finished++;
    };
    std::vector<std::thread> helpers;
    for (int i = 0; i < threads; i++)
        helpers.emplace_back(work, pool[static_cast<std::size_t>(i)].get());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(m.timeout_ms);
    while (finished < threads) {
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() > deadline)
            for (int i = 0; i < threads; i++)
                if (pool[static_cast<std::size_t>(i)]->inside)
                    pthread_kill(pool[static_cast<std::size_t>(i)]->thread, SIGUSR2);
    }
    for (std::thread &t : helpers)
        t.join();
    const bool broken = checked && check->end();
    if (!failed && broken)
        what = l.name + ": the checked mode found errors";
    if (!failed)
        return broken ? XPUERR_KEXCEPTION : XPU_SUCCESS;
    what = l.name + ": exception " + std::to_string(failure.exception) + " in cluster " + std::to_string(failure.cluster) + ", core " + std::to_string(failure.core) + ": " + failure.what;
    return failure.exception == XPUSIM_TASK_TIMEOUT ? XPUERR_TIMEOUT : XPUERR_KEXCEPTION;
}

} // namespace xpurt

using namespace xpurt;

extern "C" {

void xpusim_raise(int exception, const char *what, xpusim_site site)
{
    leave(exception, std::string(what) + " (" + site.file + ":" + std::to_string(site.line) + ")");
}

void xpusim_barrier(int64_t groups, xpusim_site site)
{
    ik_emulation::Barrier barrier;
    if (groups != -1)
        barrier.width = 4, barrier.mask = static_cast<std::uint64_t>(groups);
    barrier.site = &site;
    xpusim_core *self = xpusim_current;
    lane->inside = false;
    const bool checked = lane->launch->function.checked != 0;
    if (checked)
        check::arrive();
    lane->group.wait(barrier);
    if (checked)
        check::resume(*self);
    lane->inside = true;
    xpusim_current = self;
}

void xpusim_print(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    std::lock_guard lock(output_mutex);
    output += "[cluster " + std::to_string(xpusim_current->cluster) + " core " + std::to_string(xpusim_current->core) + "] " + text;
}
}
