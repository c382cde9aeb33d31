/* A group of fibers with barriers: the cores of a cluster, or the threads of a block.
 *
 * Members run one after another, each until it waits or ends; then every barrier that all its members have reached is
 * released. A member that has ended blocks nobody. If nothing can be released, the group is stuck. A member may abandon
 * the whole run. */
#ifndef IK_EMULATION_GROUP_H
#define IK_EMULATION_GROUP_H
#include <memory>
#include <random>
#include <vector>

#include "fiber.h"

namespace ik_emulation
{

/* A barrier is for the members whose number divided by `width` has its bit set in `mask`. */
struct Barrier {
    int width = 1 << 30;
    std::uint64_t mask = 1;
    const void *site = nullptr; /* where the member waits; does not identify the barrier */

    bool has(int member) const
    {
        const int part = member / width;
        return part < 64 && (mask >> part & 1) != 0;
    }
    bool same(const Barrier &other) const { return width == other.width && mask == other.mask; }
};

class Group
{
  public:
    struct Member {
        std::unique_ptr<Fiber> fiber;
        bool waits = false;
        Barrier at;
    };

    /* Called when a barrier is released, with the members that were waiting at it. */
    using Released = void (*)(void *context, const Barrier &, const std::vector<int> &);

    Group(int max_members, std::size_t stack_bytes) : members_(static_cast<std::size_t>(max_members))
    {
        for (Member &m : members_)
            m.fiber = std::make_unique<Fiber>(stack_bytes);
    }

    /* Run function(arguments[i]) as member i, all to their ends. With `seed` 0 they run in order, otherwise each turn
     * has an order of its own. Returns false if the run was abandoned, or if members wait for others that never come:
     * `waiting()` then says where. */
    bool run(int count, Fiber::Function function, void *const *arguments, std::uint64_t seed,
        Released released = nullptr, void *context = nullptr)
    {
        count_ = count;
        abandoned_ = false;
        order_.resize(static_cast<std::size_t>(count));
        for (int i = 0; i < count; i++) {
            order_[static_cast<std::size_t>(i)] = i;
            members_[static_cast<std::size_t>(i)].waits = false;
            members_[static_cast<std::size_t>(i)].fiber->start(function, arguments[i]);
        }
        std::mt19937_64 random(seed);
        for (;;) {
            if (seed != 0)
                for (std::size_t i = order_.size(); i > 1; i--)
                    std::swap(order_[i - 1], order_[random() % i]);
            for (int i : order_) {
                Member &m = members_[static_cast<std::size_t>(i)];
                if (m.fiber->done() || m.waits)
                    continue;
                current_ = i;
                m.fiber->resume();
                if (abandoned_)
                    return false;
            }
            bool live = false, moved = false;
            const Barrier *closed = nullptr; /* most members wait at one barrier: it is looked at once */
            for (int i = 0; i < count; i++) {
                Member &m = members_[static_cast<std::size_t>(i)];
                if (m.fiber->done())
                    continue;
                live = true;
                if (m.waits && closed != nullptr && m.at.same(*closed))
                    continue;
                if (!m.waits || release(m.at, released, context))
                    moved = true;
                else
                    closed = &m.at;
            }
            if (!live)
                return true;
            if (!moved)
                return false;
        }
    }

    /* Wait at a barrier; called by the running member. */
    void wait(const Barrier &barrier)
    {
        Member &m = members_[static_cast<std::size_t>(current_)];
        m.at = barrier;
        m.waits = true;
        Fiber::yield();
    }

    /* Let the others run, then go on; called by the running member. */
    void pass() { Fiber::yield(); }

    /* Make `run` return and leave every member where it is; called by the running member, also from a signal
     * handler. */
    [[noreturn]] void abandon()
    {
        abandoned_ = true;
        Fiber::yield();
        __builtin_unreachable();
    }

    bool abandoned() const { return abandoned_; }
    int current() const { return current_; }
    const Stack &stack(int member) const { return members_[static_cast<std::size_t>(member)].fiber->stack(); }

    /* The members that are waiting. */
    std::vector<int> waiting() const
    {
        std::vector<int> found;
        for (int i = 0; i < count_; i++)
            if (!members_[static_cast<std::size_t>(i)].fiber->done() && members_[static_cast<std::size_t>(i)].waits)
                found.push_back(i);
        return found;
    }
    const Barrier &barrier_of(int member) const { return members_[static_cast<std::size_t>(member)].at; }

  private:
    bool release(const Barrier barrier, Released released, void *context)
    {
        std::vector<int> in;
        for (int i = 0; i < count_; i++) {
            const Member &m = members_[static_cast<std::size_t>(i)];
            if (!barrier.has(i) || m.fiber->done())
                continue;
            if (!m.waits || !m.at.same(barrier))
                return false;
            in.push_back(i);
        }
        if (in.empty())
            return false;
        for (int i : in)
            members_[static_cast<std::size_t>(i)].waits = false;
        if (released != nullptr)
            released(context, barrier, in);
        return true;
    }

    std::vector<Member> members_;
    std::vector<int> order_;
    int count_ = 0, current_ = -1;
    bool abandoned_ = false;
};

} // namespace ik_emulation
#endif
