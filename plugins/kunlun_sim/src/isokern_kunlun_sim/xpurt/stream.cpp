#include "stream.h"

namespace xpurt {

Stream::Stream(int of) : device(of), thread_([this] { run(); }) {}

Stream::~Stream()
{
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    more_.notify_one();
    thread_.join();
}

void Stream::push(std::function<int()> work)
{
    {
        std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
    }
    more_.notify_one();
}

int Stream::wait()
{
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
    const int error = error_;
    error_ = XPU_SUCCESS;
    return error;
}

void Stream::run()
{
    std::unique_lock lock(mutex_);
    for (;;) {
        more_.wait(lock, [this] { return !queue_.empty() || ending_; });
        if (queue_.empty())
            return;
        std::function<int()> work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        const bool skip = error_ != XPU_SUCCESS;
        lock.unlock();
        const int status = skip ? XPU_SUCCESS : work();
        work = nullptr;
        lock.lock();
        if (status != XPU_SUCCESS)
            error_ = status;
        busy_ = false;
        if (queue_.empty())
            idle_.notify_all();
    }
}

} // namespace xpurt
