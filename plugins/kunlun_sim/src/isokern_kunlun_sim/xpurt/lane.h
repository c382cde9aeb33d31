/* A thread of the host while it runs clusters, and how a kernel that goes wrong is ended there. */
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

namespace xpurt {

static constexpr int MOST_CORES = 64;

/* Whose fault a signal is now, and what may end the kernel: in the runtime nothing; where the runtime uses what the kernel gave (a copy, a text)
 * its faults do; in the kernel the time limit does, too. */
enum Place : std::sig_atomic_t { IN_RUNTIME, ON_BEHALF, IN_KERNEL };

/* How a kernel ended early. Written by handlers of signals: nothing in it is allocated. */
struct Failure {
    int exception = 0, core = -1, cluster = -1;
    char what[256] = "";
    char where[256] = ""; /* file:line, where it is known at once; else the frames tell */
    void *frames[24] = {};
    int count = 0;
};

struct Lane {
    Lane();
    ik_emulation::Group group;
    xpusim_core cores[MOST_CORES] = {};
    const Launch *launch = nullptr;
    volatile std::sig_atomic_t place = IN_RUNTIME;
    Failure failure;
    std::vector<std::pair<int, std::string>> printed; /* by which core */
    bool lost = false;                                /* some of that: there was no room */
    pthread_t thread{};
    std::atomic<std::int64_t> deadline{0}; /* of the running cluster, in ns; 0: none; EXPIRED: past */
    std::atomic<std::int64_t> begun{0};    /* the same cluster, in the thread's own time */
};

/* The lane of this thread, null where it runs no clusters. */
extern thread_local Lane *lane;

/* The running kernel ends here. `site` null: it is not known. */
[[noreturn]] void leave(int exception, const char *what, const xpusim_site *site);

/* While it lives the running core is in the given place. Where that is the kernel, before or after, and its time is up, the kernel ends. */
class At {
public:
    explicit At(Place place);
    ~At();
    At(const At &) = delete;
    At &operator=(const At &) = delete;

private:
    std::sig_atomic_t was_;
};

/* Lanes to use again, and the watch over those in use. */
class Lanes {
public:
    /* One for this thread, with handlers of signals and a stack for them. Throws std::bad_alloc. */
    Lane *take();
    void give(Lane *);
    /* The time limit of the lane's cluster begins, and ends. */
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
