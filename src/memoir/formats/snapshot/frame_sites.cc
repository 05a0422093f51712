// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/snapshot/frame_sites.h"

#include "memoir/base/site.h"
#include "memoir/base/utf8.h"
#include "memoir/trace/format.h"

namespace memoir {

namespace {

constexpr Size kMostText = 2 * kGiB;
constexpr std::uint32_t kMostFrames = 4096;

bool is_of_recorder(std::string_view name) {
  return name.starts_with("torch::unwind::") || name.starts_with("torch::CapturedTraceback::") ||
         name.find("gather_with_cpp") != name.npos ||
         (name.starts_with("c10::") && name.find("CachingAllocator::") != name.npos);
}

/// As valid UTF-8, and not longer than the name of a site may be.
std::string clean(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t size = utf8_size(text);
    const std::string_view next = size == 0 ? "\xef\xbf\xbd" : text.substr(0, size);
    if (result.size() + next.size() > trace_format::kMaxSiteText) break;
    result += next;
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return result;
}

}  // namespace

const FrameSites::Text& FrameSites::text_of(std::uint32_t number) {
  Text& text = frames_[number];
  if (text.known) return text;
  const Frame& frame = values_.frame(number);
  const std::string_view name = values_.text(frame.name), filename = values_.text(frame.filename);
  const bool has_file = frame.line != 0 || (filename != "??" && !filename.empty());
  std::string whole;
  if (has_file) whole.append(filename).append(":").append(std::to_string(frame.line)).append(" ");
  text = {clean(whole.append(name)), true, is_of_recorder(name)};
  return text;
}

SiteId FrameSites::site_of(std::uint32_t stack) {
  const std::uint32_t size = values_.stack_size(stack);
  if (size == 0) return kNoSite;
  SiteId& site = sites_[stack];
  if (site != kNoSite || written_ > kMostText) return site;  // beyond, objects have no sites
  std::uint32_t innermost = 0;
  while (innermost < size && text_of(values_.stack_frame(stack, innermost)).skipped) ++innermost;
  const std::uint32_t outermost = size - innermost > kMostFrames ? innermost + kMostFrames : size;
  for (std::uint32_t at = outermost; at > innermost; --at) {
    const std::string& text = text_of(values_.stack_frame(stack, at - 1)).text;
    const SiteId parent = site;
    site = child_site(parent, text);
    if (!defined_.insert(site).second) continue;
    writer_.define_site(site, parent, text);
    written_ += text.size();
  }
  return site;
}

FrameText split_frame(std::string_view text) noexcept {
  for (size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    size_t at = colon + 1;
    std::uint64_t line = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && line <= ~std::uint32_t{0})
      line = line * 10 + static_cast<std::uint64_t>(text[at++] - '0');
    const bool canonical = at > colon + 1 && (text[colon + 1] != '0' || at == colon + 2);
    if (canonical && at < text.size() && text[at] == ' ' && line <= ~std::uint32_t{0})
      return {text.substr(0, colon), static_cast<std::uint32_t>(line), text.substr(at + 1)};
  }
  return {"??", 0, text};
}

}  // namespace memoir
