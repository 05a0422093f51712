// SPDX-License-Identifier: Apache-2.0
//
// The shape that memoir's small files share (.plan, .lifetimes, .model): a header, a table, and sections of
// elements of one kind, each from a multiple of 8 on, with zeros up to the next one.
//
//   0        header    header + 32 * sections                                            end of the file
//   | header | entry | entry | elements of kind 1 ... 00 | elements of kind 3 ...... 0000 |
//
// Functions of a reader of files from strangers: they call no malloc, and read nothing outside the file.
#pragma once

#include <cstdint>
#include <string_view>

namespace memoir {

/// Of a section that a reader may pass over when it does not know its kind.
inline constexpr std::uint32_t kOptionalSection = 1;

/// An entry of the table.
struct Section {
  std::uint32_t kind = 0;   // larger than that of the section before it
  std::uint32_t flags = 0;  // kOptionalSection or 0
  std::uint64_t begin = 0;  // bytes from the start of the file: where the section before it ends
  std::uint64_t size = 0;   // bytes, without the zeros behind
  std::uint64_t count = 0;  // elements
};
static_assert(sizeof(Section) == 32);

/// Of a whole file, its own word (the eight bytes from `own` on) taken as 0. One multiply and one fold per
/// eight bytes, the last of which count as if zeros followed: enough against torn and flipped bytes, not
/// against a forger.
std::uint64_t file_checksum(std::string_view file, std::size_t own) noexcept;

/// Walks through the sections of a file, which outlives it:
///
///   SectionReader sections(file, sizeof(Header), header.sections);
///   while (sections.next()) use(sections.section(), sections.content());
///   if (sections.fault() != nullptr) refuse();
class SectionReader {
 public:
  /// The file has at least `header` bytes, which is a multiple of 8.
  SectionReader(std::string_view file, std::size_t header, std::uint32_t sections) noexcept;

  /// Goes to the next one. False: there is none, or the file is not as it must be.
  bool next() noexcept;
  const Section& section() const noexcept { return section_; }
  std::string_view content() const noexcept { return {file_.data() + section_.begin, section_.size}; }

  /// Once next() was false: nullptr, or what is wrong, to follow the file's name; section() is where.
  const char* fault() const noexcept { return fault_; }

 private:
  bool stop(const char* fault) noexcept {
    fault_ = fault;
    return false;
  }

  std::string_view file_;
  std::uint64_t entry_, end_of_table_;  // bytes from the start of the file
  std::uint64_t end_;                   // of the section, with its zeros
  Section section_;
  const char* fault_ = nullptr;
};

}  // namespace memoir
