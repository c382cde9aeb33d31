/* Running a launch: clusters in batches on threads of the host, their cores as fibers. */
#ifndef XPURT_CLUSTER_H
#define XPURT_CLUSTER_H
#include <cstdint>
#include <string>
#include <vector>

#include "../include/xpusim/device.h"
#include "../include/xpusim/launch.h"
#include "stream.h"

namespace xpurt
{

struct Launch {
    xpusim_function function{};
    std::string name; /* owns function.name */
    int clusters = 0, cores = 0, device = 0;
    std::uint64_t number = 0;     /* counts the process's launches, from 1 */
    const void *stream = nullptr; /* its xpu_kernel_debug prints the output */
    Moment moment;                /* its place in the order of work, for the checked mode */
    std::vector<char> parameters;
};

/* The cores of a group, which share local memory: with 16 cores a cluster each has a group's own, as published launches
 * rely on (FastDeploy, eb_adjust_batch.cpp). */
inline int width_of_groups(int cores) { return cores == 16 ? 1 : 4; }

/* Run a launch to its end, in the caller's thread and in helpers. */
Status run_launch(const Launch &);

/* Let the other cores of the running core's cluster run. */
void yield(const xpusim_site &);

/* Return the device printf output of the stream's launches so far, by launch, cluster and core, and drop it. */
std::string take_output(const void *stream);
/* Drop the output of every stream. */
void forget_output();

} // namespace xpurt
#endif
