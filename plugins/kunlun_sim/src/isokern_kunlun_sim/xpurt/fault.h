/* Where in a kernel's source the processor was. */
#ifndef XPURT_FAULT_H
#define XPURT_FAULT_H
#include <string>
#include <vector>

namespace xpurt {

/* "file:line" of the innermost of `frames` (return addresses, but for the first `exact`) in the library that holds `function`, with headers of the
 * kernel language passed over; empty where that cannot be known. Runs addr2line: for kernels that have failed. */
std::string source_line(void *const *frames, int count, int exact, const void *function);

/* Whether a line "file:line" is in the headers of the kernel language, which are nobody's source. */
bool of_the_language(const std::string &line);

/* Numbers in order, as 0-3, 7. */
std::string spans(const std::vector<int> &numbers);

} // namespace xpurt
#endif
