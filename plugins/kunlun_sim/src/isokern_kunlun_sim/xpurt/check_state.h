/* What the parts of the checked mode share: the launch, its cluster, its cores, and what is remembered of memory. */
#ifndef XPURT_CHECK_STATE_H
#define XPURT_CHECK_STATE_H
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "../include/xpusim/device.h"
#include "check.h"
#include "check_lines.h"
#include "check_rules.h"
#include "lane.h"
#include "memory.h"
#include "model.h"
#include "order.h"

namespace xpurt {

/* Of an allocation: which bytes somebody wrote, and who touched them in the launch that runs. */
struct GmShadow {
    std::uint8_t *written; /* 1 a byte */
    std::uint64_t bytes;
    ik_emulation::Cells cells;
    bool touched = false;

    explicit GmShadow(std::uint64_t bytes);
    ~GmShadow();
    GmShadow(const GmShadow &) = delete;
    GmShadow &operator=(const GmShadow &) = delete;
};

namespace check {

using ik_emulation::Access;
using ik_emulation::Rule;

/* Where something was done: a line that the kernel's compiler gave, or the address of an instruction. */
struct Site {
    const char *file = nullptr;
    int line = 0;
    const void *pc = nullptr;
    Site() = default;
    Site(xpusim_site s) : file(s.file), line(s.line) {}
    explicit Site(const void *at) : pc(at) {}
    bool operator<(const Site &o) const { return pc != o.pc ? pc < o.pc : file != o.file ? file < o.file : line < o.line; }
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
    VECTOR = 2, /* by a vector store that was not fenced */
    SCALAR = 4, /* by a scalar store that was not fenced */
    TARGET = 8, /* of a copy in flight */
    SOURCE = 16,
    FRAME = 32,  /* return address of a function */
    SILENT = 64, /* written by what the compiler does not announce: never reported */
    BLANK = 128, /* holds a copy of bytes that nobody wrote */
};
constexpr std::uint8_t HELD = TARGET | SOURCE | FRAME; /* what a store must not meet */

/* A copy in flight. */
struct Flight {
    xpusim_direction direction;
    const char *from;
    char *to;
    std::size_t bytes;
    Site site;
    bool read = false, landed = false; /* the source was read; the destination was written */
    std::vector<char> data;            /* what was read, until it lands */
    std::vector<std::uint8_t> written;
};

/* An access to the same bytes as another core's that is a race unless it leaves them as they were. */
struct Suspicion {
    char *at;
    std::size_t bytes;
    char before[64];
    std::uint32_t mine, theirs;
};

/* What `isokern-xpu profile` shows. */
struct Counts {
    std::uint64_t copies[6] = {}, bytes[6] = {}, lines[6] = {}; /* by xpusim_direction; lines: of 64 bytes of GM, a copy's each */
    std::uint64_t fences = 0, barriers = 0, gm_loads = 0, gm_stores = 0, vector_loads = 0, vector_stores = 0, scalar_loads = 0, scalar_stores = 0, atomics = 0, lm = 0;
};

constexpr std::size_t WINDOW = 64 * 1024; /* of a core's stack, that is watched; what reaches below it is far beyond local memory */
constexpr int FRAMES = 256;

struct Core {
    int id = 0;
    char *low = nullptr, *base = nullptr, *high = nullptr; /* of the watched stack: [low, base) is local memory, parameters lie above */
    std::uint8_t *state = nullptr;                         /* of the bytes from `low` on */
    char *stale = nullptr;                                 /* what the bytes held when they became unwritten */
    char *deepest = nullptr, *mark = nullptr;              /* touched: by the functions that are active, and ever */
    char *tops[FRAMES] = {}, *records[FRAMES] = {};        /* of the active functions' frames: their ends, and where the return address is */
    int depth = 0;
    ik_emulation::Knowledge knowledge;
    std::uint32_t now = 1;
    std::vector<Flight> flights;
    std::vector<Suspicion> suspicions;
    struct {
        const void *pc;
        std::uint32_t time, id;
        bool write;
    } recent[32] = {}; /* accesses, by instruction */
    Counts counts;
    std::uint64_t barriers = 0;
    bool ended = false, overflow = false;
    std::vector<char> window_stale;
    std::vector<std::uint8_t> window_state;
};

enum class Kind { local, parameters, others_local, shared, global, constant, variable, host };

/* Who copied to shared memory, and how much: one line cannot be shared out. */
struct Stager {
    int core = -1; /* -1 none, -2 several */
    std::uint64_t bytes = 0;
    bool alone() const { return core >= 0 && bytes > 64; }
};

/* What an address is. */
struct Where {
    Kind kind = Kind::host;
    std::size_t offset = 0;                      /* in SM, or from the start of an allocation (may be in a red zone: before it, wraps) */
    std::shared_ptr<const Allocation> allocation; /* of global memory */
    int owner = -1;                              /* of another core's local memory */
};

struct State {
    const Launch *launch = nullptr;
    Model model;
    std::uint64_t errors = 0; /* in the launch */
    Library *library = nullptr;
    ik_emulation::Group *group = nullptr;
    int cluster = 0, count = 0; /* the cluster that runs, and its cores */
    std::uint64_t serial = 0;   /* of the cluster, in the process */
    Core cores[ik_emulation::MOST_MEMBERS];
    std::mt19937_64 random; /* early or late */

