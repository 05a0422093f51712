// SPDX-License-Identifier: Apache-2.0
#include "memoir/base/section_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace memoir {

static_assert(std::endian::native == std::endian::little, "what stands in a file is copied as it is");

std::uint64_t file_checksum(std::string_view file, std::size_t own) noexcept {
  std::uint64_t hash = file.size();
  for (std::size_t at = 0; at < file.size(); at += 8) {
    std::uint64_t word = 0;
    if (at != own) std::memcpy(&word, file.data() + at, std::min<std::size_t>(8, file.size() - at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

SectionReader::SectionReader(std::string_view file, std::size_t header, std::uint32_t sections) noexcept
    : file_(file), entry_(header), end_of_table_(header + sections * std::uint64_t{sizeof(Section)}) {
  end_ = end_of_table_;
  if (end_of_table_ > file.size()) {
    fault_ = "its table of sections is cut off";
    entry_ = end_of_table_;
  }
}

bool SectionReader::next() noexcept {
  if (fault_ != nullptr) return false;
  if (entry_ == end_of_table_)
    return stop(end_ == file_.size() ? nullptr : "it has bytes that are of no section");
  const std::uint32_t last = section_.kind;
  std::memcpy(&section_, file_.data() + entry_, sizeof section_);
  entry_ += sizeof section_;
  if (section_.kind <= last) return stop("its sections are not in the order of the kinds");
  const std::uint64_t room = file_.size() - end_, zeros = (8 - section_.size % 8) % 8;
  if (section_.begin != end_ || section_.size > room || zeros > room - section_.size)
    return stop("a section does not lie where the one before it ends, within the file");
  end_ += section_.size;
  for (const std::uint64_t end = end_ + zeros; end_ < end; ++end_) {
    if (file_[end_] != '\0') return stop("a section is not followed by zeros");
  }
  return true;
}

}  // namespace memoir
