/* What the parts of the checked mode share: the launch, its cluster, its cores, and the recorded state of memory. */
#ifndef XPURT_CHECK_STATE_H
#define XPURT_CHECK_STATE_H
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../include/xpusim/device.h"
#include "check.h"
#include "check_host.h"
#include "check_lines.h"
#include "check_rules.h"
#include "lane.h"
#include "memory.h"
#include "model.h"
#include "order.h"

namespace xpurt
{

/* The shadow of an allocation: which bytes were written, and who touched them in the running launch. */
struct GmShadow {
    /* For each byte: 1 if it was written, 2 if a kernel copied an unwritten byte there, 3 if it is one of
     * an element that a statement moved */
    std::uint8_t *written;
    struct Blank {
        std::uint64_t begin, end;
        std::shared_ptr<const check::Deed> deed; /* which copied the bytes */
    };
    std::deque<Blank> blanks; /* the last ones */
    std::uint64_t bytes;
    ik_emulation::Cells cells;
    check::History history; /* of the launches and copies that ended */
    bool touched = false;

    explicit GmShadow(std::uint64_t bytes);
    ~GmShadow();
    GmShadow(const GmShadow &) = delete;
    GmShadow &operator=(const GmShadow &) = delete;
};

/* Fill memory with a pattern that no program means. */
void poison(char *at, std::uint64_t bytes);

namespace check
{

using ik_emulation::Access;
using ik_emulation::Rule;

/* Where something was done: a source line that the kernel's compiler passed, or the address of an instruction. */
struct Site {
    const char *file = nullptr;
    int line = 0;
    const void *pc = nullptr;
    Site() = default;
    Site(xpusim_site s) : file(s.file), line(s.line) {}
    explicit Site(const void *at) : pc(at) {}
    bool operator<(const Site &o) const
    { return pc != o.pc ? pc < o.pc : file != o.file ? file < o.file : line < o.line; }
};

enum class Act : std::uint8_t { scalar, vector, copy, copy_async, atomic };

/* Where an Access came from. */
struct Origin {
    Site site;
    Act act = Act::scalar;
    xpusim_direction direction = XPUSIM_GM2LM;
    int interval = 0; /* how many barriers the cluster had passed */
};

/* State of a byte of local memory. */
enum : std::uint8_t {
    WRITTEN = 1,
    VECTOR = 2, /* written by a vector store that is not fenced yet */
    SCALAR = 4, /* written by a scalar store that is not fenced yet */
    TARGET = 8, /* destination of a copy in flight */
    SOURCE = 16,
    FRAME = 32,  /* return address of a function, or a zone around an array */
    SILENT = 64, /* written by an instruction that the compiler does not announce: never reported */
    BLANK = 128, /* a copy of bytes that nobody wrote */
};
constexpr std::uint8_t HELD = TARGET | SOURCE | FRAME; /* what a store must not touch */

/* A copy in flight. */
struct Flight {
    xpusim_direction direction;
    const char *from;
    char *to;
    std::size_t bytes;
    Site site;
    bool read = false, landed = false; /* read: the source was read; landed: the destination was written */
    std::vector<char> data;            /* the bytes that were read, until they land */
    std::vector<std::uint8_t> written;
    bool drained = false, fenced = false; /* a synchronous copy of this core came after it, or a fence of its source */
};

/* A write to the same bytes as another core's write, which is a race unless it leaves the bytes as they were. */
struct Suspicion {
    char *at;
    std::size_t bytes;
    char before[64];
    std::uint32_t mine, theirs;
};

/* An index or a pointer that leaves its array. It is reported with the access that follows, which tells the memory. */
struct Beyond {
    xpusim_site site{}; /* without a file: there is none */
    const char *pointer = nullptr; /* null for an index */
    const char *type = nullptr; /* the array's, for an index */
    long long index = 0;
};

/* The state of a byte that is moved or copied; MOVED: a statement moved its element, which was unwritten. */
enum : std::uint8_t { NOBODYS = 0, SOMEBODYS = 1, MOVED = 2 };

/* A local array between zones: [begin, array) and [array_end, end). */
struct Zones {
    char *begin, *array, *array_end, *end;
    bool vectors; /* vectors, whose second half only the emulator has: its unwritten bytes */
};
constexpr std::ptrdiff_t VECTOR_BYTES = 64; /* on the device */

/* A local array. */
struct Declared {
    char *begin, *end;
};

/* The counts that `isokern-xpu profile` shows. */
struct Counts {
    /* By xpusim_direction; lines: lines of 64 bytes of GM, counted for each copy. */
    std::uint64_t copies[6] = {}, bytes[6] = {}, lines[6] = {};
    std::uint64_t fences = 0, barriers = 0, gm_loads = 0, gm_stores = 0, vector_loads = 0, vector_stores = 0,
                  scalar_loads = 0, scalar_stores = 0, atomics = 0, lm = 0;
};

/* Bytes of a core's stack that are watched; anything below is far beyond local memory. */
constexpr std::size_t WINDOW = 64 * 1024;
constexpr int FRAMES = 256;

struct Core {
    int id = 0;
    /* The watched stack: [low, base) is local memory, parameters lie above. */
    char *low = nullptr, *base = nullptr, *high = nullptr;
    std::uint8_t *state = nullptr; /* of the bytes from `low` on */
    char *stale = nullptr; /* what the bytes held when they became unwritten */
    /* The lowest address touched: by the functions that are active, and ever. */
    char *deepest = nullptr, *mark = nullptr;
    char *fast = nullptr; /* accesses from here on are judged by their bytes' states alone: `mark`, or above it all */
    Beyond beyond;
    /* Of the active functions' frames: their ends, and where the return addresses are. */
    char *tops[FRAMES] = {}, *records[FRAMES] = {};
    int depth = 0;
    const char *arguments_end = nullptr; /* the kernel's arguments that are on the stack end before this */
    ik_emulation::Knowledge knowledge;
    std::uint32_t now = 1;
    std::vector<Flight> flights;
    std::vector<Suspicion> suspicions;
    std::vector<Zones> zones; /* of the arrays that are alive */
    char *lowest_zone = nullptr; /* since the kernel began: an exception leaves zones without ending them */
    /* What functions that are active were given by pointers of local memory. */
    std::vector<const Allocation *> as_local;
    struct {
        const void *pc;
        std::uint32_t time, id;
        bool write;
    } recent[32] = {}; /* accesses, by instruction */
    Counts counts;
    std::uint64_t barriers = 0;
    struct {
        const void *pc = nullptr;
        char *at = nullptr;
        std::size_t bytes = 0;
    } stored; /* the last store that may be an assignment of a whole structure */
    /* What nobody wrote is moved from here, and the last store since, whose bytes show whether it was moved there. */
    const char *moving = nullptr;
    xpusim_site moving_site{};
    struct {
        char *at = nullptr;
        std::size_t bytes = 0;
        const void *pc = nullptr;
    } moved;
    bool moves = false; /* the core has moved such an element */
    bool ended = false, overflow = false;
    std::uint64_t reached = 0; /* how far the lowest address touched is from the base; vectors and zones lie between */
    std::vector<Declared> arrays; /* of the active functions, by address */
    std::vector<char> window_stale;
    std::vector<std::uint8_t> window_state;
};

enum class Kind { local, parameters, others_local, shared, global, constant, variable, host };

/* Who copied to shared memory in an interval, and how much to each array: a single line of one cannot be split between
 * cores. */
struct Stager {
    int core = -1; /* -1 none, -2 several */
    std::map<const Shared *, std::uint64_t> bytes;
    bool alone() const
    {
        return core >= 0
            && std::any_of(bytes.begin(), bytes.end(), [](const auto &array) { return array.second > 64; });
    }
};

/* An object of group-shared memory that a core of `group` has declared. */
struct GroupShared {
    std::size_t bytes;
    int group;
};

/* A word of atomic operations: what a core learns by one, and the last plain store, if any, before the last ones. */
struct Word {
    ik_emulation::Knowledge known;
    std::uint32_t stored = 0;
};

/* What an address refers to. */
struct Where {
    Kind kind = Kind::host;
    /* From the start of SM or of an allocation; it wraps before the start */
    std::size_t offset = 0;
    std::shared_ptr<const Allocation> allocation; /* for global memory */
    int owner = -1; /* for another core's local memory */
};

struct State {
    const Launch *launch = nullptr;
    Model model;
    std::uint64_t errors = 0; /* of the launch */
    Library *library = nullptr;
    ik_emulation::Group *group = nullptr;
    int cluster = 0, count = 0; /* the running cluster, and how many cores it has */
    std::uint64_t serial = 0; /* the number of the cluster in the process */
    Core cores[ik_emulation::MAX_MEMBERS];
    std::mt19937_64 random; /* whether copies land early or late */

