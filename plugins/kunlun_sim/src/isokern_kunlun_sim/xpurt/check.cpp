/* What checked kernels announce to the emulator. */
#include "../include/xpusim/device.h"

extern "C" {

uint64_t xpusim_vector_load(const void *, int, int, xpusim_site) { return 0; }
void xpusim_vector_store(void *, int, int, uint64_t, uint64_t, xpusim_site) {}
void xpusim_use(uint64_t, xpusim_site) {}
void xpusim_atomic(const void *, int, xpusim_site) {}
}
