// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/write/add_process_facts.h"

#include "memoir/trace/write/trace_appender.h"

namespace memoir {

void add_process_facts(const std::string& path, std::span<const SeenMappings> mappings,
                       std::span<const SeenThread> threads) {
  TraceAppender appender(path);
  const std::uint64_t unit = appender.tick_size();
  appender.begin_at(mappings.empty() ? 0 : mappings.front().time / unit);
  for (const SeenThread& thread : threads) {
    const std::uint32_t name = appender.string(thread.name);
    appender.put([&](BlockEncoder& encoder) {
      return encoder.thread_begins(0, thread.number, thread.system_id, name);
    });
  }
  std::vector<BlockEncoder::Mappings> groups;
  for (const SeenMappings& seen : mappings) {
    groups.clear();
    for (const SeenMappings::Group& group : seen.groups)
      groups.push_back({group.region, appender.string(group.name), group.count, group.mapped, group.resident,
                        group.dirty, group.swapped});
    appender.put([&](BlockEncoder& encoder) {
      return encoder.mappings(seen.time / unit, seen.moment, seen.resident, groups);
    });
  }
  appender.write();
}

}  // namespace memoir
