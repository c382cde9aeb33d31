#include "check_host.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "check_state.h"

namespace xpurt::check
{

/* The members are guarded by `order`. */
class Timeline
{
  public:
    std::uint64_t pushed = 0, ended = UINT64_MAX; /* ended: the call that destroyed the stream */
    Clock known;
    std::shared_ptr<const Clock> snapshot = std::make_shared<Clock>();

    /* Whether the host had waited for work `number` before it made a call. */
    bool waited_for(std::uint64_t number, std::uint64_t call) const
    {
        if (ended < call)
            return true;
        const auto found = std::lower_bound(
            waits_.begin(), waits_.end(), number, [](const auto &wait, std::uint64_t n) { return wait.first < n; });
        return found != waits_.end() && found->second < call;
    }

    void wait(std::uint64_t number, std::uint64_t call)
    {
        if (!waits_.empty() && waits_.back().first >= number)
            return;
        waits_.emplace_back(number, call);
        if (waits_.size() <= MAX_WAITS)
            return;
        /* Work that was enqueued between the two oldest waits, and did not run since, counts as behind both. */
        waits_[1].second = waits_[0].second;
        waits_.erase(waits_.begin());
    }

  private:
    static constexpr std::size_t MAX_WAITS = 64;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> waits_; /* up to which work, and by which call; ascending */
};

static std::mutex order;
static std::uint64_t calls = 0;
static auto &host_memory = *new History; /* by address; never destroyed: threads may outlive exit */

std::shared_ptr<Timeline> make_timeline() { return std::make_shared<Timeline>(); }

void end_timeline(const std::shared_ptr<Timeline> &stream)
{
    if (stream == nullptr)
        return;
    const std::lock_guard lock(order);
    stream->ended = ++calls;
    stream->known.clear();
}

Moment enqueue(const std::shared_ptr<Timeline> &stream, const Moment &after)
{
    const std::lock_guard lock(order);
    calls++;
    if (after.stream != nullptr && after.stream != stream) {
        Clock &known = stream->known;
        for (auto it = known.begin(); it != known.end();)
            it = it->first->ended < calls ? known.erase(it) : std::next(it);
        const auto join = [&](const std::shared_ptr<Timeline> &other, std::uint64_t number) {
            if (other != stream && other->ended > calls)
                known[other] = std::max(known[other], number);
        };
        join(after.stream, after.number);
        for (const auto &[other, number] : *after.known)
            join(other, number);
        stream->snapshot = std::make_shared<Clock>(known);
    }
    return { stream, ++stream->pushed, calls, stream->snapshot };
}

void wait_on_host(const Moment &moment)
{
    if (moment.stream == nullptr)
        return;
    const std::lock_guard lock(order);
    calls++;
    moment.stream->wait(moment.number, calls);
    for (const auto &[stream, number] : *moment.known)
        stream->wait(number, calls);
}

static bool knows(const Moment &now, const std::shared_ptr<Timeline> &stream, std::uint64_t number)
{
    if (now.stream == stream || stream->waited_for(number, now.call))
        return true;
    if (now.known == nullptr)
        return false;
    const auto found = now.known->find(stream);
    return found != now.known->end() && found->second >= number;
}

const History::Use *History::conflict(
    const Moment &now, std::uint64_t begin, std::uint64_t end, bool write, bool atomic) const
{
    for (const auto &[stream, layer] : layers_) {
        if (stream == now.stream)
            continue;
        auto it = layer.upper_bound(begin);
        for (it = it == layer.begin() ? it : std::prev(it); it != layer.end() && it->first < end; ++it)
            for (const Use *use : { &it->second.write, write ? &it->second.read : nullptr })
                if (use != nullptr && use->number != 0 && !(atomic && use->atomic) && !knows(now, stream, use->number))
                    return use;
    }
    return nullptr;
}

void History::add(const Moment &now, std::uint64_t begin, std::uint64_t end, bool write, bool atomic,
    const std::shared_ptr<const Deed> &deed)
{
    Layer &layer = layers_[now.stream];
    const auto split = [&](std::uint64_t at) {
        const auto next = layer.lower_bound(at);
        if (next != layer.end() && next->first == at)
            return next;
        return layer.emplace_hint(next, at, next == layer.begin() ? Uses() : std::prev(next)->second);
    };
    split(end);
    auto it = split(begin);
    if (write) /* what this stream did there before was done before the write */
        it = layer.erase(std::next(it), layer.lower_bound(end)), it = std::prev(it);
    for (; it != layer.end() && it->first < end; ++it) {
        if (write)
            it->second = {};
        (write ? it->second.write : it->second.read) = { now.number, atomic, deed };
    }
}

void History::forget_done()
{
    for (auto layer = layers_.begin(); layer != layers_.end();) {
        bool left = false;
        for (auto &[at, uses] : layer->second)
            for (Use *use : { &uses.write, &uses.read }) {
                if (use->number != 0 && layer->first->waited_for(use->number, calls + 1))
                    *use = {};
                left |= use->number != 0;
            }
        layer = left ? std::next(layer) : layers_.erase(layer);
    }
}

void use_memory(History &history, const Moment &now, std::uint64_t begin, std::uint64_t end, bool write, bool atomic,
    const std::shared_ptr<const Deed> &deed, const std::string &where)
{
    std::shared_ptr<const Deed> other;
    {
        const std::lock_guard lock(order);
        if (const History::Use *use = history.conflict(now, begin, end, write, atomic); use != nullptr)
            other = use->deed;
        history.add(now, begin, end, write, atomic, deed);
    }
    if (other == nullptr)
        return;
    ik_emulation::Finding f;
    f.kernel = deed->name;
    f.place = { deed->cluster, deed->core, deed->where, deed->what };
    const std::string in = other->cluster < 0 ? "" : ", in kernel " + other->name;
    f.other = { other->cluster, other->core, other->where, other->what + in + ", on another stream" };
    f.bytes = where;
    report_once(rules::race_streams, std::move(f));
}

void use_copied(const Moment &now, const std::string &name, const void *to, bool to_device, const void *from,
    bool from_device, std::uint64_t bytes)
{
    if (now.stream == nullptr)
        return;
    const auto use = [&](const void *start, bool on_device, bool write) {
        auto deed = std::make_shared<Deed>();
        deed->name = "xpu_memcpy_async";
        deed->what = name + (write ? " writes" : " reads") + (on_device ? " device memory" : " the host's memory");
        const auto allocation = on_device ? memory().find(start) : nullptr;
        const std::string there = plural(bytes, "byte") + (on_device ? " of device memory" : " of the host's memory");
        if (!on_device) {
            const auto at = reinterpret_cast<std::uint64_t>(start);
            use_memory(host_memory, now, at, at + bytes, write, false, deed, there);
        } else if (allocation != nullptr && allocation->shadow != nullptr) {
            const auto at = static_cast<std::uint64_t>(static_cast<const char *>(start) - allocation->start);
            use_memory(allocation->shadow->history, now, at, at + bytes, write, false, deed, there);
        }
    };
    use(from, from_device, false);
    use(to, to_device, true);
    static unsigned copies = 0;
    const std::lock_guard lock(order);
    if (++copies % 64 == 0)
        host_memory.forget_done();
}

std::string unfinished(const void *start, std::uint64_t bytes, bool write)
{
    const auto allocation = memory().find(start);
    if (allocation == nullptr || allocation->shadow == nullptr || !allocation->has(start))
        return {};
    const auto at = static_cast<std::uint64_t>(static_cast<const char *>(start) - allocation->start);
    const std::lock_guard lock(order);
    const History::Use *use =
        allocation->shadow->history.conflict({ nullptr, 0, calls + 1, nullptr }, at, at + bytes, write, false);
    return use == nullptr ? "" : (use->deed->cluster < 0 ? "" : "kernel ") + use->deed->name;
}

/* The launch that ends: its uses of global memory, in runs of bytes that are used by the same lines. */
void use_launched(const Moment &now)
{
    if (now.stream == nullptr)
        return;
    for (const auto &shadow : state.touched) {
        struct Run {
            std::uint64_t begin = 0, end = 0;
            std::uint32_t access = 0; /* the first byte's */
        } runs[2]; /* written, read */
        const auto finish = [&](bool write) {
            Run &run = runs[write ? 0 : 1];
            if (run.access == 0)
                return;
            const Access &a = state.accesses[run.access];
            auto deed = std::make_shared<Deed>(
                Deed{ state.launch->name, describe_deed(a), a.group, a.member, spell(state.origins[a.origin].site) });
            const std::uint64_t bytes = run.end - run.begin;
            use_memory(shadow->history, now, run.begin, run.end, write, a.atomic, deed,
                plural(bytes, "byte") + " at offset " + std::to_string(run.begin) + " of "
                    + plural(shadow->bytes, "byte") + " of device memory");
            run.access = 0;
        };
        const auto extend = [&](std::uint32_t id, std::uint64_t offset, bool write) {
            Run &run = runs[write ? 0 : 1];
            const auto same = [&] {
                const Access &a = state.accesses[run.access], &b = state.accesses[id];
                const Site &x = state.origins[a.origin].site, &y = state.origins[b.origin].site;
                return a.atomic == b.atomic && !(x < y) && !(y < x);
            };
            if (run.access != 0 && (id == 0 || run.end != offset || (id != run.access && !same())))
                finish(write);
            if (id == 0)
                return;
            if (run.access == 0)
                run = { offset, offset, id };
            run.end = offset + 1;
        };
        shadow->cells.each_touched([&](const ik_emulation::Cell &cell, std::size_t offset) {
            extend(cell.write, offset, true);
            extend(cell.read != 0 ? cell.read : cell.read_before, offset, false);
        });
        finish(true);
        finish(false);
    }
}

} // namespace xpurt::check