    char *sm = nullptr; /* this thread's segment of the library */
    std::size_t sm_bytes = 0;
    std::vector<std::uint8_t> sm_written;
    ik_emulation::Cells sm_cells;
    std::map<std::size_t, std::size_t> groups_own; /* offsets and bytes of group-shared memory in the segment */
    std::uint64_t sm_used = 0, sm_most = 0; /* bytes of the shared arrays that the cluster touched */
    bool sm_reported = false;
    int interval = 0;
    std::vector<Stager> stagers; /* by interval between barriers */

    std::vector<Access> accesses;
    std::vector<Origin> origins;
    std::vector<std::shared_ptr<GmShadow>> touched;
    std::map<const void *, ik_emulation::Knowledge> atomics;
    std::shared_ptr<const Allocation> near[4]; /* where global memory was last met */
    unsigned next_near = 0;

    struct Key {
        const Rule *rule;
        void (*kernel)();
        Site site, other;
        bool operator<(const Key &o) const
        {
            return rule != o.rule ? rule < o.rule : kernel != o.kernel ? kernel < o.kernel : site < o.site ? true : o.site < site ? false : other < o.other;
        }
    };
    std::map<Key, int> reported; /* in the whole process: the finding's number */
    std::vector<std::string> profile;
};

extern State state;
extern thread_local Core *self __attribute__((tls_model("initial-exec"))); /* the running core of a checked kernel, else null */

/* Something is wrong. `bytes` and what is said of the places are made only for the first of a kind. */
void report(const Rule &, const Core &, const Site &, const std::string &what, const std::string &bytes, const std::string &remedy = "");
void report(const Rule &, const Core &, const Site &, const std::string &what, const std::string &bytes, const Core &other, const Site &other_site,
            const std::string &other_what, const std::string &remedy = "");
void report_access(const Rule &, const Core &, const Site &, const std::string &what, const std::string &bytes, const Access &theirs, const std::string &other_what,
                   const std::string &remedy = "");
/* Whether it was reported before; then it is counted. */
bool repeated(const Rule &, const Site &, const Site &other = Site());

/* file:line, empty for none. */
std::string spell(const Site &);

const char *name_of(xpusim_direction);
int source_of(xpusim_direction);
int target_of(xpusim_direction);

/* What an address is for a core, and as text. */
Where where(const Core &, const void *);
std::string describe(const Core &, const Where &, const void *, std::uint64_t bytes);
std::string plural(std::uint64_t count, const char *what);

/* Whether an offset in the segment of shared arrays is memory of a group of cores: local memory to fences and copies. */
bool of_group(std::size_t offset);

/* An access as a number for cells. */
std::uint32_t access(Core &, const Site &, Act, bool write, int needs, xpusim_direction = XPUSIM_GM2LM);

/* An access to bytes of SM or GM: order against all that were there before; whether it is in order. `from` of a copy: what it will write there,
 * to tell same values. */
bool touch(Core &, const Where &, char *at, std::size_t bytes, std::uint32_t access, const char *from = nullptr);

/* Look again at suspicions: values that were changed make races. */
void settle(Core &);

/* A shared array is used: counts towards the cluster's budget, and must hold [offset, offset + bytes). */
void use_sm(Core &, const Site &, std::size_t offset, std::size_t bytes, const std::string &what);

/* A scalar access to its own local memory, and an access elsewhere. */
void local(Core &, char *at, std::size_t bytes, bool write, const Site &);
void outside(Core &, char *at, std::size_t bytes, bool write, const Site &, Act);

/* An atomic operation; `at` null: of what is no memory of the kernel's, like the cluster's lock. */
void atomic(Core &, char *at, std::size_t bytes, const Site &);

/* Local memory, [at, at + bytes): a read (`copy`: not by a scalar load); what is to be heeded before a write; how deep it was used. */
void read_lm(Core &, const char *at, std::size_t bytes, const Site &, const char *what, bool copy);
void meet_lm(Core &, char *at, std::size_t bytes, const Site &, const char *what);
bool silent(Core &, const char *at);
void reach(Core &, char *at);
void over_budget(Core &, const Site &);

/* Functions begin and end. */
void enter_function(Core &, char *record, const void *pc);
void leave_function(Core &, const void *pc);

/* Copies in flight. */
void land(Core &, Flight &);
void land_all(Core &);
/* The copy in flight that touches [at, at + bytes) of LM; null: none. */
const Flight *flight_at(const Core &, const char *at, std::size_t bytes, bool target);

} // namespace check
} // namespace xpurt
#endif
