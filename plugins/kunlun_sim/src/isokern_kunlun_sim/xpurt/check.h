/* The checked mode: what the emulator's other parts report to it. One checked launch runs at a time, on one host
 * thread, so that the same seed gives the same findings. */
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
#include "lane.h"

namespace xpurt
{

struct GmShadow;

/* Report that a rule for the host side was broken: what happened, and the remedy. */
void report(const ik_emulation::Rule &rule, const std::string &text, const std::string &remedy);

/* Make the shadow of a new allocation and poison its bytes; null unless kernels are checked. */
std::shared_ptr<GmShadow> gm_shadow(char *start, std::uint64_t bytes);

/* Record that the host wrote or copied device memory (both ends are within allocations). */
void record_gm_write(const void *to, std::uint64_t bytes);
void record_gm_copy(const void *to, const void *from, std::uint64_t bytes);

/* The host reads device memory; false, and a finding, if kernels copied bytes there that nobody had written. */
bool record_gm_read(const void *from, std::uint64_t bytes);

namespace check
{

/* A checked launch, from its begin to its end. */
class Checks
{
  public:
    explicit Checks(const Launch &);
    ~Checks();
    /* End the launch after its last cluster: report the findings, and return the number of errors. */
    std::uint64_t end();

  private:
    std::unique_lock<std::mutex> lock_;
};

/* `seed` determines the times at which copies land; 0: as late as legal. */
void begin_cluster(ik_emulation::Group &, int cluster, std::uint64_t seed);
void end_cluster();

/* The cluster ended early: its cores wait for each other, or one of them raised an exception. */
void deadlock();
void exception(const Failure &, const std::string &where);

/* As the function of fault.h, from the table that the build wrote. */
std::string source_line(void *const *frames, int count, int exact, const void *function);

/* Runs on the core's fiber. */
void begin_core(const xpusim_core &);
void end_core();
void arrive(); /* a place where other cores may run */
void resume(const xpusim_core &);
/* An atomic operation happens on SM or GM; null stands for the cluster's lock. */
void record_atomic(const void *address, int bytes, int space, xpusim_site site);
/* Part of the shared arrays is memory of a group of cores. */
void record_group_shared(const void *object, std::uint64_t bytes);

/* The callback for a Group: a barrier is released. */
void record_release(void *, const ik_emulation::Barrier &, const std::vector<int> &members);

} // namespace check
} // namespace xpurt
#endif
