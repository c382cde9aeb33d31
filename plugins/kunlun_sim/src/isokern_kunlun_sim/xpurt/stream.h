/* Streams: work in order, by a thread of their own; and events in them. */
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

namespace xpurt {

/* What a call returns, and more than its number says. */
struct Status {
    int code = XPU_SUCCESS;
    std::string what;
};

/* Bytes that work in flight names. */
struct Range {
    const char *start;
    std::uint64_t bytes;
    bool written; /* it may be written there */
    bool meets(const void *other, std::uint64_t count) const { return start < static_cast<const char *>(other) + count && other < start + bytes; }
};

struct Work {
    std::function<Status(const Status &before)> run; /* `before`: the error that the stream met, if any */
    std::string name;                                /* for messages: "kernel add" */
    std::vector<Range> ranges;
    bool always = false; /* runs after an error, too: others wait for it */
};

class Stream {
public:
    /* `lazy`: what is enqueued starts as late as the host can tell, when somebody waits. */
    Stream(int device, bool lazy) : device(device), lazy_(lazy) {}
    ~Stream(); /* what was enqueued still runs */

    /* After an error, what is enqueued is dropped until `wait` has told it. Throws std::system_error where the host has no thread left. */
    void push(Work work);
    /* Starts what is enqueued. */
    void kick();
    /* Waits until everything so far is done; the error that this stream met, forgotten then unless `sticky(code)`. */
    Status wait(bool (*sticky)(int device));
    /* The name of work in flight that touches these bytes in a way that matters for a reader or for a writer; empty where none does. */
    std::string user(const void *start, std::uint64_t bytes, bool writes);

    const int device;

private:
    void run();
    static bool conflicts(const Work &, const void *start, std::uint64_t bytes, bool writes);
    const bool lazy_;
    bool go_ = false, ending_ = false;
    std::mutex mutex_;
    std::condition_variable more_, done_;
    std::deque<Work> queue_; /* the first is running, or next */
    std::uint64_t pushed_ = 0, finished_ = 0;
    Status error_;
    std::thread thread_; /* started by the first work */
};

/* A point in the work of the stream that recorded it last. */
class Event {
public:
    /* Throws what `push` does, and then nothing was recorded. */
    void record(const std::shared_ptr<Stream> &stream);
    /* Waits for the last record, and gives the error that its stream had met by then. Never recorded: reached. */
    Status wait();
    /* The same for a stream's work: its number is taken now, the waiting done later. */
    std::uint64_t last();
    Status wait(std::uint64_t number);
    /* XPUERR_BUSY while it is not reached. */
    Status query();

private:
    struct Shared { /* outlives the event: streams still reach it */
        std::mutex mutex;
        std::condition_variable changed;
        std::uint64_t begun = 0, recorded = 0, reached = 0; /* numbers of records; one that is begun may fail */
        Status error;
        std::weak_ptr<Stream> stream;
    };
    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    void kick();
};

} // namespace xpurt
#endif
