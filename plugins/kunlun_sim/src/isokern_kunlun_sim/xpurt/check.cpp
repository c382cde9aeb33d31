/* What checked kernels announce to the emulator. */
#include "check.h"

#include <cstdio>

#include "../include/xpusim/device.h"

namespace xpurt {

void report(const char *rule, const std::string &text, const std::string &remedy) { std::fprintf(stderr, "xpurt: %s: %s; %s\n", rule, text.c_str(), remedy.c_str()); }

} // namespace xpurt

extern "C" {

uint64_t xpusim_vector_load(const void *, int, int, xpusim_site) { return 0; }
void xpusim_vector_store(void *, int, int, uint64_t, uint64_t, xpusim_site) {}
void xpusim_use(uint64_t, xpusim_site) {}
void xpusim_atomic(const void *, int, xpusim_site) {}
}
