#include "model.h"

#include "../include/xpusim/device.h"
#include "process.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>

namespace xpurt
{

static constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;
static constexpr int MAX_DEVICES = 64;

/* KL2: boards of 32 GB. The size of KL3's parameter block is not public, so KL2's 128 dwords are assumed. */
static Model kl2() { return { "KUNLUN2", 8, 64, 6, 8 * KiB, 256 * KiB, 64 * MiB - 4 * KiB, 32 * GiB, 512, 10000 }; }
static Model kl3() { return { "KUNLUN3", 12, 64, 12, 8 * KiB, 256 * KiB, 96 * MiB, 96 * GiB, 512, 10000 }; }

/* Parse a whole number within [low, high] from all of `text`. */
static bool number(const std::string &text, long long low, long long high, long long &value)
{
    char *end = nullptr;
    errno = 0;
    value = std::strtoll(text.c_str(), &end, 10);
    return !text.empty() && *end == '\0' && errno == 0 && value >= low && value <= high;
}

/* Return the variable's number, or `fallback` if it is not set; an error says what is allowed. */
static long long variable(const char *name, long long fallback, long long low, long long high, std::string &error)
{
    const char *text = std::getenv(name);
    long long value = fallback;
    if (text != nullptr && !number(text, low, high, value) && error.empty())
        error = std::string(name) + "=" + text + ": allowed are whole numbers from " + std::to_string(low) + " to "
            + std::to_string(high);
    return value;
}

/* Parse "0,2": which devices are visible, in that order. */
static std::vector<int> visible(int count, std::string &error)
{
    std::vector<int> found;
    const char *given = std::getenv("XPU_VISIBLE_DEVICES");
    if (given == nullptr)
        for (int i = 0; i < count; i++)
            found.push_back(i);
    const std::string text = given == nullptr ? "" : given;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size());
        long long index;
        if (!number(text.substr(at, end - at), 0, count - 1, index) || end + 1 == text.size()) {
            error = "XPU_VISIBLE_DEVICES=" + text + ": allowed are numbers from 0 to " + std::to_string(count - 1)
                + " with commas between them";
            return {};
        }
        found.push_back(static_cast<int>(index));
        at = end + 1;
    }
    return found;
}

static Settings read()
{
    Settings s;
    const char *name = std::getenv("XPUSIM_DEVICE_MODEL");
    const std::string wanted = name == nullptr ? "KUNLUN3" : name;
    if (wanted != "KUNLUN3" && wanted != "KUNLUN2") {
        s.error = "XPUSIM_DEVICE_MODEL=" + wanted + ": modelled are KUNLUN2 and KUNLUN3";
        return s;
    }
    s.model = wanted == "KUNLUN2" ? kl2() : kl3();
    s.model.clusters = static_cast<int>(variable("XPU_NUM_CLUSTER", s.model.clusters, 1, s.model.clusters, s.error));
    s.model.timeout_ms = static_cast<int>(variable("ISOKERN_XPU_TIMEOUT_MS", s.model.timeout_ms, 1, INT_MAX, s.error));
    s.seed = static_cast<std::uint64_t>(variable("ISOKERN_XPU_SEED", 0, 0, LLONG_MAX, s.error));
    s.checked = variable("ISOKERN_XPU_CHECK", 0, 0, 1, s.error) == 1;
    const char *fences = std::getenv("ISOKERN_XPU_FIX_MFENCE");
    const std::string added = fences == nullptr || *fences == '\0' ? "none" : fences;
    s.fix_mfence = added == "all";
    if (added != "all" && added != "none" && s.error.empty())
        s.error = "ISOKERN_XPU_FIX_MFENCE=" + added + ": allowed are all and none";
    const auto count = static_cast<int>(variable("ISOKERN_XPU_DEVICES", 1, 1, MAX_DEVICES, s.error));
    if (s.error.empty())
        s.devices = visible(count, s.error);
    return s;
}

const Settings &settings()
{
    static const Settings *made = new Settings(read()); /* never destroyed: threads may outlive exit */
    return *made;
}

static std::atomic<std::uint64_t> &current_seed()
{
    static std::atomic<std::uint64_t> current{ settings().seed };
    return current;
}

std::uint64_t seed() { return current_seed(); }

} // namespace xpurt

void xpusim_set_seed(std::uint64_t seed)
{
    xpurt::current_seed() = seed;
    const std::lock_guard lock(xpurt::process().mutex);
    xpurt::process().launches = 0;
}
