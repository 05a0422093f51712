// SPDX-License-Identifier: Apache-2.0
//
// Names of functions by their addresses, from the symbol tables of the files that modules were loaded from.
// The files are mapped and read by a thread that may wait for a disk; no malloc. A file that is gone, or is
// another build now, or stripped, has none. Files are not trusted: every offset in them is checked.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "memoir/base/metadata.h"
#include "memoir/process/stacks/module_table.h"

namespace memoir::malloc_ {

class SymbolNames {
 public:
  /// Of the function that holds the call before that return address, as the symbol table has it (mangled);
  /// empty: nobody knows. Valid until the next forget().
  std::string_view find(const stacks::LoadedModule& module, std::uintptr_t return_address) noexcept;
  /// Lets go of the files' pages; they are read again when they are asked for.
  void forget_pages() noexcept;

 private:
  static constexpr size_t kMostModules = 128, kMostSymbols = size_t{1} << 22;
  struct Symbol {
    std::uint32_t begin, size, name;  // name: its byte in the file
  };
  struct Table {
    const stacks::LoadedModule* module = nullptr;
    const char* file = nullptr;
    size_t size = 0;
    MetadataArray<Symbol> symbols;  // by their begin; kept for ever
  };

  Table* table_of(const stacks::LoadedModule& module) noexcept;
  void open(Table& table) noexcept;

  Table tables_[kMostModules];
  size_t count_ = 0;
};

}  // namespace memoir::malloc_
