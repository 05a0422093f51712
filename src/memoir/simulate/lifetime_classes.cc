// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/lifetime_classes.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/predict/lifetime_class.h"
#include "memoir/predict/wall_classes.h"
#include "memoir/trace/trace.h"

namespace memoir {

namespace {

constexpr Tick kEndless = WallClasses::kEndless;

/// Nanoseconds that each object lived.
std::vector<Tick> lifetimes_in_time(const Workload& workload) {
  std::vector<Tick> lifetimes;
  lifetimes.reserve(workload.objects().size());
  for (const Workload::Object& object : workload.objects()) {
    const bool freed = object.end < workload.steps().size();
    lifetimes.push_back(freed ? workload.steps()[object.end].time - workload.steps()[object.begin].time
                              : kEndless);
  }
  return lifetimes;
}

/// Bytes that were allocated while each object lived, as multiples (in 1/1024) of the heap's recent maximum
/// when it died: what memoir's learner goes by (predict/lifetime_learner.h).
std::vector<Tick> lifetimes_in_allocation(const Workload& workload, double tau) {
  std::vector<Tick> lifetimes(workload.objects().size(), kEndless);
  std::vector<Size> born(workload.objects().size());
  double most_live = 0;
  Size clock = 0, live = 0;
  for (const Workload::Step& step : workload.steps()) {
    const Size size = workload.objects()[step.object].size;
    if (step.kind == Workload::Kind::kAllocate) {
      if (most_live > 0) most_live /= 1 + std::min(static_cast<double>(size) / (tau * most_live), 64.0) / 4;
      clock += size;
      live += size;
      born[step.object] = clock;
    } else {
      live -= size;
      lifetimes[step.object] = static_cast<Tick>(
          std::min(static_cast<double>(clock - born[step.object]) / most_live * 1024, 1e18));
    }
    most_live = std::max(most_live, static_cast<double>(live));
  }
  return lifetimes;
}

std::vector<Tick> lifetimes_of(const Workload& workload, const Policy& policy) {
  return policy.traits.lifetimes == LifetimeScale::kTime
             ? lifetimes_in_time(workload)
             : lifetimes_in_allocation(workload, policy.lifetime_unit);
}

using SiteLifetimes = std::unordered_map<SiteId, Tick>;

/// Of every site the 95th percentile.
SiteLifetimes by_site(const Workload& workload, const std::vector<Tick>& lifetimes) {
  std::unordered_map<SiteId, std::vector<Tick>> sites;
  for (size_t i = 0; i < lifetimes.size(); ++i) sites[workload.objects()[i].site].push_back(lifetimes[i]);
  SiteLifetimes percentile;
  for (auto& [site, all] : sites) {
    const auto at = static_cast<std::ptrdiff_t>(std::ceil(0.95 * static_cast<double>(all.size()))) - 1;
    std::nth_element(all.begin(), all.begin() + at, all.end());
    percentile[site] = all[static_cast<size_t>(at)];
  }
  return percentile;
}

}  // namespace

std::vector<std::uint8_t> lifetime_classes(const Workload& workload, const Policy& policy) {
  const bool in_time = policy.traits.lifetimes == LifetimeScale::kTime;
  std::string source = policy.lifetimes.lifetimes;
  if (source == "default") source = in_time ? "sites" : "none";
  if (source == "none") return {};
  const WallClasses classes(in_time ? static_cast<Tick>(policy.lifetime_unit) : 1);
  const auto class_of = [&](Tick lifetime) {
    const bool is_long = static_cast<double>(lifetime) >= policy.lifetime_unit * 1024;
    return static_cast<std::uint8_t>(in_time ? classes.of(lifetime) : is_long);
  };
  std::vector<std::uint8_t> out;
  out.reserve(workload.objects().size());
  if (source == "true" || source == "shuffled") {
    for (const Tick lifetime : lifetimes_of(workload, policy)) out.push_back(class_of(lifetime));
    std::mt19937_64 random(policy.lifetimes.seed);
    for (size_t i = out.size(); i > 1 && source == "shuffled"; --i) std::swap(out[i - 1], out[random() % i]);
    return out;
  }
  SiteLifetimes sites;
  if (source == "sites") {
    sites = by_site(workload, lifetimes_of(workload, policy));
  } else if (source.ends_with(".trace")) {
    const Trace trace = Trace::open(source);
    const Workload other(trace.events(), workload.device());
    sites = by_site(other, lifetimes_of(other, policy));
  } else {
    throw Error("policy '" + policy.text + "': lifetimes=" + source +
                ": give true, sites, shuffled, none, default or the trace of another run (x.trace)");
  }
  for (const Workload::Object& object : workload.objects()) {
    const auto known = sites.find(object.site);
    out.push_back(known == sites.end() ? Request::kNoLifetime : class_of(known->second));
  }
  return out;
}

}  // namespace memoir
