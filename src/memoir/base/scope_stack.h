// SPDX-License-Identifier: Apache-2.0
//
// The operator scopes that one thread is in: a light stack that gives every allocation its site without
// unwinding. Single-threaded, of fixed depth; scopes deeper than that share the site of the deepest one kept.
#pragma once

#include <array>
#include <cstddef>

#include "memoir/base/site.h"

namespace memoir {

class ScopeStack {
 public:
  static constexpr size_t kDepth = 128;

  struct Scope {
    SiteId site = kNoSite;
    const char* name = nullptr;  // valid while the scope is open
  };

  void enter(const char* name) noexcept {
    if (depth_ < kDepth) scopes_[depth_] = {child_site(site(), name), name};
    ++depth_;
  }
  /// Ends the innermost scope; without one, nothing (it was entered before anyone listened).
  void leave() noexcept {
    if (depth_ > 0) --depth_;
  }
  void clear() noexcept { depth_ = 0; }

  /// The site of an allocation made now. Outside every operator it is a site of its own, not kNoSite.
  SiteId site() const noexcept { return depth_ == 0 ? kOutside : scopes_[kept() - 1].site; }
  size_t kept() const noexcept { return depth_ < kDepth ? depth_ : kDepth; }
  const Scope& operator[](size_t index) const noexcept { return scopes_[index]; }

  static constexpr SiteId kOutside = child_site(kNoSite, "(no operator)");

 private:
  std::array<Scope, kDepth> scopes_;
  size_t depth_ = 0;
};

}  // namespace memoir
