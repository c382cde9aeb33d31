/* Where in a kernel's source the processor was. */
#ifndef XPURT_FAULT_H
#define XPURT_FAULT_H
#include <string>

namespace xpurt {

/* "file:line" of the innermost of `frames` (return addresses, but for the first `exact`) in the library that holds `function`, with headers of the
 * kernel language passed over; empty where that cannot be known. Runs addr2line: for kernels that have failed. */
std::string source_line(void *const *frames, int count, int exact, const void *function);

} // namespace xpurt
#endif
