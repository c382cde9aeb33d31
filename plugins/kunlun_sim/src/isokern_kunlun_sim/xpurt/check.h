/* The checked mode: what the emulator's other parts tell it. One checked launch runs at a time, on one thread of the host, so that the same
 * seed finds the same. */
#ifndef XPURT_CHECK_H
#define XPURT_CHECK_H
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../include/xpusim/device.h"
#include "cluster.h"
#include "findings.h"
#include "group.h"

namespace xpurt {

struct GmShadow;

/* A rule of the host side was broken: what happened, and what to do about it. */
void report(const ik_emulation::Rule &rule, const std::string &text, const std::string &remedy);

/* The shadow of a new allocation, whose bytes are poisoned; null unless kernels are checked. */
std::shared_ptr<GmShadow> gm_shadow(char *start, std::uint64_t bytes);

/* The host wrote or copied device memory (both ends are within allocations). */
void gm_written(const void *to, std::uint64_t bytes);
void gm_copied(const void *to, const void *from, std::uint64_t bytes);

namespace check {

/* The life of a checked launch. */
class Checks {
public:
    explicit Checks(const Launch &);
    ~Checks();
    /* After the last cluster: tells what was found; how many errors were among it. */
    std::uint64_t end();

private:
    std::unique_lock<std::mutex> lock_;
};

/* `seed`: of the times at which copies land; 0: as late as legal. */
void begin_cluster(ik_emulation::Group &, int cluster, std::uint64_t seed);
void end_cluster();

/* The cluster ended early: its cores wait for each other, or one of them raised an exception. */
void deadlock();
void exception(int number, int core, const char *what, const std::string &where);

/* As the function of fault.h, from the table that the build wrote. */
std::string source_line(void *const *frames, int count, int exact, const void *function);

/* On the core's fiber. */
void begin_core(const xpusim_core &);
void end_core();
void arrive(); /* where other cores run */
void resume(const xpusim_core &);
void group_shared(const void *object, std::uint64_t bytes); /* a part of the shared arrays that is memory of a group of cores */

/* A barrier is released: Group's callback. */
void released(void *, const ik_emulation::Barrier &, const std::vector<int> &members);

} // namespace check
} // namespace xpurt
#endif
