/* A lane: a host thread while it runs clusters; and how a failing kernel is ended there. */
#ifndef XPURT_LANE_H
#define XPURT_LANE_H
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <pthread.h>

#include "../include/xpusim/device.h"
#include "cluster.h"
#include "group.h"

namespace xpurt
{

static constexpr int MAX_CORES = 64;

/* Where a lane is, which decides whose fault a signal is and what may end the kernel. In the runtime nothing may; where
 * the runtime uses the kernel's data (a copy, a text), faults may; in the kernel, the time limit may, too. */
enum Place : std::sig_atomic_t { IN_RUNTIME, ON_BEHALF, IN_KERNEL };

/* How a kernel ended early. Signal handlers write it, so nothing in it is allocated. */
struct Failure {
    int exception = 0, core = -1, cluster = -1;
    bool other_cluster = false; /* it waited for one that the emulator runs later */
    char what[256] = "";
    char where[256] = ""; /* file:line if it is known at once; otherwise it follows from the frames */
    void *frames[24] = {};
    int count = 0;
};

struct Lane {
    Lane();
    ik_emulation::Group group;
    xpusim_core cores[MAX_CORES] = {};
    const Launch *launch = nullptr;
    volatile std::sig_atomic_t place = IN_RUNTIME;
    Failure failure;
    std::vector<std::pair<int, std::string>> printed; /* with the core's number */
    bool lost = false;                                /* lines were dropped because there was no space */
    bool more_clusters = false;                       /* of the launch begin later than the running one */
    const xpusim_site *waits_at = nullptr;            /* where the running core let others run, if it just did */
    pthread_t thread{};
    std::atomic<std::int64_t> deadline{ 0 }; /* of the running cluster, in ns; 0: none; EXPIRED: it has passed */
    std::atomic<std::int64_t> begun{ 0 };    /* when the cluster began, in the thread's own processor time */
};

/* This thread's lane; null if it runs no clusters. */
extern thread_local Lane *lane;

/* End the running kernel. `site` is null if it is not known. */
[[noreturn]] void leave(int exception, const char *what, const xpusim_site *site);

/* Sets the place of the running core for a scope. If that is the kernel, on entry or on leaving, and its time is up,
 * the kernel ends. */
class At
{
  public:
    explicit At(Place place);
    ~At();
    At(const At &) = delete;
    At &operator=(const At &) = delete;

  private:
    std::sig_atomic_t was_;
};

/* A pool of lanes, and the watch over those in use. */
class Lanes
{
  public:
    /* Get a lane for this thread, with signal handlers and a stack for them. Throws std::bad_alloc. */
    Lane *take();
    void give(Lane *);
    /* Begin, and end, the time limit of the lane's cluster. */
    static void begin(Lane *);
    static void end(Lane *);

  private:
    void watch();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<Lane>> all_;
    std::vector<Lane *> free_;
    bool watching_ = false, asleep_ = false;
    int used_ = 0;
};

Lanes &lanes();

} // namespace xpurt
#endif
