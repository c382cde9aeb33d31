/* Happens-before, for members that run one at a time but are considered concurrent.
 *
 * A member's time advances at its fences and barriers. What a member did becomes known to another through a barrier or
 * an atomic operation; work that has to be fenced first becomes known only as far as the fence came before that. */
#ifndef IK_EMULATION_ORDER_H
#define IK_EMULATION_ORDER_H
#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace ik_emulation
{

enum { MAX_MEMBERS = 64, FENCED_SPACES = 3 };

/* The times up to which the work of each member of one group is known. */
struct Clock {
    std::uint32_t passed[MAX_MEMBERS] = {};
    std::uint32_t fenced[FENCED_SPACES][MAX_MEMBERS] = {}; /* for work that needs a fence of that space */

    void join(const Clock &other)
    {
        for (int i = 0; i < MAX_MEMBERS; i++)
            passed[i] = std::max(passed[i], other.passed[i]);
        for (int s = 0; s < FENCED_SPACES; s++)
            for (int i = 0; i < MAX_MEMBERS; i++)
                fenced[s][i] = std::max(fenced[s][i], other.fenced[s][i]);
    }

    /* Whether work of `member` at `time` is known to be done. `needs`: one of these spaces must have been fenced since,
     * 0 for none. */
    bool knows(int member, std::uint32_t time, int needs) const
    {
        if (needs == 0)
            return passed[member] >= time;
        for (int s = 0; s < FENCED_SPACES; s++)
            if ((needs >> s & 1) != 0 && fenced[s][member] >= time)
                return true;
        return false;
    }
};

/* What one member knows of its own group and, through atomic operations, of other groups. */
struct Knowledge {
    int group = 0;
    Clock own;
    std::map<int, Clock> others;

    void join(const Knowledge &from)
    {
        if (from.group == group)
            own.join(from.own);
        else
            others[from.group].join(from.own);
        for (const auto &[g, clock] : from.others)
            (g == group ? own : others[g]).join(clock);
    }
    const Clock *of(int g) const
    {
        if (g == group)
            return &own;
        const auto found = others.find(g);
        return found == others.end() ? nullptr : &found->second;
    }
};

/* One access, or several by one instruction between two fences. */
struct Access {
    int group = 0, member = 0;
    std::uint32_t time = 0;
    std::uint8_t needs = 0; /* spaces, one of which must be fenced before others may know of it */
    bool write = false, atomic = false;
    std::uint32_t origin = 0; /* the emulator's own number for the place it came from */
};

/* The last accesses to a byte, as indices into a table of accesses; 0 is none. */
struct Cell {
    std::uint32_t write = 0, read = 0, read_before = 0; /* the two reads are of different members */
    bool operator==(const Cell &o) const { return write == o.write && read == o.read && read_before == o.read_before; }
};

/* Cells for a range of bytes, created when they are touched. */
class Cells
{
  public:
    enum { PAGE = 1024 };
    Cell *page(std::size_t index)
    {
        if (index >= pages_.size())
            pages_.resize(index + 1);
        std::vector<Cell> &p = pages_[index];
        if (p.empty()) {
            p.resize(PAGE);
            touched_.push_back(index);
        }
        return p.data();
    }
    void clear()
    {
        for (std::size_t index : touched_)
            std::vector<Cell>().swap(pages_[index]);
        touched_.clear();
    }
    /* Call visit(cell) for `bytes` cells from `offset` on. */
    template <class Visit>
    void each(std::size_t offset, std::size_t bytes, Visit visit)
    {
        while (bytes != 0) {
            const std::size_t at = offset % PAGE, n = std::min<std::size_t>(bytes, PAGE - at);
            Cell *cell = page(offset / PAGE) + at;
            for (std::size_t i = 0; i < n; i++)
                visit(cell[i], offset + i);
            offset += n;
            bytes -= n;
        }
    }
    /* Call visit(cell, offset) for every cell of the pages that were touched, in order. */
    template <class Visit>
    void each_touched(Visit visit)
    {
        std::sort(touched_.begin(), touched_.end());
        for (std::size_t index : touched_)
            for (std::size_t i = 0; i < PAGE; i++)
                visit(pages_[index][i], index * PAGE + i);
    }

  private:
    std::vector<std::vector<Cell>> pages_;
    std::vector<std::size_t> touched_;
};

} // namespace ik_emulation
#endif
