/* Findings as text, with the lines of the author's file. */
#include <link.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "emulator.h"

namespace cuda_emulator
{

std::vector<SharedArray> shared_arrays;

/* A finding before its lines are known; each is kept once for its two addresses. */
struct Found {
    const ik_emulation::Rule *rule;
    std::int64_t block;
    int thread;
    Pc pc;
    std::string what, bytes;
    std::int64_t other_block;
    int other_thread;
    Pc other;
    std::string other_what;
    bool divergence, host;
    std::uint64_t seed, count;
    std::string kernel;
    Index grid, block_size;
};
static std::vector<Found> all_found;
static std::map<std::tuple<const ik_emulation::Rule *, Pc, Pc>, std::size_t> numbers;

static void add(Found f)
{
    const auto [at, added] = numbers.try_emplace({ f.rule, f.pc, f.other }, all_found.size());
    if (added)
        all_found.push_back(std::move(f));
    else
        all_found[at->second].count++;
}

void find(const ik_emulation::Rule &rule, std::int64_t block, int thread, Pc pc, std::string what, std::string bytes,
    std::int64_t other_block, int other_thread, Pc other, std::string other_what)
{
    add({ &rule, block, thread, pc, std::move(what), std::move(bytes), other_block, other_thread, other,
        std::move(other_what), false, false, launch.seed, 1, launch.kernel, launch.grid, launch.block });
}

void find_divergence(const ik_emulation::Rule &rule, const Thread &one, const Thread &other, const std::string &what,
    const std::string &other_what)
{
    add({ &rule, block_number, one.id, one.pc, what, "", block_number, other.id, other.pc, other_what, true, false,
        launch.seed, 1, launch.kernel, launch.grid, launch.block });
}

/* A finding at a call of the host. */
void find_host(const ik_emulation::Rule &rule, Pc pc, std::string what, std::string bytes)
{
    add({ &rule, -1, 0, pc, std::move(what), std::move(bytes), -1, 0, nullptr, {}, false, true, launch.seed, 1, {}, {},
        {} });
}

/* Return the lines of return addresses: of the functions inlined there, the innermost in the author's files. */
static std::map<Pc, std::string> lines_of(const std::vector<Pc> &wanted)
{
    std::map<Pc, std::string> found;
    for (std::size_t begin = 0; begin < wanted.size(); begin += 500) {
        std::string command = "addr2line -a -i -e /proc/" + std::to_string(getpid()) + "/exe";
        const std::size_t end = std::min(begin + 500, wanted.size());
        for (std::size_t i = begin; i < end; i++) {
            char text[32];
            std::snprintf(text, sizeof text, " %#" PRIxPTR, reinterpret_cast<std::uintptr_t>(wanted[i]) - 1);
            command += text;
        }
        std::FILE *pipe = popen(command.c_str(), "r");
        if (pipe == nullptr)
            return found;
        std::size_t number = begin;
        char text[4096];
        while (std::fgets(text, sizeof text, pipe) != nullptr) {
            std::string line = text;
            line = line.substr(0, std::min(line.find('\n'), line.find(" (discriminator")));
            if (line.compare(0, 2, "0x") == 0)
                number++;
            else if (line.find("??") == std::string::npos && line.find("/emulator/include/") == std::string::npos
                && line.compare(0, 9, "/usr/incl") != 0 && line.compare(0, 8, "/usr/lib") != 0 && number > begin)
                found.try_emplace(wanted[number - 1], line);
        }
        pclose(pipe);
    }
    return found;
}

static void add_costs(const std::map<Pc, std::string> &lines)
{
    launch.seed = launch.first_seed; /* the only one for which costs are counted */
    std::map<std::pair<std::string, bool>, std::pair<Pc, Cost>> by_line;
    for (const auto &[pc, cost] : costs) {
        const auto at = lines.find(pc);
        auto &[first, sum] = by_line[{ at == lines.end() ? "" : at->second, cost.shared }];
        if (cost.worst > sum.worst || first == nullptr) {
            first = pc;
            sum.worst = cost.worst, sum.block = cost.block, sum.thread = cost.thread, sum.kernel = cost.kernel;
        }
        sum.shared = cost.shared;
        sum.requests += cost.requests, sum.moved += cost.moved, sum.needed += cost.needed;
    }
    for (const auto &[where, one] : by_line) {
        const auto &[pc, cost] = one;
        if (cost.moved <= (cost.shared ? 1 : 2) * cost.needed)
            continue;
        launch.kernel = cost.kernel;
        find(cost.shared ? rules::bank_conflict : rules::uncoalesced, cost.block, cost.thread, pc,
            "and its warp need " + std::to_string(cost.worst) + (cost.shared ? " wavefronts" : " sectors")
                + " for one access",
            std::to_string(cost.moved) + " in " + std::to_string(cost.requests) + " accesses of warps, where "
                + std::to_string(cost.needed) + " would do");
    }
}

static void print_launches(std::FILE *out)
{
    const auto plural = [](std::uint64_t n, const char *what) {
        return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
    };
    if (launch.program) {
        std::uint64_t count = 0;
        for (const auto &[kernel, launches] : launch.counts)
            count += launches;
        std::fprintf(out, "%" PRIu64 " launch%s of %s", count, count == 1 ? "" : "es",
            plural(launch.counts.size(), "kernel").c_str());
    } else {
        const std::uint64_t blocks = std::uint64_t{ 1 } * launch.grid.x * launch.grid.y * launch.grid.z;
        std::fprintf(out, "%s<<<(%u,%u,%u), (%u,%u,%u)>>>: %s of %s", launch.kernel.c_str(), launch.grid.x,
            launch.grid.y, launch.grid.z, launch.block.x, launch.block.y, launch.block.z,
            plural(blocks, "block").c_str(), plural(static_cast<std::uint64_t>(launch.threads), "thread").c_str());
    }
    if (launch.stopped)
        std::fprintf(out, "; stopped in block %" PRId64, block_number);
}

/* Write all findings; returns the status of the program: 1 if the launch was stopped, 4 if there are errors. */
int report()
{
    std::vector<Pc> wanted;
    for (const Found &f : all_found)
        for (const Pc pc : { f.pc, f.other })
            if (pc != nullptr)
                wanted.push_back(pc);
    for (const auto &[pc, cost] : costs)
        wanted.push_back(pc);
    const std::map<Pc, std::string> lines = wanted.empty() ? std::map<Pc, std::string>() : lines_of(wanted);
    const auto line = [&](Pc pc) {
        const auto found = lines.find(pc);
        return found == lines.end() ? std::string() : found->second;
    };
    std::set<std::string> earlier; /* of runs with other seeds */
    std::ifstream kept(launch.earlier);
    for (std::string key; std::getline(kept, key);)
        earlier.insert(key);
    const std::uint64_t last_seed = launch.seed;
    add_costs(lines);
    std::uint64_t errors = 0, notes = 0;
    std::map<std::uint64_t, ik_emulation::Findings> by_seed;
    std::map<std::tuple<std::string, std::string, std::string>, std::pair<std::uint64_t, int>> merged;
    for (const Found &f : all_found) {
        const std::string where = line(f.pc), other = line(f.other);
        const std::string key = std::string(f.rule->id) + '\t' + where + '\t' + other;
        if ((f.divergence && where == other) || earlier.count(key) != 0)
            continue;
        if (!launch.earlier.empty())
            std::ofstream(launch.earlier, std::ios::app) << key << '\n';
        ik_emulation::Findings &findings = by_seed.try_emplace(f.seed, "isokern-gpu", "thread", "block").first->second;
        const auto [before, added] = merged.try_emplace({ f.rule->id, where, other }, f.seed, -1);
        if (added) {
            ik_emulation::Finding made;
            made.rule = f.rule;
            made.kernel = f.kernel;
            made.count = f.count;
            made.place = { static_cast<int>(f.block), f.thread, where, f.what };
            if (f.block >= 0)
                made.place.who = place_of(f.block, f.thread, f.grid, f.block_size);
            else if (f.host)
                made.place.who = "the host";
            if (f.other_block >= 0) {
                made.other = { static_cast<int>(f.other_block), f.other_thread, other, f.other_what };
                made.other.who = place_of(f.other_block, f.other_thread, f.grid, f.block_size);
            }
            made.bytes = f.bytes;
            before->second.second = findings.add(std::move(made));
            (f.rule->severity == ik_emulation::Severity::error ? errors : notes)++;
        } else {
            by_seed.at(before->second.first).again(before->second.second, f.count);
        }
    }
    for (auto &[seed, findings] : by_seed) {
        if (seed != launch.first_seed)
            std::fprintf(stderr, "With seed %" PRIu64 ":\n", seed);
        findings.report_findings(stderr, launch.json, seed);
    }
    std::FILE *const out = launch.program ? stderr : stdout; /* a program's own text is apart */
    print_launches(out);
    if (launch.check) {
        const std::uint64_t runs = last_seed - launch.first_seed + 1;
        if (launch.program)
            std::fprintf(out, "; seed %" PRIu64, last_seed);
        else
            std::fprintf(out, "; seeds %" PRIu64 "-%" PRIu64, launch.first_seed, last_seed);
        if (!launch.stopped)
            std::fprintf(out, "; %" PRIu64 " bytes loaded, %" PRIu64 " bytes stored", launch.loaded / runs,
                launch.stored / runs);
        if (errors + notes == 0)
            std::fprintf(out, earlier.empty() ? "; findings: none" : "; findings: no others");
        else
            std::fprintf(out, "; findings: %" PRIu64 " error%s, %" PRIu64 " note%s", errors, errors == 1 ? "" : "s",
                notes, notes == 1 ? "" : "s");
    }
    std::fputs("\n", out);
    std::fflush(out);
    return launch.stopped ? 1 : errors != 0 ? 4 : 0;
}

/* Read lines "offset bytes name" of the `__shared__` variables. */
void read_symbols(const char *path)
{
    std::ifstream in(path);
    SharedArray a;
    std::size_t begin = SIZE_MAX, end = 0;
    while (in >> a.offset >> a.bytes && std::getline(in >> std::ws, a.name)) {
        shared_arrays.push_back(a);
        begin = std::min(begin, a.offset);
        end = std::max(end, a.offset + a.bytes);
    }
    if (end == 0)
        return;
    for (SharedArray &one : shared_arrays)
        one.offset -= begin;
    dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *found) {
            *static_cast<char **>(found) = static_cast<char *>(info->dlpi_tls_data);
            return 1; /* the first is the program itself */
        },
        &fixed.begin);
    fixed.begin += begin;
    fixed.bytes = end - begin;
    fixed.name = "the shared memory";
}

} // namespace cuda_emulator
