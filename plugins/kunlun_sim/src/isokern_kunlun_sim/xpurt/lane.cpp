#include "lane.h"

#include <algorithm>
#include <chrono>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <execinfo.h>
#include <time.h>
#include <ucontext.h>

#include "atomic.h"
#include "model.h"

namespace xpurt
{

/* On the host; the checked mode limits how much of it is local memory. */
static constexpr std::size_t STACK = 256 * 1024;
static constexpr std::int64_t EXPIRED = -1;
static constexpr std::size_t SIGNAL_STACK = 64 * 1024;

thread_local Lane *lane = nullptr;

Lane::Lane() : group(MAX_CORES, STACK) {}

[[noreturn]] static void end_kernel(int exception)
{
    Failure &f = lane->failure;
    f.exception = exception;
    if (xpusim_current != nullptr) {
        f.core = xpusim_current->core;
        f.cluster = xpusim_current->cluster;
    }
    lane->place = IN_RUNTIME;
    lane->group.abandon();
}

void leave(int exception, const char *what, const xpusim_site *site)
{
    lane->place = IN_RUNTIME;
    Failure &f = lane->failure;
    std::snprintf(f.what, sizeof f.what, "%s", what);
    if (site != nullptr)
        std::snprintf(f.where, sizeof f.where, "%s:%d", site->file, site->line);
    end_kernel(exception);
}

static void time_is_up()
{
    Failure &f = lane->failure;
    const bool waits = lane->more_clusters && waits_for_others();
    std::snprintf(f.what, sizeof f.what, "the kernel does not end within %d ms%s", settings().model.timeout_ms,
        waits
            ? ", and a core waits for a word that none of its cluster changes; a barrier over clusters is not modelled"
            : "");
    f.other_cluster = waits;
    if (lane->waits_at != nullptr)
        std::snprintf(f.where, sizeof f.where, "%s:%d", lane->waits_at->file, lane->waits_at->line);
    lane->waits_at = nullptr;
}

/* Set the place, then check the deadline: an alarm that came earlier, while the lane was elsewhere, was ignored. */
static void note_frames(void *pc);

static void enter(std::sig_atomic_t place)
{
    lane->place = place;
    if (place == IN_KERNEL && lane->deadline == EXPIRED) {
        lane->place = IN_RUNTIME;
        time_is_up();
        note_frames(nullptr);
        end_kernel(XPUSIM_TASK_TIMEOUT);
    }
}

At::At(Place place) : was_(lane->place) { enter(place); }

At::~At() { enter(was_); }

/* ---- Signals: those that a running kernel causes become exceptions of the device; others are forwarded. ---- */

static constexpr int FAULTS[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT };
static struct sigaction before[NSIG];
static int alarm_signal = 0; /* for the time limit; a real-time signal that had no handler */

static void *program_counter(void *context)
{
#if defined(__x86_64__)
    return reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<void *>(static_cast<ucontext_t *>(context)->uc_mcontext.pc);
#else
    (void)context;
    return nullptr;
#endif
}

/* A kernel may have overwritten its stack, in which case walking it faults. */
static thread_local sigjmp_buf walk_failed;
static thread_local volatile std::sig_atomic_t walking = 0;

/* Note who called whom; `pc` is where a signal came, or null outside its handler. */
static void note_frames(void *pc)
{
    void *found[40];
    Failure &f = lane->failure;
    f.frames[0] = pc;
    f.count = 1;
    if (sigsetjmp(walk_failed, 1) != 0) {
        walking = 0;
        return;
    }
    walking = 1;
    const int count = backtrace(found, 40);
    walking = 0;
    int first = 0;
    while (pc != nullptr && first < count && found[first] != pc)
        first++;
    for (int i = first + 1; i < count && f.count < 24; i++)
        f.frames[f.count++] = found[i];
}

/* Describe a fault in the device's terms. */
static int exception_of(int number, const siginfo_t *info, char *text, std::size_t size)
{
    const void *address = info->si_addr;
    switch (number) {
    case SIGFPE:
        std::snprintf(
            text, size, "integer division by zero (which a card masks, with a result that is not documented)");
        return XPUSIM_DIVIDE_BY_ZERO;
    case SIGILL: std::snprintf(text, size, "undefined instruction"); return XPUSIM_UNDEFINED_INSTRUCTION;
    case SIGTRAP: std::snprintf(text, size, "trap"); return XPUSIM_CORE_TRAP;
    case SIGABRT: std::snprintf(text, size, "the kernel aborted, or called exit"); return XPUSIM_CORE_TRAP;
    default: break;
    }
    if (lane->group.stack(lane->group.current()).in_guard(address))
        std::snprintf(text, size, "the core's stack, which is in its local memory of %llu bytes, ran over",
            static_cast<unsigned long long>(settings().model.lm));
    else if (info->si_code == SI_KERNEL)
        std::snprintf(text, size, "load or store exceeds memory: the address is none");
    else
        std::snprintf(text, size, "load or store exceeds memory: nothing is at address %p", address);
    return XPUSIM_MEMORY_EXCEEDED;
}

static void forward(int number, siginfo_t *info, void *context)
{
    static thread_local bool forwarding = false;
    const struct sigaction &old = before[number];
    const bool plain = (old.sa_flags & SA_SIGINFO) == 0;
    if (plain && old.sa_handler == SIG_IGN)
        return;
    /* `forwarding`: the previous handler forwarded the signal back to us. */
    if (forwarding || (plain && old.sa_handler == SIG_DFL)) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    forwarding = true;
    if (plain)
        old.sa_handler(number);
    else
        old.sa_sigaction(number, info, context);
    forwarding = false;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    if (walking != 0)
        siglongjmp(walk_failed, 1);
    /* A signal sent by another process is not a fault; an abort is always sent */
    if (lane == nullptr || lane->place == IN_RUNTIME || (info->si_code <= 0 && number != SIGABRT)) {
        forward(number, info, context);
        return;
    }
    const int exception = exception_of(number, info, lane->failure.what, sizeof lane->failure.what);
    lane->place = IN_RUNTIME;
    note_frames(program_counter(context));
    end_kernel(exception);
}

static void on_alarm(int, siginfo_t *, void *context)
{
    if (lane == nullptr || lane->place != IN_KERNEL || lane->deadline != EXPIRED)
        return; /* too late, or the runtime handles it */
    lane->place = IN_RUNTIME;
    time_is_up();
    note_frames(program_counter(context));
    end_kernel(XPUSIM_TASK_TIMEOUT);
}

/* Install the handlers. Handlers that were set in the meantime (a host may do so at any time) become the previous
 * ones. */
static void install_handlers()
{
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    struct sigaction action{}, now{};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = on_fault;
    for (int number : FAULTS) {
        sigaction(number, nullptr, &now);
        if (now.sa_sigaction == on_fault)
            continue;
        before[number] = now;
        sigaction(number, &action, nullptr);
    }
    if (alarm_signal != 0)
        return;
    void *one[1];
    backtrace(one, 1); /* load what it needs now, not in a handler */
    action.sa_sigaction = on_alarm;
    for (int number = SIGRTMAX; number > SIGRTMIN && alarm_signal == 0; number--) {
        sigaction(number, nullptr, &now);
        if (now.sa_handler == SIG_DFL && sigaction(number, &action, nullptr) == 0)
            alarm_signal = number;
    }
}

/* An alternate stack for signal handlers, for kernels that exhaust their own. */
struct SignalStack {
    std::unique_ptr<char[]> memory{ new char[SIGNAL_STACK] };
    stack_t old{};
    SignalStack()
    {
        stack_t mine{};
        mine.ss_sp = memory.get();
        mine.ss_size = SIGNAL_STACK;
        sigaltstack(&mine, &old);
    }
    ~SignalStack() { sigaltstack(&old, nullptr); }
};

/* ---- The time limit of a cluster, in processor time, so that a busy host does not end a kernel. A kernel that sleeps
 * ends after ten times the limit. ---- */

static constexpr int PATIENCE = 10;

static std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
static std::int64_t limit() { return std::int64_t{ settings().model.timeout_ms } * 1000000; }

static std::int64_t time_of(clockid_t processor)
{
    timespec t{};
    clock_gettime(processor, &t);
    return std::int64_t{ t.tv_sec } * 1000000000 + t.tv_nsec;
}

static std::int64_t time_of(pthread_t thread)
{
    clockid_t processor{};
    return pthread_getcpuclockid(thread, &processor) == 0 ? time_of(processor) : INT64_MAX;
}

Lanes &lanes()
{
    static Lanes *all = new Lanes; /* never destroyed: threads may outlive exit */
    return *all;
}

Lane *Lanes::take()
{
    static thread_local SignalStack stack;
    install_handlers();
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
        all_.push_back(std::make_unique<Lane>());
        free_.push_back(all_.back().get());
    }
    if (!watching_) {
        std::thread([this] { watch(); }).detach();
        watching_ = true;
    }
    lane = free_.back();
    free_.pop_back();
    lane->thread = pthread_self();
    used_++;
    if (asleep_)
        changed_.notify_one();
    return lane;
}

