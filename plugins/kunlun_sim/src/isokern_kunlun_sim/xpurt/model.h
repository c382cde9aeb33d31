/* Device models and settings: what a generation of the hardware has, as far as it is public, and what the environment asks for. */
#ifndef XPURT_MODEL_H
#define XPURT_MODEL_H
#include <cstdint>
#include <string>
#include <vector>

namespace xpurt {

struct Model {
    std::string name;
    int clusters, cores, sdnn;
    std::uint64_t lm, sm, l3, hbm; /* bytes: a core's, a cluster's, the device's */
    unsigned parameter_bytes;      /* most a kernel takes */
    int timeout_ms;                /* after which the driver ends a kernel */
};

/* Read once, when first asked for. */
struct Settings {
    Model model;              /* XPUSIM_DEVICE_MODEL (KUNLUN3), XPU_NUM_CLUSTER, ISOKERN_XPU_TIMEOUT_MS */
    std::vector<int> devices; /* which of ISOKERN_XPU_DEVICES (1) the process sees: XPU_VISIBLE_DEVICES (all) */
    bool checked = false;     /* ISOKERN_XPU_CHECK */
    std::uint64_t seed = 0;   /* ISOKERN_XPU_SEED */
    std::string error;        /* not empty: a setting is wrong, and nothing else here counts */
};

const Settings &settings();

} // namespace xpurt
#endif
