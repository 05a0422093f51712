// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/write/add_symbols.h"

#include "memoir/trace/write/trace_appender.h"

namespace memoir {

void add_symbols(const std::string& path, std::span<const Symbol> symbols) {
  TraceAppender appender(path);
  std::vector<BlockEncoder::Line> lines;
  for (const Symbol& symbol : symbols) {
    lines.clear();
    for (const Symbol::Line& line : symbol.lines)
      lines.push_back({appender.string(line.function), appender.string(line.file), line.line});
    appender.put(
        [&](BlockEncoder& encoder) { return encoder.define_symbol(symbol.module, symbol.offset, lines); });
  }
  appender.write();
}

}  // namespace memoir
