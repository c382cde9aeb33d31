// isokern.h for C++14: objects that free what they own, and exceptions instead of statuses. Header only.
#ifndef ISOKERN_HPP
#define ISOKERN_HPP
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "isokern.h"

namespace isokern
{

// The error of a verb: its status and its message.
class Error : public std::runtime_error
{
  public:
    Error(ik_status status, const std::string &message) : std::runtime_error(message), status_(status) {}
    ik_status status() const { return status_; }

  private:
    ik_status status_;
};

inline void check(ik_status status)
{
    if (status != IK_SUCCESS)
        throw Error(status, ik_last_error());
}

// The description of a tensor, row-major where no strides are given.
inline ik_tensor tensor(std::int32_t dtype, const std::vector<std::int64_t> &shape,
    std::vector<std::int64_t> strides = {}, std::int64_t offset = 0)
{
    if (shape.size() > IK_MAX_RANK || (!strides.empty() && strides.size() != shape.size()))
        throw Error(IK_BAD_TENSOR_SHAPE,
            "a tensor of rank " + std::to_string(shape.size()) + " with " + std::to_string(strides.size())
                + " strides; allowed: rank 0 to 8, and a stride a dim");
    ik_tensor t{};
    t.dtype = dtype;
    t.ndim = static_cast<std::int32_t>(shape.size());
    t.offset = offset;
    std::int64_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        t.shape[i] = shape[i];
        t.strides[i] = strides.empty() ? step : strides[i];
        step *= shape[i] > 1 ? shape[i] : 1;
    }
    return t;
}

// An input that is absent, and an output that is to be inferred.
inline ik_tensor absent() { return ik_tensor{}; }

// Memory of the thread's device.
class Memory
{
  public:
    explicit Memory(std::uint64_t bytes, const char *kind = "default") : bytes_(bytes)
    {
        void *made = nullptr;
        check(ik_memory_alloc(bytes, kind, &made));
        held_.reset(made);
    }
    void *data() const { return held_.get(); }
    std::uint64_t bytes() const { return bytes_; }

  private:
    struct Free {
        void operator()(void *memory) const { ik_memory_free(memory); }
    };
    std::unique_ptr<void, Free> held_;
    std::uint64_t bytes_;
};

// Calls of one stream run in order.
class Stream
{
  public:
    Stream() : held_(ik_stream_create())
    {
        if (held_ == nullptr)
            throw Error(IK_OUT_OF_MEMORY, ik_last_error());
    }
    void *handle() const { return held_.get(); }
    void synchronize() { check(ik_stream_synchronize(handle())); }
    void write(Memory &to, const void *from, std::uint64_t bytes)
    { check(ik_memory_write(within(to, bytes), from, bytes, handle())); }
    void read(void *to, const Memory &from, std::uint64_t bytes)
    { check(ik_memory_read(to, within(from, bytes), bytes, handle())); }

  private:
    static void *within(const Memory &memory, std::uint64_t bytes)
    {
        if (bytes > memory.bytes())
            throw Error(IK_INVALID_ARGUMENT,
                std::to_string(bytes) + " bytes to be copied; allowed: " + std::to_string(memory.bytes()));
        return memory.data();
    }
    struct Destroy {
        void operator()(void *stream) const { ik_stream_destroy(stream); }
    };
    std::unique_ptr<void, Destroy> held_;
};

namespace detail
{
template <typename Record>
ik_attributes attributes(std::uint64_t schema, const Record &record)
{ return ik_attributes{ schema, sizeof record, &record }; }
} // namespace detail

// A described call. Thread-safe if each thread passes a workspace of its own to `call`; without one, `call` uses the
// operator's own.
class Operator
{
  public:
    // Outputs first, then inputs; `attributes` null for the defaults.
    Operator(std::uint32_t kind, const std::vector<ik_tensor> &tensors, const ik_attributes *attributes = nullptr)
    {
        ik_plan *made = nullptr;
        check(ik_op_create(kind, tensors.data(), static_cast<std::uint32_t>(tensors.size()), attributes, &made));
        held_.reset(made);
        count_ = tensors.size();
    }

