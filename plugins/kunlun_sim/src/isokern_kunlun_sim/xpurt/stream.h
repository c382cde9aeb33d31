/* Streams: work in order, by a thread of their own. */
#ifndef XPURT_STREAM_H
#define XPURT_STREAM_H
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "../include/xpu/runtime.h"

namespace xpurt {

class Stream {
public:
    explicit Stream(int device);
    ~Stream(); /* what was enqueued still runs */

    /* `work` returns an error code; after one, what was enqueued behind it is dropped. */
    void push(std::function<int()> work);
    /* Waits until everything so far is done; the error that this stream met, and forgets it. */
    int wait();

    const int device;

private:
    void run();
    std::mutex mutex_;
    std::condition_variable more_, idle_;
    std::deque<std::function<int()>> queue_;
    bool busy_ = false, ending_ = false;
    int error_ = XPU_SUCCESS;
    std::thread thread_;
};

struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0, reached = 0;
};

} // namespace xpurt
#endif
