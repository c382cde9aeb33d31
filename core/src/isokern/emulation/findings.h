/* What an emulator finds wrong with kernels: each finding once with a count, as text and as lines of JSON. Findings can
 * be suppressed.
 *
 * A rule has an id, a severity, a sentence that was violated, and a remedy; each emulator has its own rules. */
#ifndef IK_EMULATION_FINDINGS_H
#define IK_EMULATION_FINDINGS_H
#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace ik_emulation
{

enum class Severity { note, error };

struct Rule {
    const char *id;
    Severity severity;
    const char *says; /* the rule in a sentence, with its subject in brackets at the end */
    const char *remedy;
};

/* One end of a finding. */
struct Place {
    int group = -1, member = -1;
    std::string where; /* file:line */
    std::string what; /* what was done there, without a subject: "reads 4 bytes" */
    std::string who = {}; /* the subject in the text, where it is not "group 0 member 3" */
};

struct Finding {
    const Rule *rule = nullptr;
    std::string kernel;
    Place place, other; /* nothing was done in `other`: there is no second place */
    std::string bytes; /* which bytes */
    std::string remedy; /* replaces the rule's remedy where more is known */
    std::uint64_t count = 1;
};

/* Return text as a JSON string. */
inline std::string quote(const std::string &text)
{
    std::string out = "\"";
    for (const char c : text) {
        char code[8];
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
            out += code;
        } else {
            out += c;
        }
    }
    return out + '"';
}

class Findings
{
  public:
    /* `program` begins each line; `member` and `group` are the text's words for them ("core", "cluster"). */
    Findings(const char *program, const char *member, const char *group)
        : program_(program), member_(member), group_(group)
    {
    }

    /* Read lines `rule:kernel`, both with the shell's wildcards; # begins a comment. Returns false if the file cannot
     * be read. */
    bool suppress(const std::string &path)
    {
        std::ifstream in(path);
        for (std::string line; std::getline(in, line);) {
            line.erase(std::min(line.find('#'), line.size()));
            line.erase(0, std::min(line.find_first_not_of(" \t\r"), line.size()));
            line.erase(line.find_last_not_of(" \t\r") + 1);
            const std::size_t colon = line.find(':');
            if (!line.empty())
                suppressed_.push_back(
                    { line.substr(0, colon), colon == std::string::npos ? "*" : line.substr(colon + 1) });
        }
        return in.eof();
    }

    /* Add a finding; returns its number for `again`, or -1 if it is suppressed. */
    int add(Finding f)
    {
        for (const auto &[rule, kernel] : suppressed_)
            if (fnmatch(rule.c_str(), f.rule->id, 0) == 0 && fnmatch(kernel.c_str(), f.kernel.c_str(), 0) == 0)
                return -1;
        found_.push_back(std::move(f));
        return static_cast<int>(found_.size()) - 1;
    }

    /* Count the same finding again, `times` times; the text describes its first occurrence. */
    void again(int number, std::uint64_t times = 1)
    {
        if (number >= 0)
            found_[static_cast<std::size_t>(number)].count += times;
    }

    /* Report the findings that were not reported yet: text to `out`, and JSON appended to the file `report` unless that
     * is empty. Returns whether there were any. */
    bool report_findings(std::FILE *out, const std::string &report, std::uint64_t seed)
    {
        std::string json;
        for (; reported_ < found_.size(); reported_++) {
            const Finding &f = found_[reported_];
            std::fputs(text(f).c_str(), out);
            json += line(f, seed) + '\n';
        }
        std::fflush(out);
        if (json.empty() || report.empty())
            return !json.empty();
        if (std::FILE *file = std::fopen(report.c_str(), "a"); file != nullptr) {
            std::fwrite(json.data(), 1, json.size(), file);
            std::fclose(file);
        } else {
            std::fprintf(out, "%s: findings cannot be written to %s\n", program_, report.c_str());
        }
        return true;
    }

  private:
    std::string text(const Finding &f) const
    {
        std::string t = std::string(program_) + ": " + (f.rule->severity == Severity::error ? "error" : "note") + ": "
            + f.rule->id + (f.kernel.empty() ? "" : " in " + f.kernel);
        t += f.count > 1 ? " (" + std::to_string(f.count) + " times)\n" : "\n";
        t += "    " + sentence(f.place);
        if (!f.bytes.empty())
            t += ": " + f.bytes;
        t += '\n';
        if (!f.other.what.empty())
            t += "    " + sentence(f.other) + '\n';
        return t + "    rule: " + f.rule->says + "\n    do: " + remedy(f) + '\n';
    }

    std::string sentence(const Place &p) const
    {
        if (p.group < 0 && p.who.empty())
            return p.what;
        const std::string who = !p.who.empty()
            ? p.who
            : group_ + (' ' + std::to_string(p.group)) + ' ' + member_ + ' ' + std::to_string(p.member);
        return (p.where.empty() ? "" : p.where + ": ") + who + ' ' + p.what;
    }

    std::string line(const Finding &f, std::uint64_t seed) const
    {
        std::string j = "{\"rule\": " + quote(f.rule->id)
            + ", \"severity\": " + (f.rule->severity == Severity::error ? "\"error\"" : "\"note\"")
            + ", \"kernel\": " + quote(f.kernel) + ", \"count\": " + std::to_string(f.count)
            + ", \"bytes\": " + quote(f.bytes) + ", \"place\": " + place(f.place);
        if (!f.other.what.empty())
            j += ", \"other\": " + place(f.other);
        return j + ", \"says\": " + quote(f.rule->says) + ", \"remedy\": " + quote(remedy(f))
            + ", \"seed\": " + std::to_string(seed) + "}";
    }

    std::string place(const Place &p) const
    {
        return std::string("{\"") + group_ + "\": " + std::to_string(p.group) + ", \"" + member_ + "\": "
            + std::to_string(p.member) + ", \"where\": " + quote(p.where) + ", \"what\": " + quote(p.what) + "}";
    }

    static std::string remedy(const Finding &f) { return f.remedy.empty() ? f.rule->remedy : f.remedy; }

    const char *program_, *member_, *group_;
    std::vector<Finding> found_;
    std::vector<std::pair<std::string, std::string>> suppressed_;
    std::size_t reported_ = 0;
};

} // namespace ik_emulation
#endif
