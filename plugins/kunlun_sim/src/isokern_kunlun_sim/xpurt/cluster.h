/* Running a launch: clusters in batches on threads of the host, their cores as fibers. */
#ifndef XPURT_CLUSTER_H
#define XPURT_CLUSTER_H
#include <string>
#include <vector>

#include "../include/xpusim/launch.h"
#include "model.h"

namespace xpurt {

struct Launch {
    xpusim_function function{};
    std::string name; /* owns function.name */
    int clusters = 0, cores = 0, device = 0;
    std::vector<char> parameters;
};

/* Runs it to its end in the caller's thread (and helpers); the runtime's error code. `what` says more where it is not XPU_SUCCESS. */
int run_launch(const Launch &, const Model &, std::string &what);

/* While one lives on a core's fiber, the core is not in the kernel's own code: a time limit waits. */
class Pause {
public:
    Pause();
    ~Pause();
    Pause(const Pause &) = delete;
    Pause &operator=(const Pause &) = delete;

private:
    bool inside_;
};

/* Device printf so far, and forgets it. */
std::string take_output();

} // namespace xpurt
#endif
