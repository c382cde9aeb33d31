/* What the build recorded about a library of kernels: the source lines of its instructions, and its shared arrays. */
#ifndef XPURT_CHECK_LINES_H
#define XPURT_CHECK_LINES_H
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace xpurt::check
{

/* The bytes behind a shared array that no access may touch (rewriting.py has them). */
constexpr std::size_t ZONE = 64;

/* A __shared__ array, and its place in the cluster's segment. */
struct Shared {
    std::size_t offset, bytes;
    std::string name;
    std::uint64_t used = 0; /* the number of the last cluster that touched it */
    /* Whether it is the memory of all groups for one `__group_shared__` object. */
    bool of_groups() const { return name.rfind("xpusim_groups_", 0) == 0; }
};

class Library
{
  public:
    /* Return the library that holds `code`; it is kept until the process ends. */
    static Library *of(const void *code);

    /* Return file:line of the instruction before `return_address`, or its offset in the library if no lines are
     * known. */
    std::string line(const void *return_address);
    /* Return this thread's copy of the shared arrays. */
    char *segment() const;
    std::size_t segment_bytes() const { return segment_bytes_; }
    std::size_t initialised_bytes() const { return initialised_bytes_; }
    /* Return the array that holds an offset; null between arrays. */
    Shared *shared(std::size_t offset);
    bool has_names() { return load(), !shared_.empty(); }

    bool contains(const void *p) const { return p >= begin_ && p < end_; }
    /* Whether an address is in the library's writable part, where variables are. */
    bool writable(const void *p) const;
    /* Return how many bytes from `p` on are in the same loaded part of the library. */
    std::size_t rest(const void *p) const;

  private:
    void load();
    std::string path_;
    const char *base_ = nullptr, *begin_ = nullptr, *end_ = nullptr;
    std::vector<std::pair<const char *, const char *>> writable_, loaded_parts_;
    const char *relro_begin_ = nullptr, *relro_end_ = nullptr;
    std::size_t module_ = 0, segment_bytes_ = 0, initialised_bytes_ = 0;
    bool loaded_ = false;
    struct Row {
        std::uint64_t address;
        std::uint32_t file, line;
    };
    std::vector<Row> rows_;
    std::vector<std::string> files_;
    std::vector<Shared> shared_;
};

} // namespace xpurt::check
#endif
