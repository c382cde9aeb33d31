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
#include "group.h"

namespace xpurt {

struct GmShadow;

struct CheckSettings {
    bool checked = false;
    std::uint64_t seed = 0;
};
const CheckSettings &check_settings();

/* The shadow of a new allocation, whose bytes are poisoned; null unless kernels are checked. */
std::shared_ptr<GmShadow> gm_shadow(char *start, std::uint64_t bytes);

/* The host wrote or copied device memory (both ends are within allocations). */
void gm_written(const void *to, std::uint64_t bytes);
void gm_copied(const void *to, const void *from, std::uint64_t bytes);

namespace check {

/* The life of a checked launch. */
class Run {
public:
    Run(const Launch &, const Model &);
    ~Run();
    /* After the last cluster: tells what was found; whether errors were among it. */
    bool end();

private:
    std::unique_lock<std::mutex> lock_;
};

std::uint64_t seed_of(int cluster); /* of the schedule of its cores; 0: in order */
void begin_cluster(ik_emulation::Group &, int cluster);
void end_cluster();
void abandon_cluster(int exception, int core, const std::string &what); /* the kernel ended early */
void deadlock(int cluster);

/* On the core's fiber. */
void begin_core(const xpusim_core &);
void end_core();
void arrive(); /* at a barrier */
void resume(const xpusim_core &); /* behind it */

/* A barrier is released: Group's callback. */
void released(void *, const ik_emulation::Barrier &, const std::vector<int> &members);

} // namespace check
} // namespace xpurt
#endif
