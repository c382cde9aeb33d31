/* The order of the host's work in checked mode: work of one stream is in order, and work of two streams only through an
 * event, or because the host has waited. A race is found whichever of the two happens to run first. */
#ifndef XPURT_CHECK_HOST_H
#define XPURT_CHECK_HOST_H
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace xpurt::check
{

/* The work of one stream, which is numbered from 1. */
class Timeline;
/* For other streams: up to which number their work is done before this. */
using Clock = std::map<std::shared_ptr<Timeline>, std::uint64_t>;

/* The place of one piece of work in that order. Without a stream it is none: kernels are not checked. */
struct Moment {
    std::shared_ptr<Timeline> stream;
    std::uint64_t number = 0, call = 0; /* call: of the host, of all that it made */
    std::shared_ptr<const Clock> known;
};

std::shared_ptr<Timeline> make_timeline();
/* The stream is gone; the host has waited for its work. */
void end_timeline(const std::shared_ptr<Timeline> &);
/* Work was enqueued; it starts after `after`, too, if that is work. */
Moment enqueue(const std::shared_ptr<Timeline> &, const Moment &after);
/* The host has waited for work, so what it enqueues from now on starts later. */
void wait_on_host(const Moment &);

/* One use of memory by work: what a finding says about it. */
struct Deed {
    std::string name, what; /* "kernel add", "stores" */
    int cluster = -1, core = -1;
    std::string where; /* file:line */
};

/* Who used the bytes of one allocation, or the host's memory: by stream, the last use of each kind. */
class History
{
  public:
    struct Use {
        std::uint64_t number = 0; /* of the work; 0: none */
        bool atomic = false;
        std::shared_ptr<const Deed> deed;
    };
    struct Uses {
        Use write, read;
    };

    /* Return the use of bytes by other streams' work which is not in order with `now`; null if there is none. */
    const Use *conflict(const Moment &now, std::uint64_t begin, std::uint64_t end, bool write, bool atomic) const;
    void add(const Moment &, std::uint64_t begin, std::uint64_t end, bool write, bool atomic,
        const std::shared_ptr<const Deed> &);
    /* Forget what the host has waited for. */
    void forget_done();

  private:
    /* From each key to the next one, the uses are the same. */
    using Layer = std::map<std::uint64_t, Uses>;
    std::map<std::shared_ptr<Timeline>, Layer> layers_;
};

/* Work uses memory of a history: report it if other work's use of the same bytes is not in order with it. `where` says
 * which memory [begin, end) is. */
void use_memory(History &, const Moment &, std::uint64_t begin, std::uint64_t end, bool write, bool atomic,
    const std::shared_ptr<const Deed> &, const std::string &where);

/* The uses of bytes of device or host memory by an asynchronous copy. */
void use_copied(const Moment &, const std::string &name, const void *to, bool to_device, const void *from,
    bool from_device, std::uint64_t bytes);

/* Say which work, whose end the host has not waited for, uses device memory so that the host's reading or, if `write`,
 * writing is not in order with it; empty if none does. */
std::string unfinished(const void *start, std::uint64_t bytes, bool write);

} // namespace xpurt::check
#endif
