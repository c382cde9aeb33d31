/* Device models and settings: the properties of a hardware generation as far as they are public, and what the
 * environment asks for. */
#ifndef XPURT_MODEL_H
#define XPURT_MODEL_H
#include <cstdint>
#include <string>
#include <vector>

namespace xpurt
{

struct Model {
    std::string name;
    int clusters, cores, sdnn;
    std::uint64_t lm, sm, l3, hbm; /* bytes of a core's, a cluster's and the device's memory */
    unsigned parameter_bytes;      /* of a kernel, at most */
    int timeout_ms;                /* after this time the driver ends a kernel */
};

/* Read once, at first use. */
struct Settings {
    Model model;              /* XPUSIM_DEVICE_MODEL (KUNLUN3), XPU_NUM_CLUSTER, ISOKERN_XPU_TIMEOUT_MS */
    std::vector<int> devices; /* which of ISOKERN_XPU_DEVICES (1) devices the process sees: XPU_VISIBLE_DEVICES (all) */
    bool checked = false; /* ISOKERN_XPU_CHECK */
    /* ISOKERN_XPU_FIX_MFENCE=all: as if the compiler had put a fence behind each access, with -fix-mfence=all */
    bool fix_mfence = false;
    std::uint64_t seed = 0; /* ISOKERN_XPU_SEED; `seed()` may have been changed since */
    std::string error; /* if not empty, a setting is wrong and nothing else here is valid */
};

const Settings &settings();

/* The seed of the schedules of launches. */
std::uint64_t seed();

} // namespace xpurt
#endif
