/* Streams, which run work in order in a thread of their own, and their events. */
#ifndef XPURT_STREAM_H
#define XPURT_STREAM_H
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../include/xpu/runtime.h"
#include "check_host.h"

namespace xpurt
{

/* The code that a call returns, and details. */
struct Status {
    int code = XPU_SUCCESS;
    std::string what;
};

/* Bytes that work in flight uses. */
struct Range {
    const char *start;
    std::uint64_t bytes;
    bool written; /* whether the work may write there */
    bool meets(const void *other, std::uint64_t count) const
    { return start < static_cast<const char *>(other) + count && other < start + bytes; }
};

using check::Moment;

struct Work {
    /* `before`: the stream's earlier error, if any; `now`: when the work was enqueued. */
    std::function<Status(const Status &before, const Moment &now)> run;
    std::string name; /* for messages: "kernel add" */
    std::vector<Range> ranges;
    bool always = false; /* runs also after an error, because others wait for it */
    Moment moment;       /* before it is enqueued: which other work it waits for, if any */
};

class Stream
{
  public:
    /* `lazy`: work starts as late as possible, when somebody waits for it, and its order is recorded. */
    Stream(int device, bool lazy) : device(device), lazy_(lazy), timeline_(lazy ? check::make_timeline() : nullptr) {}
    ~Stream(); /* runs what is enqueued */

    /* Enqueue work, and return its place in the order. After an error, work is dropped until `wait` has returned the
     * error. Throws std::system_error if the host has no thread left. */
    Moment push(Work work);
    /* Start what is enqueued. */
    void kick();
    /* Wait until everything enqueued so far is done. Returns the stream's error, and clears it unless
     * `sticky(code)`. */
    Status wait(bool (*sticky)(int device));
    /* Return the name of work in flight that conflicts with reading these bytes or, if `writes`, with writing them;
     * empty if none does. */
    std::string user(const void *start, std::uint64_t bytes, bool writes);

    const int device;

  private:
    void run();
    static bool conflicts(const Work &, const void *start, std::uint64_t bytes, bool writes);
    const bool lazy_;
    const std::shared_ptr<check::Timeline> timeline_; /* null unless kernels are checked */
    Moment last_;
    bool go_ = false, ending_ = false;
    std::mutex mutex_;
    std::condition_variable more_, done_;
    std::deque<Work> queue_; /* the first is running, or next */
    std::uint64_t pushed_ = 0, finished_ = 0;
    Status error_;
    std::thread thread_; /* started by the first work */
};

/* A point in the work of the stream that recorded it last. */
class Event
{
  public:
    /* Record the event. Throws what `push` throws, and then nothing was recorded. */
    void record(const std::shared_ptr<Stream> &stream);
    /* Wait for the last record; returns the error that its stream had met by then. An event that was never recorded is
     * reached. */
    Status wait();
    /* The same in two steps, for a stream's work: get the record's number, and its place in the order, now; wait for it
     * later. */
    std::uint64_t last(Moment &moment);
    Status wait(std::uint64_t number);
    /* Return XPUERR_BUSY until the record is reached. */
    Status query();

  private:
    struct Shared { /* outlives the event, because streams still use it */
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t begun = 0, recorded = 0, reached = 0; /* numbers of records; one that is begun may fail */
        Status error;
        Moment moment; /* of the last record */
        std::weak_ptr<Stream> stream;
    };
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    void kick();
};

} // namespace xpurt
#endif
