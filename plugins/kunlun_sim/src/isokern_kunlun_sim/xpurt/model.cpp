#include "model.h"

#include <cstdlib>
#include <cstring>

namespace xpurt {

static constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

/* KL2: 32 GB boards; what KL3's parameter block holds is not public, so KL2's 128 dwords count there too. */
static Model kl2() { return {"KUNLUN2", 8, 64, 6, 8 * KiB, 256 * KiB, 64 * MiB - 4 * KiB, 32 * GiB, 512, 10000}; }
static Model kl3() { return {"KUNLUN3", 12, 64, 12, 8 * KiB, 256 * KiB - 64, 96 * MiB, 96 * GiB, 512, 10000}; }

const Model *model(std::string &error)
{
    static Model chosen;
    const char *name = std::getenv("XPUSIM_DEVICE_MODEL"), *clusters = std::getenv("XPU_NUM_CLUSTER"), *limit = std::getenv("ISOKERN_XPU_TIMEOUT_MS");
    if (name == nullptr || std::strcmp(name, "KUNLUN3") == 0) {
        chosen = kl3();
    } else if (std::strcmp(name, "KUNLUN2") == 0) {
        chosen = kl2();
    } else {
        error = std::string("XPUSIM_DEVICE_MODEL=") + name + ": modelled are KUNLUN2 and KUNLUN3";
        return nullptr;
    }
    if (clusters != nullptr) {
        const int given = std::atoi(clusters);
        if (given < 1 || given > chosen.clusters) {
            error = std::string("XPU_NUM_CLUSTER=") + clusters + ": " + chosen.name + " has 1 to " + std::to_string(chosen.clusters);
            return nullptr;
        }
        chosen.clusters = given;
    }
    if (limit != nullptr && std::atoi(limit) > 0)
        chosen.timeout_ms = std::atoi(limit);
    return &chosen;
}

int device_count()
{
    const char *text = std::getenv("ISOKERN_XPU_DEVICES");
    const int count = text == nullptr ? 1 : std::atoi(text);
    return count < 0 ? 0 : count > 64 ? 64 : count;
}

} // namespace xpurt
