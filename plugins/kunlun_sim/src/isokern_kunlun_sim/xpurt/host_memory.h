/* Memory of the host that asynchronous copies read and write: what becomes of it until they do. */
#ifndef XPURT_HOST_MEMORY_H
#define XPURT_HOST_MEMORY_H
#include <cstdint>
#include <string>

#include "../include/xpu/runtime.h"

namespace xpurt
{

/* An asynchronous copy between the host and the device, of checked mode. */
class WatchedCopy
{
  public:
    /* At the call: the host's bytes are hashed if they will be read. If they will be written, they are overwritten. */
    WatchedCopy(void *to, const void *from, std::uint64_t bytes, XPUMemcpyKind kind, std::string name);
    ~WatchedCopy();
    WatchedCopy(const WatchedCopy &) = delete;
    WatchedCopy &operator=(const WatchedCopy &) = delete;
    /* Copy, and report what the host did to its memory in the meantime. Memory that is gone is left alone. */
    void run();

  private:
    void report_change(const char *what) const;
    void *to_;
    const void *from_;
    std::uint64_t bytes_, sum_ = 0;
    XPUMemcpyKind kind_;
    std::string name_;
    bool watched_ = false; /* not where earlier work in flight writes the host's bytes */
};

/* The host frees memory: report it if a copy in flight uses it. Returns whether one does; then the memory must stay. */
bool report_freed(const void *start, std::uint64_t bytes, const char *by);

/* An array or a variable of the host ends: report a copy that still uses it. */
void report_ended(const void *object, std::uint64_t bytes);

/* The host waits in a function whose frame ends at `frame`: report a copy of `stream` that uses an array of a function
 * which has returned. */
class Stream;
void report_dead_arrays(Stream &stream, const char *frame);

} // namespace xpurt
#endif