void Lanes::give(Lane *mine)
{
    lane = nullptr;
    std::lock_guard lock(mutex_); /* the watch holds the lock while it sends a signal to the lane's thread */
    free_.push_back(mine);
    used_--;
}

void Lanes::begin(Lane *mine)
{
    mine->begun = time_of(CLOCK_THREAD_CPUTIME_ID);
    mine->deadline = now() + limit();
}

void Lanes::end(Lane *mine) { mine->deadline = 0; }

/* Deadlines only ever move on by the limit, so a sleep until the earliest one misses none. Without lanes in use it
 * sleeps once more, and then until there are some. */
void Lanes::watch()
{
    std::unique_lock lock(mutex_);
    for (bool idle = false;;) {
        std::int64_t next = now() + limit();
        for (const auto &one : all_) {
            std::int64_t deadline = one->deadline;
            if (deadline <= 0)
                continue;
            const std::int64_t left = limit() - (time_of(one->thread) - one->begun);
            if (deadline > now())
                next = std::min(next, deadline);
            else if (left > 0 && now() - deadline < (PATIENCE - 1) * limit())
                next = std::min(next, now() + left);
            else if (one->deadline.compare_exchange_strong(deadline, EXPIRED))
                pthread_kill(one->thread, alarm_signal);
        }
        asleep_ = idle && used_ == 0;
        idle = used_ == 0;
        if (asleep_)
            changed_.wait(lock, [this] { return used_ != 0; });
        else
            changed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next)));
        asleep_ = false;
    }
}

} // namespace xpurt

/* A kernel that would end the process is treated as one that aborts. */
static void refuse_end()
{
    if (xpurt::lane != nullptr && xpurt::lane->place != xpurt::IN_RUNTIME)
        std::abort();
}

extern "C" {

void __wrap_exit(int status)
{
    refuse_end();
    std::exit(status);
}

void __wrap__exit(int status)
{
    refuse_end();
    std::_Exit(status);
}
}