    // With a record of attributes: Operator(IK_OP_SOFTMAX, tensors, IK_SCHEMA_SOFTMAX, ik_softmax_attrs{-1}).
    template <typename Record>
    Operator(std::uint32_t kind, const std::vector<ik_tensor> &tensors, std::uint64_t schema, const Record &record)
        : Operator(kind, tensors, std::make_unique<ik_attributes>(detail::attributes(schema, record)).get())
    {
    }

    // The outputs of an operator for these inputs. Pass each output's dtype where none of its inputs fixes it, else
    // absent().
    static std::vector<ik_tensor> infer(
        std::uint32_t kind, std::vector<ik_tensor> tensors, const ik_attributes *attributes = nullptr)
    {
        check(ik_op_infer(kind, tensors.data(), static_cast<std::uint32_t>(tensors.size()), attributes));
        return tensors;
    }

    std::uint64_t workspace_bytes() const { return workspace().first; }
    Memory make_workspace() const
    {
        const auto need = workspace();
        return Memory(need.first, need.second);
    }

    // Enqueue the call; returns true where the thread captures the stream, so that the call is recorded instead.
    bool call(const std::vector<void *> &data, Stream &stream, const Memory *workspace = nullptr)
    {
        if (data.size() != count_)
            throw Error(IK_INVALID_ARGUMENT,
                std::to_string(data.size()) + " pointers; allowed: " + std::to_string(count_) + ", as many as tensors");
        if (workspace == nullptr && workspace_bytes() != 0) {
            if (own_ == nullptr)
                own_ = std::make_unique<Memory>(make_workspace());
            workspace = own_.get();
        }
        const ik_status status =
            ik_op_call(held_.get(), data.data(), workspace == nullptr ? nullptr : workspace->data(),
                workspace == nullptr ? 0 : workspace->bytes(), stream.handle());
        if (status != IK_CAPTURED)
            check(status);
        return status == IK_CAPTURED;
    }

    const ik_plan *plan() const { return held_.get(); }

  private:
    std::pair<std::uint64_t, const char *> workspace() const
    {
        std::uint64_t bytes = 0;
        const char *kind = nullptr;
        check(ik_op_workspace(held_.get(), &bytes, &kind));
        return { bytes, kind };
    }
    struct Destroy {
        void operator()(ik_plan *plan) const { ik_op_destroy(plan); }
    };
    std::unique_ptr<ik_plan, Destroy> held_;
    std::size_t count_ = 0;
    std::unique_ptr<Memory> own_;
};

// The recording of the calls that this thread makes on a stream between the constructor and `end`. The operators and
// the memory must live as long as it is replayed.
class Recording
{
  public:
    explicit Recording(Stream &stream) : stream_(&stream) { check(ik_stream_begin_capture(stream.handle())); }
    Recording(Recording &&other) noexcept
        : stream_(std::exchange(other.stream_, nullptr)), calls_(std::exchange(other.calls_, nullptr)),
          count_(other.count_)
    {
    }
    Recording(const Recording &) = delete;
    Recording &operator=(const Recording &) = delete;
    Recording &operator=(Recording &&) = delete;
    ~Recording()
    {
        if (stream_ != nullptr && calls_ == nullptr)
            calls_ = ik_stream_end_capture(stream_->handle(), &count_);
        ik_calls_free(calls_, count_);
    }
    void end()
    {
        if (calls_ != nullptr)
            throw Error(IK_INVALID_ARGUMENT, "the recording has ended");
        calls_ = ik_stream_end_capture(stream_->handle(), &count_);
        if (calls_ == nullptr)
            throw Error(IK_INVALID_ARGUMENT, ik_last_error());
    }
    std::uint64_t size() const { return count_; }
    void replay()
    {
        if (calls_ == nullptr)
            throw Error(IK_INVALID_ARGUMENT, "the recording has not ended");
        check(ik_calls_replay(calls_, count_, stream_->handle(), nullptr));
    }

  private:
    Stream *stream_;
    const ik_call *calls_ = nullptr;
    std::uint64_t count_ = 0;
};

} // namespace isokern
#endif
