/* Finding the line in a kernel's source where the processor was. */
#ifndef XPURT_FAULT_H
#define XPURT_FAULT_H
#include <string>
#include <vector>

namespace xpurt
{

/* Return "file:line" of the innermost of `frames` in the library that holds `function`, skipping headers of the kernel
 * language; empty if that cannot be found out. All frames but the first `exact` are return addresses. Runs addr2line,
 * so it is for kernels that have failed. */
std::string source_line(void *const *frames, int count, int exact, const void *function);

/* Whether a line "file:line" is in the headers of the kernel language, which no author writes. */
bool of_the_language(const std::string &line);

/* Format sorted numbers as ranges: 0-3, 7. */
std::string spans(const std::vector<int> &numbers);

} // namespace xpurt
#endif