    char *sm = nullptr; /* this thread's segment of the library's shared arrays */
    std::size_t sm_bytes = 0;
    std::vector<std::uint8_t> sm_written;
    ik_emulation::Cells sm_cells;
    std::map<std::size_t, GroupShared> groups_own; /* by offset in the segment */
    /* Bytes of the shared arrays that a cluster touched: this one, and the largest number. */
    std::uint64_t sm_used = 0, sm_max = 0;
    bool sm_reported = false, sm_has_lock = false;
    int interval = 0;
    std::vector<Stager> stagers; /* by interval between barriers */

    std::vector<Access> accesses;
    std::vector<Origin> origins;
    std::vector<std::shared_ptr<GmShadow>> touched;
    std::map<const void *, Word> atomics;
    std::set<const char *> moved_bytes; /* in local and shared memory: MOVED, unless they were written since */
    std::shared_ptr<const Allocation> near[4]; /* the allocations found last */
    unsigned next_near = 0;

    struct Key {
        const Rule *rule;
        void (*kernel)();
        Site site, other;
        bool operator<(const Key &o) const
        {
            return rule != o.rule    ? rule < o.rule
                : kernel != o.kernel ? kernel < o.kernel
                : site < o.site      ? true
                : o.site < site      ? false
                                     : other < o.other;
        }
    };
    std::map<Key, int> reported; /* for the whole process: the finding's number */
    std::vector<std::string> profile;
};

extern State &state;
/* The running core of a checked kernel; null otherwise. */
extern thread_local Core *self __attribute__((tls_model("initial-exec")));

/* Report a finding. `bytes` and the descriptions of the places are made only for the first of a kind. */
void report(const Rule &, const Core &, const Site &, const std::string &what, const std::string &bytes,
    const std::string &remedy = "");
void report(const Rule &, const Core &, const Site &, const std::string &what, const std::string &bytes,
    const Core &other, const Site &other_site, const std::string &other_what, const std::string &remedy = "");
void report_access(const Rule &, const Core &, const Site &, const std::string &what, const std::string &bytes,
    const Access &theirs, const std::string &other_what, const std::string &remedy = "");
/* Report a finding about the host's calls, unless the same places were told before. */
void report_once(const Rule &, ik_emulation::Finding);
/* Whether the finding was reported before; then count it. */
bool is_repeated(const Rule &, const Site &, const Site &other = Site());

/* Return file:line; empty if there is none. */
std::string spell(const Site &);

const char *name_of(xpusim_direction);
int source_of(xpusim_direction);
int target_of(xpusim_direction);

/* Find out what an address is for a core, and describe it. */
Where where(const Core &, const void *);
std::string describe(const Core &, const Where &, const void *, std::uint64_t bytes);
std::string plural(std::uint64_t count, const char *what);

/* Whether an offset in the segment of shared arrays belongs to a group of cores: fences and copies treat it as local
 * memory. */
bool of_group(std::size_t offset);

/* Whether bytes from an offset on are in the segment of shared arrays at all. */
bool in_segment(std::size_t offset, std::size_t bytes);

/* Return the number of an access, for cells. */
std::uint32_t access(Core &, const Site &, Act, bool write, int needs, xpusim_direction = XPUSIM_GM2LM);

/* Check an access to bytes of SM or GM against all earlier accesses to them, record it, and return whether it is in
 * order. `from` is the source of a copy, to recognise equal values. */
bool touch(Core &, const Where &, char *at, std::size_t bytes, std::uint32_t access, const char *from = nullptr);

/* Describe what an access does, without a subject. */
std::string describe_deed(const Access &);

/* The running launch ends: compare its uses of memory with those of other streams' work. */
void use_launched(const Moment &);

/* Look at suspicions again: those whose values have changed are races. */
void settle(Core &);

/* Use a shared array: it counts towards the cluster's budget. Returns whether it contains [offset, offset + bytes), and
 * reports if it does not. */
bool use_sm(Core &, const Site &, std::size_t offset, std::size_t bytes, const std::string &what);

/* The cluster's lock is used: on KUNLUN3 the compiler keeps a line of shared memory for it in kernels that have one. */
void use_lock(Core &, const Site &);

/* Report what was announced as beyond its array, if anything, now that an access of `bytes` bytes at `at` follows, or
 * none (null). Returns whether there was anything. */
bool report_beyond(Core &, const char *at, std::size_t bytes, const char *what);

/* End the kernel: a store would destroy memory that is not the kernel's. Nothing that has to be freed may be alive. */
[[noreturn]] void wreck(const Site &, const char *what);

/* Check a scalar access to the core's own local memory; and one elsewhere. What only `moves` on may be unwritten, which
 * is noted when a statement moves an element. */
void local(Core &, char *at, std::size_t bytes, bool write, const Site &, bool moves = false);
void outside(Core &, char *at, std::size_t bytes, bool write, const Site &, Act, bool moves = false);

void note_move(Core &, const Where &, const char *at, std::size_t bytes);

/* Find which bytes were written; and mark them as such, or as a copy of bytes that nobody wrote. */
void gather(Core &, const Where &, std::size_t bytes, std::uint8_t *written);
void scatter(
    Core &, const Where &, std::size_t bytes, const std::uint8_t *written, const Site &, const std::string &what);

/* Say which copy brought unwritten bytes to [begin, end) of an allocation; empty if that is not known. */
std::string describe_blank(const GmShadow &, std::uint64_t begin, std::uint64_t end);

/* What was stored last has the bytes of an element that nobody wrote: mark it as such. */
void settle_move(Core &);
/* Which bytes of local or shared memory are MOVED from now on; and that none are, because they begin anew. */
void mark_moved(const char *at, const std::uint8_t *written, std::size_t bytes);
void forget_moved(const char *begin, const char *end);

/* Count the unwritten bytes of a load. Those that a structure has between its members do not count: they are in aligned
 * words of which something was written. `is_written(i)` is asked for each byte. */
template <class Written>
std::size_t count_unwritten(const char *at, std::size_t bytes, const Written &is_written)
{
    std::size_t found = 0;
    for (std::size_t i = 0; i < bytes;) {
        const std::size_t end = std::min(bytes, i + 4 - reinterpret_cast<std::uintptr_t>(at + i) % 4);
        std::size_t unwritten = 0;
        for (std::size_t k = i; k < end; k++)
            unwritten += is_written(k) ? 0 : 1;
        found += unwritten == end - i ? unwritten : 0;
        i = end;
    }
    return found;
}

/* Record an atomic operation; `at` is null for objects outside the kernel's memory, such as the cluster's lock. */
void atomic(Core &, char *at, std::size_t bytes, const Site &);

/* Local memory [at, at + bytes): check a read (`copy`: not by a scalar load); check a write before it happens; record
 * how deep the stack was used. */
void read_lm(Core &, const char *at, std::size_t bytes, const Site &, const char *what, bool copy, bool moves);
void meet_lm(Core &, char *at, std::size_t bytes, const Site &, const char *what);
bool silent(Core &, const char *at);
void reach(Core &, char *at);
void over_budget(Core &, const Site &);

/* Track functions that begin and end. */
void enter_function(Core &, char *record, const void *pc);
void leave_function(Core &, const void *pc);

/* Complete copies in flight. */
void land(Core &, Flight &);
void land_all(Core &);
/* Find the copy in flight that touches [at, at + bytes) of LM; null if there is none. */
const Flight *flight_at(const Core &, const char *at, std::size_t bytes, bool target);

} // namespace check
} // namespace xpurt
#endif
