// SPDX-License-Identifier: Apache-2.0
//
// The operators that an allocation is made in, when somebody wants to know: a callback at the start and the
// end of every operator of every thread costs about 0.2 us each.
#include <ATen/record_function.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "memoir/base/scope_stack.h"
#include "memoir/device/torch/pluggable.h"

namespace memoir::device_door {

namespace {

constexpr size_t kNamed = 3;  // innermost scopes that a site's name shows

std::atomic<bool> g_listening{false};
thread_local ScopeStack t_scopes;
thread_local std::unordered_set<SiteId> t_named;

struct Names {
  std::mutex mutex;
  std::unordered_map<SiteId, std::string> by_site;
};
Names* const g_names = new Names;  // asked during exit

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  t_scopes.enter(function.name());
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) { t_scopes.leave(); }

void name(SiteId site) {
  std::string text = t_scopes.kept() == 0 ? "(no operator)" : "";
  const size_t first = t_scopes.kept() > kNamed ? t_scopes.kept() - kNamed : 0;
  for (size_t i = first; i < t_scopes.kept(); ++i)
    text += (text.empty() ? "" : " > ") + std::string(t_scopes[i].name);
  const std::lock_guard lock(g_names->mutex);
  g_names->by_site.emplace(site, std::move(text));
}

}  // namespace

SiteId current_site() noexcept {
  if (!g_listening.load(std::memory_order_relaxed)) return kNoSite;
  const SiteId site = t_scopes.site();
  if (t_named.insert(site).second) name(site);
  return site;
}

std::string site_name(SiteId site) {
  const std::lock_guard lock(g_names->mutex);
  const auto found = g_names->by_site.find(site);
  return found == g_names->by_site.end() ? "" : found->second;
}

}  // namespace memoir::device_door

/// From now on, until the end of the process.
MEMOIR_EXPORT void memoir_cuda_listen_to_sites() {
  using namespace memoir::device_door;
  if (g_listening.exchange(true)) return;
  at::addGlobalCallback(at::RecordFunctionCallback(enter, leave)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}
