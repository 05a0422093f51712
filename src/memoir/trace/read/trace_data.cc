// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/read/trace_data.h"

#include <cstdio>

#include "memoir/base/error.h"
#include "memoir/trace/format.h"

namespace memoir {

namespace {

std::string site_text(SiteId site) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(site));
  return text;
}

}  // namespace

void TraceData::fail(const std::string& what) const { throw Error(name + ": " + what); }

void TraceData::add(const Event& event) {
  if (!events.push_back(event)) {
    fail("its events do not fit into this machine's memory (" + std::to_string(events.size()) + " did)");
  }
}

std::string TraceData::take_text(const Event& event, std::string_view text) {
  if (event.kind == EventKind::kMeta) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos || equals == 0 || text.size() > trace_format::kMaxMetaText) {
      return "a meta record of " + std::to_string(text.size()) + " bytes that is not key=value, up to 1 MiB";
    }
    metas.insert_or_assign(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
    return {};
  }
  if (event.site == kNoSite) return "defines site 0, which stands for no site";
  if (text.size() > trace_format::kMaxSiteText) {
    return "the name of a site has " + std::to_string(text.size()) + " bytes, over 4,096";
  }
  const FrameKind kind = event.frame == FrameKind::kNone ? FrameKind::kOperator : event.frame;
  if (!sites.define(event.site, event.size, text, kind)) {
    return "site " + site_text(event.site) + " is defined twice, as \"" +
           std::string(sites.find(event.site)->name) + "\" and as \"" + std::string(text) + "\"";
  }
  return {};
}

void TraceData::check_sites() {
  if (const SiteId site = sites.endless(); site != kNoSite) {
    fail("the chain of site " + site_text(site) + " runs in a circle, or has more than 4,096 frames");
  }
}

}  // namespace memoir
