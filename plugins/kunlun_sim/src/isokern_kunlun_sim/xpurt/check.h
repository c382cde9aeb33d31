/* Findings of the checks. */
#ifndef XPURT_CHECK_H
#define XPURT_CHECK_H
#include <string>

namespace xpurt {

/* A rule of the host side was broken: what happened, and what to do about it. */
void report(const char *rule, const std::string &text, const std::string &remedy);

} // namespace xpurt
#endif
