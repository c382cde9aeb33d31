#include "check_lines.h"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <iterator>
#include <sstream>

#include "fault.h"

/* From the C library; its argument is the module's number and an offset. */
extern "C" void *__tls_get_addr(std::size_t *index);

namespace xpurt::check
{

Library *Library::of(const void *code)
{
    static auto &all = *new std::map<const char *, std::unique_ptr<Library>>; /* never destroyed, as `state` is not */
    Library found;
    struct Search {
        const char *code;
        Library *into;
    } search{ static_cast<const char *>(code), &found };
    dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *data) {
            auto &[at, l] = *static_cast<Search *>(data);
            const char *base = reinterpret_cast<const char *>(info->dlpi_addr), *begin = nullptr, *end = nullptr;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const auto &p = info->dlpi_phdr[i];
                if (p.p_type != PT_LOAD)
                    continue;
                begin = begin == nullptr ? base + p.p_vaddr : std::min(begin, base + p.p_vaddr);
                end = std::max(end, base + p.p_vaddr + p.p_memsz);
            }
            if (at < begin || at >= end)
                return 0;
            l->path_ = info->dlpi_name;
            l->base_ = base;
            l->begin_ = begin;
            l->end_ = end;
            l->module_ = info->dlpi_tls_modid;
            for (int i = 0; i < info->dlpi_phnum; i++) {
                const auto &p = info->dlpi_phdr[i];
                const char *start = base + p.p_vaddr;
                if (p.p_type == PT_LOAD)
                    l->loaded_parts_.push_back({ start, start + p.p_memsz });
                if (p.p_type == PT_LOAD && (p.p_flags & PF_W) != 0)
                    l->writable_.push_back({ start, start + p.p_memsz });
                if (p.p_type == PT_GNU_RELRO)
                    l->relro_begin_ = start, l->relro_end_ = start + p.p_memsz;
                if (p.p_type == PT_TLS)
                    l->segment_bytes_ = p.p_memsz, l->initialised_bytes_ = p.p_filesz;
            }
            return 1;
        },
        &search);
    auto &kept = all[found.base_];
    if (kept == nullptr || kept->path_ != found.path_)
        kept = std::make_unique<Library>(std::move(found));
    return kept.get();
}

char *Library::segment() const
{
    if (module_ == 0 || segment_bytes_ == 0)
        return nullptr;
    std::size_t index[2] = { module_, 0 };
    return static_cast<char *>(__tls_get_addr(index));
}

bool Library::writable(const void *p) const
{
    const auto *at = static_cast<const char *>(p);
    if (at >= relro_begin_ && at < relro_end_)
        return false;
    return std::any_of(
        writable_.begin(), writable_.end(), [=](const auto &part) { return at >= part.first && at < part.second; });
}

std::size_t Library::rest(const void *p) const
{
    const auto *at = static_cast<const char *>(p);
    for (const auto &[begin, end] : loaded_parts_)
        if (at >= begin && at < end)
            return static_cast<std::size_t>(end - at);
    return 0;
}

void Library::load()
{
    if (loaded_)
        return;
    loaded_ = true;
    std::ifstream in(path_ + ".lines");
    for (std::string text; std::getline(in, text);) {
        std::istringstream words(text.substr(1));
        if (text[0] == 'F') {
            files_.push_back(text.substr(2));
        } else if (text[0] == 'L') {
            Row r{};
            words >> std::hex >> r.address >> std::dec >> r.file >> r.line;
            rows_.push_back(r);
        } else if (text[0] == 'S') {
            Shared s{};
            words >> std::hex >> s.offset >> s.bytes >> s.name;
            static const std::string zoned = "xpusim_zoned_";
            if (s.name.rfind(zoned, 0) == 0) {
                s.name.erase(0, zoned.size());
                s.bytes -= ZONE;
            }
            shared_.push_back(std::move(s));
        }
    }
    std::stable_sort(rows_.begin(), rows_.end(), [](const Row &a, const Row &b) { return a.address < b.address; });
    std::sort(shared_.begin(), shared_.end(), [](const Shared &a, const Shared &b) { return a.offset < b.offset; });
}

std::string Library::line(const void *return_address)
{
    load();
    const auto at = static_cast<std::uint64_t>(static_cast<const char *>(return_address) - base_) - 1;
    auto found =
        std::upper_bound(rows_.begin(), rows_.end(), at, [](std::uint64_t a, const Row &r) { return a < r.address; });
    if (found == rows_.begin() || std::prev(found)->file >= files_.size()) {
        char text[32];
        std::snprintf(text, sizeof text, "+0x%llx", static_cast<unsigned long long>(at + 1));
        return path_ + text;
    }
    --found;
    /* In a function of the language that is inlined: the nearest of the author's lines around it. */
    const auto authors = [&](const Row &r) { return !of_the_language(files_[r.file]); };
    if (!authors(*found)) {
        const auto after = std::find_if(found, rows_.end(), authors);
        const auto before = std::find_if(std::make_reverse_iterator(found), rows_.rend(), authors);
        if (before != rows_.rend() && (after == rows_.end() || at - before.base()->address < after->address - at))
            found = std::prev(before.base());
        else if (after != rows_.end())
            found = after;
    }
    return files_[found->file] + ":" + std::to_string(found->line);
}

Shared *Library::shared(std::size_t offset)
{
    load();
    auto found = std::upper_bound(
        shared_.begin(), shared_.end(), offset, [](std::size_t o, const Shared &s) { return o < s.offset; });
    if (found == shared_.begin() || offset >= std::prev(found)->offset + std::prev(found)->bytes)
        return nullptr;
    return &*std::prev(found);
}

} // namespace xpurt::check
