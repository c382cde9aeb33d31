/* Work-groups on the CPU: one group after the other, with the items of a group as fibers, so that barriers work.
 *
 * All items of a group must wait at the same barriers; otherwise the launch ends with a sentence that says where they
 * do not. */
#ifndef IK_EMULATION_WORK_GROUPS_H
#define IK_EMULATION_WORK_GROUPS_H
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "group.h"
#include "isokern_environment.h"

namespace ik_emulation
{

/* One launch at a time. */
class WorkGroups
{
    static constexpr int LATE = 32; /* turns by which an item is late: more than a reduction by shuffles takes */

  public:
    explicit WorkGroups(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {}

    /* Run function(argument) for each of `local` items of each of `groups` groups. `memory` is the local memory of a
     * group; it is filled with NaN when a group begins, because its contents are undefined. With `seed` 0, groups and
     * items run in order, otherwise in an order of its own, with some items late. Returns what the kernel did wrong,
     * where the launch stopped; empty if nothing. Items run in the environment of isokern_environment.h, whatever the
     * caller's is. */
    std::string run(Fiber::Function function, void *argument, std::int64_t groups, int local, char *memory,
        std::size_t memory_bytes, std::uint64_t seed)
    {
        try {
            if (local > max_local_) {
                items_ = std::make_unique<Group>(local, stack_bytes_);
                max_local_ = local;
            }
            arguments_.assign(static_cast<std::size_t>(local), this);
            given_.resize(static_cast<std::size_t>(local));
            order_.resize(seed == 0 ? 0 : static_cast<std::size_t>(groups));
        } catch (const std::bad_alloc &) {
            return "there is no memory for the stacks of " + std::to_string(local) + " items";
        }
        for (std::size_t i = 0; i < order_.size(); i++)
            order_[i] = static_cast<std::int64_t>(i);
        random_.seed(seed);
        for (std::size_t i = order_.size(); i > 1; i--)
            std::swap(order_[i - 1], order_[random_() % i]);
        function_ = function;
        argument_ = argument;
        local_ = local;
        late_begin_ = late_end_ = 0;
        wrong_.clear();
        const ik_environment callers = ik_enter_environment();
        for (std::int64_t g = 0; g < groups && wrong_.empty(); g++) {
            group_ = seed == 0 ? g : order_[static_cast<std::size_t>(g)];
            fill(memory, memory_bytes);
            if (seed != 0) {
                late_begin_ = static_cast<int>(random_() % static_cast<std::uint64_t>(local));
                late_end_ = late_begin_ + 1 + local / 8;
            }
            if (!items_->run(local, &WorkGroups::item_of, arguments_.data(), seed == 0 ? 0 : random_() | 1,
                    &WorkGroups::judge, this)
                && wrong_.empty())
                judge_sites(items_->waiting());
        }
        ik_leave_environment(callers);
        return wrong_;
    }

    /* Wait at a barrier; called by the running item. `site` says where in the source. */
    void barrier(const char *site)
    {
        wait({ 1 << 30, 1, site });
        fall_behind();
    }

    /* What an item gives to the others of its sub-group. */
    using Given = std::array<std::uint64_t, 8>;

    /* Exchange values within a sub-group: called by the running item, and by all items of its sub-group in the same
     * call. Each gives, then each reads what all gave, that of item i at index i. A sub-group is `width` consecutive
     * items; a group has at most 64. */
    template <class Read>
    void meet(const Given &given, int width, const char *site, Read read)
    {
        const Barrier those{ width, std::uint64_t{ 1 } << item() / width, site };
        given_[static_cast<std::size_t>(item())] = given;
        wait(those);
        read(given_);
        wait(those); /* all items have read */
    }

    /* Return the bits that the item `lanes` further on gives in the same call, or the item's own bits if its sub-group
     * has no such item. Called by the running item. */
    std::uint64_t shuffle_down(std::uint64_t bits, int lanes, int width, const char *site)
    {
        const int from = item() + lanes;
        meet({ bits }, width, site, [&](const std::vector<Given> &given) {
            if (from / width == item() / width)
                bits = given[static_cast<std::size_t>(from)][0];
        });
        return bits;
    }

    /* End the launch with a reason; called by the running item. */
    [[noreturn]] void stop(std::string why)
    {
        wrong_ = std::move(why);
        items_->abandon();
    }

    std::int64_t group() const { return group_; }
    int item() const { return items_->current(); }

  private:
#ifdef __SANITIZE_ADDRESS__ /* it has red zones between the arrays in `memory` */
    __attribute__((no_sanitize_address)) static void fill(volatile char *memory, std::size_t bytes)
    {
        for (std::size_t i = 0; i < bytes; i++)
            memory[i] = '\xff';
    }
#else
    static void fill(char *memory, std::size_t bytes)
    {
        if (bytes != 0)
            std::memset(memory, 0xff, bytes);
    }
#endif

    static void item_of(void *context)
    {
        auto *self = static_cast<WorkGroups *>(context);
        self->fall_behind();
        self->function_(self->argument_);
    }

    void fall_behind()
    {
        if (late_begin_ <= item() && item() < late_end_)
            for (int round = 0; round < LATE; round++)
                items_->pass();
    }

    void wait(const Barrier &barrier)
    {
        items_->wait(barrier);
        if (!wrong_.empty())
            items_->abandon();
    }

    /* Called for each barrier that is released. */
    static void judge(void *context, const Barrier &barrier, const std::vector<int> &waiting)
    {
        auto *self = static_cast<WorkGroups *>(context);
        if (self->judge_sites(waiting))
            return;
        int members = 0;
        for (int i = 0; i < self->local_; i++)
            members += barrier.has(i);
        if (static_cast<int>(waiting.size()) != members)
            self->wrong_ = "only " + std::to_string(waiting.size()) + " of " + std::to_string(members)
                + " items of group " + std::to_string(self->group_) + " reach the barrier at "
                + self->site(waiting.front()) + "; the others have ended";
    }

    /* Whether items wait at different places, which is an error; sets the text that says which. */
    bool judge_sites(const std::vector<int> &waiting)
    {
        const int first = waiting.front();
        for (const int item : waiting)
            if (std::strcmp(site(item), site(first)) != 0) {
                wrong_ = "items of group " + std::to_string(group_) + " wait at different barriers: item "
                    + std::to_string(first) + " at " + site(first) + ", item " + std::to_string(item) + " at "
                    + site(item);
                return true;
            }
        return false;
    }

    const char *site(int item) const { return static_cast<const char *>(items_->barrier_of(item).site); }

    std::size_t stack_bytes_;
    std::unique_ptr<Group> items_;
    Fiber::Function function_ = nullptr;
    void *argument_ = nullptr;
    std::vector<void *> arguments_;
    std::vector<Given> given_;
    std::vector<std::int64_t> order_;
    std::string wrong_;
    std::mt19937_64 random_;
    std::int64_t group_ = 0;
    int max_local_ = 0, local_ = 0;
    /* These items stay behind at first and after each barrier, so that others get far ahead of them. */
    int late_begin_ = 0, late_end_ = 0;
};

} // namespace ik_emulation
#endif
