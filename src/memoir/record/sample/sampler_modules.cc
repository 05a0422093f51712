// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "memoir/process/control/modules.h"
#include "memoir/record/sample/sampler.h"

namespace memoir {

void Sampler::read_modules() noexcept {
  const std::uint64_t begin = now();
  host_control::visit_code(
      [](void* sampler, const host_control::CodeMapping& mapping) noexcept {
        return static_cast<Sampler*>(sampler)->add_module(mapping.begin, mapping.end, mapping.bias,
                                                          mapping.path, mapping.id, mapping.id_size);
      },
      this);
  const std::uint64_t end = now();  // at most a hundredth of the time goes to this
  read_modules_from_ = end + 100 + 100 * (end - begin);
}

/// False when there is no room for more.
bool Sampler::add_module(std::uint64_t begin, std::uint64_t end, std::uint64_t bias, std::string_view path,
                         const unsigned char* id, std::uint32_t id_size) noexcept {
  using namespace sample_image;
  Header& head = header();
  auto* const modules = records<sample_image::Module>(kModules);
  char* const paths = records<char>(kPaths);
  const auto same = [&](const sample_image::Module& known) {
    return known.begin == begin && known.end == end && known.bias == bias && known.id_size == id_size &&
           std::memcmp(known.id, id, id_size) == 0 &&
           std::string_view(paths + known.path, known.path_size) == path;
  };
  std::uint64_t number = 0;
  while (number < head.used[kModules] && !same(modules[number])) ++number;
  if (number == head.used[kModules]) {
    const std::uint64_t place = head.used[kPaths];
    if (!room_for(kModules, number + 1) || !room_for(kPaths, place + path.size())) return false;
    std::memcpy(paths + place, path.data(), path.size());
    sample_image::Module& fresh = modules[number];
    fresh = {begin,   end, bias, static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(path.size()),
             id_size, 0,   {}};
    std::memcpy(fresh.id, id, id_size);
    head.used[kPaths] += path.size();
    head.used[kModules] += 1;
  }
  // What lay there before is gone.
  std::uint16_t* const order = module_order_;
  std::uint16_t* const kept = std::remove_if(order, order + modules_, [&](std::uint16_t other) {
    return modules[other].begin < end && begin < modules[other].end;
  });
  modules_ = static_cast<size_t>(kept - order);
  std::uint16_t* const place = std::lower_bound(
      order, order + modules_, begin,
      [&](std::uint16_t other, std::uint64_t wanted) { return modules[other].begin < wanted; });
  std::memmove(place + 1, place, static_cast<size_t>(order + modules_ - place) * sizeof *order);
  *place = static_cast<std::uint16_t>(number);
  ++modules_;
  return true;
}

}  // namespace memoir
