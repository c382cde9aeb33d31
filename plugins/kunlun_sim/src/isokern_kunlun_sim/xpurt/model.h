/* Device models: what a generation of the hardware has, as far as it is public. */
#ifndef XPURT_MODEL_H
#define XPURT_MODEL_H
#include <cstdint>
#include <string>

namespace xpurt {

struct Model {
    std::string name;
    int clusters, cores, sdnn;
    std::uint64_t lm, sm, l3, hbm; /* bytes: a core's, a cluster's, the device's */
    unsigned parameter_bytes;      /* most a kernel takes */
    int timeout_ms;                /* after which the driver ends a kernel */
};

/* The model that XPUSIM_DEVICE_MODEL names (KUNLUN3 by default), with XPU_NUM_CLUSTER clusters where that is set; `error` says what is wrong
 * with the setting otherwise. */
const Model *model(std::string &error);

/* How many devices there are: ISOKERN_XPU_DEVICES, 1 by default. */
int device_count();

} // namespace xpurt
#endif
