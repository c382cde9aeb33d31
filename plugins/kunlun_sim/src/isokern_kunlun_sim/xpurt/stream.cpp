#include "stream.h"

#include <algorithm>

#include "isokern_environment.h"

namespace xpurt
{

static constexpr std::size_t QUEUE = 32; /* the depth of a hardware queue: a lazy stream starts then */

Stream::~Stream()
{
    {
        std::lock_guard lock(mutex_);
        ending_ = true;
    }
    more_.notify_one();
    if (thread_.joinable())
        thread_.join();
    check::end_timeline(timeline_);
}

Moment Stream::push(Work work)
{
    Moment pushed;
    bool start;
    {
        std::lock_guard lock(mutex_);
        if (!thread_.joinable())
            thread_ = std::thread([this] { run(); });
        if (timeline_ != nullptr)
            pushed = last_ = work.moment = check::enqueue(timeline_, work.moment);
        queue_.push_back(std::move(work));
        pushed_++;
        go_ |= !lazy_ || queue_.size() >= QUEUE;
        start = go_;
    }
    if (start)
        more_.notify_one();
    return pushed;
}

void Stream::kick()
{
    {
        std::lock_guard lock(mutex_);
        go_ = true;
    }
    more_.notify_one();
}

Status Stream::wait(bool (*sticky)(int device))
{
    std::unique_lock lock(mutex_);
    if (!queue_.empty() && !go_) {
        go_ = true;
        more_.notify_one();
    }
    const Moment last = last_;
    done_.wait(lock, [this, number = pushed_] { return finished_ >= number; });
    check::wait_on_host(last);
    Status error = error_;
    if (!sticky(device))
        error_ = {};
    return error;
}

bool Stream::conflicts(const Work &work, const void *start, std::uint64_t bytes, bool writes)
{
    return std::any_of(work.ranges.begin(), work.ranges.end(),
        [=](const Range &r) { return (writes || r.written) && r.meets(start, bytes); });
}

std::string Stream::user(const void *start, std::uint64_t bytes, bool writes)
{
    std::lock_guard lock(mutex_);
    for (const Work &work : queue_)
        if (conflicts(work, start, bytes, writes))
            return work.name;
    return {};
}

void Stream::run()
{
    /* Also for the threads that this one starts to help with clusters; the thread that started this one may have
     * another environment. */
    (void)ik_enter_environment();
    std::unique_lock lock(mutex_);
    for (;;) {
        more_.wait(lock, [this] { return (!queue_.empty() && go_) || ending_; });
        if (queue_.empty())
            return;
        Work &work = queue_.front(); /* it stays in the queue, where it can be found by name, until it is done */
        const Status before = error_;
        const bool skip = before.code != XPU_SUCCESS && !work.always;
        lock.unlock();
        Status status = skip ? Status{} : work.run(before, work.moment);
        work.run = nullptr;
        lock.lock();
        queue_.pop_front();
        if (status.code != XPU_SUCCESS && error_.code == XPU_SUCCESS)
            error_ = std::move(status);
        go_ = !queue_.empty();
        finished_++;
        done_.notify_all();
    }
}

void Event::record(const std::shared_ptr<Stream> &stream)
{
    kick(); /* start the former stream, which this event will not know any more */
    std::uint64_t number;
    {
        std::lock_guard lock(shared_->mutex);
        number = ++shared_->begun;
    }
    const Moment moment = stream->push({ [shared = shared_, number](const Status &before, const Moment &) {
                                            std::lock_guard lock(shared->mutex);
                                            if (number > shared->reached) {
                                                shared->reached = number;
                                                shared->error = before;
                                            }
                                            shared->changed.notify_all();
                                            return Status{};
                                        },
        "an event", {}, true, {} });
    std::lock_guard lock(shared_->mutex);
    if (number > shared_->recorded) {
        shared_->recorded = number;
        shared_->moment = moment;
        shared_->stream = stream;
    }
}

std::uint64_t Event::last(Moment &moment)
{
    std::lock_guard lock(shared_->mutex);
    moment = shared_->moment;
    return shared_->recorded;
}

void Event::kick()
{
    std::shared_ptr<Stream> stream;
    {
        std::lock_guard lock(shared_->mutex);
        stream = shared_->stream.lock();
    }
    if (stream != nullptr)
        stream->kick();
}

Status Event::wait(std::uint64_t number)
{
    kick();
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [&] { return shared_->reached >= number; });
    return shared_->error;
}

Status Event::wait()
{
    Moment moment;
    Status found = wait(last(moment));
    check::wait_on_host(moment);
    return found;
}

Status Event::query()
{
    kick();
    std::lock_guard lock(shared_->mutex);
    if (shared_->reached < shared_->recorded)
        return { XPUERR_BUSY, "the event is not reached yet" };
    check::wait_on_host(shared_->moment);
    return shared_->error;
}

} // namespace xpurt
