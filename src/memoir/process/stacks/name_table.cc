// SPDX-License-Identifier: Apache-2.0
#include "memoir/process/stacks/name_table.h"

#include <string.h>

#include "memoir/base/metadata.h"
#include "memoir/base/site.h"

#include "memoir/base/pause.h"

namespace memoir::stacks {

bool NameTable::start() noexcept {
  if (entries_ == nullptr) entries_ = static_cast<Entry*>(map_metadata(kMost * sizeof(Entry)));
  if (texts_ == nullptr) texts_ = static_cast<char*>(map_metadata(kMost * kAverage));
  if (slots_ == nullptr)
    slots_ = static_cast<std::atomic<std::uint16_t>*>(map_metadata(kSlots * sizeof(std::uint16_t)));
  return entries_ != nullptr && texts_ != nullptr && slots_ != nullptr;
}

std::uint32_t NameTable::find(std::string_view name, std::uint32_t spare) noexcept {
  name = name.substr(0, kLongest);
  const std::size_t home = hash_name(name) % kSlots;
  const auto look = [&](std::size_t& index) -> std::uint32_t {
    for (index = home;; index = (index + 1) % kSlots) {
      const std::uint16_t number = slots_[index].load(std::memory_order_acquire);
      if (number == 0) return 0;
      const Entry& entry = entries_[number - 1];
      if (entry.length == name.size() && memcmp(texts_ + entry.begin, name.data(), name.size()) == 0)
        return number;
    }
  };
  std::size_t index;
  if (const std::uint32_t number = look(index)) return number;
  for (unsigned tries = 0; locked_.exchange(true, std::memory_order_acquire);) {
    if (++tries > 100'000) return 0;  // who holds it was stopped inside
    pause_processor();
  }
  std::uint32_t number = look(index);
  const auto size = static_cast<std::uint32_t>(name.size());
  if (number == 0 && count_ + spare < kMost && used_ + size + spare * kAverage <= kMost * kAverage) {
    memcpy(texts_ + used_, name.data(), size);
    entries_[count_] = {used_, size};
    used_ += size;
    number = ++count_;
    slots_[index].store(static_cast<std::uint16_t>(number), std::memory_order_release);
  }
  locked_.store(false, std::memory_order_release);
  return number;
}

std::string_view NameTable::operator[](std::uint32_t number) const noexcept {
  if (number == 0 || number > kMost) return {};
  return {texts_ + entries_[number - 1].begin, entries_[number - 1].length};
}

}  // namespace memoir::stacks
