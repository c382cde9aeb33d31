#include "fault.h"

#include <cstdint>
#include <cstdio>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace xpurt
{

/* Return what a program prints; it is started without a shell. */
static std::string output_of(const char *const *arguments)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return {};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const int failed =
        posix_spawnp(&child, arguments[0], &actions, nullptr, const_cast<char *const *>(arguments), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t n; failed == 0 && (n = read(ends[0], part, sizeof part)) > 0;)
        text.append(part, static_cast<std::size_t>(n));
    close(ends[0]);
    if (failed == 0)
        waitpid(child, nullptr, 0);
    return text;
}

bool of_the_language(const std::string &line)
{ return line.find("/xpusim/") != std::string::npos || line.find("/xpu/kernel/") != std::string::npos; }

std::string spans(const std::vector<int> &numbers)
{
    std::string text;
    for (std::size_t i = 0, to; i < numbers.size(); i = to + 1) {
        for (to = i; to + 1 < numbers.size() && numbers[to + 1] == numbers[to] + 1;)
            to++;
        text +=
            (text.empty() ? "" : ", ") + std::to_string(numbers[i]) + (to > i ? "-" + std::to_string(numbers[to]) : "");
    }
    return text;
}

/* Return the line of one address, the innermost of the inlined functions first; empty if all of it is in the language's
 * headers. */
static std::string line_at(const char *library, unsigned long long address)
{
    char offset[32];
    std::snprintf(offset, sizeof offset, "%#llx", address);
    const char *const command[] = { "addr2line", "-i", "-e", library, offset, nullptr };
    const std::string found = output_of(command);
    for (std::size_t start = 0, end; (end = found.find('\n', start)) != std::string::npos; start = end + 1) {
        std::string line = found.substr(start, end - start);
        line = line.substr(0, line.find(" (discriminator"));
        if (line.find('?') == std::string::npos && !of_the_language(line))
            return line;
    }
    return {};
}

std::string source_line(void *const *frames, int count, int exact, const void *function)
{
    Dl_info of{}, at{};
    if (dladdr(function, &of) == 0)
        return {};
    std::string line;
    for (int i = 0; i < count && line.empty(); i++)
        if (dladdr(frames[i], &at) != 0 && at.dli_fbase == of.dli_fbase)
            line = line_at(at.dli_fname,
                static_cast<unsigned long long>(
                    static_cast<const char *>(frames[i]) - static_cast<const char *>(at.dli_fbase))
                    - (i < exact ? 0 : 1));
    return line;
}

} // namespace xpurt
