// SPDX-License-Identifier: Apache-2.0
#include "memoir/simulate/lifetime_classes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>

#include "memoir/base/error.h"
#include "memoir/base/site.h"
#include "memoir/base/whole_file.h"
#include "memoir/predict/lifetime_class.h"
#include "memoir/predict/model/lifetime_model.h"
#include "memoir/predict/model/plain_name.h"
#include "memoir/predict/wall_classes.h"
#include "memoir/trace/read/trace.h"
#include "memoir/trace/stack_frame.h"

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

/// A model with the bytes of its file.
class ModelFile {
 public:
  explicit ModelFile(const std::string& path) {
    const std::string bytes = read_whole_file(path);
    words_.resize((bytes.size() + 7) / 8);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(words_.data()));
    if (const char* const why = model_.open({reinterpret_cast<const char*>(words_.data()), bytes.size()}))
      throw Error(path + ": " + why);
  }
  const LifetimeModel& operator*() const noexcept { return model_; }
  const LifetimeModel* operator->() const noexcept { return &model_; }

 private:
  std::vector<std::uint64_t> words_;
  LifetimeModel model_;
};

/// What a model says of the objects of a trace: the likeliest class, or whether they are long-lived.
class ModelAnswers {
 public:
  ModelAnswers(const Trace& trace, const LifetimeModel& model, bool in_time)
      : trace_(trace), model_(model), in_time_(in_time) {}

  std::uint8_t ask(SiteId site, Size size) const {
    if (!in_time_ && model_.one_class()) return 0;
    std::vector<std::string_view> names;
    for (const StackFrame& frame : frames_of(site)) names.push_back(frame.function);
    LifetimeModel::Query query;
    query.size = size;
    const auto prediction = model_.predict(ModelStack(names, model_.key()), query);
    if (prediction.stage == LifetimeModel::kAbstains) return Request::kNoLifetime;
    if (!in_time_) return model_.calls_long(prediction);
    return static_cast<std::uint8_t>(
        std::max_element(std::begin(prediction.wall), std::end(prediction.wall)) -
        std::begin(prediction.wall));
  }

  /// Of the call that allocates and how deep the stack is there: what the LLAMA paper finds a prediction by,
  /// with the size. A trace has no bytes of stack, so frames are counted.
  std::uint64_t place_of(SiteId site) const {
    const std::vector<StackFrame> frames = frames_of(site);
    size_t inner = 0;
    while (inner < frames.size() && is_allocation_name(PlainName(frames[inner].function).view())) ++inner;
    std::uint64_t place = child_site_of_hash(kNoSite, frames.size() - inner);
    if (inner == frames.size()) return place;
    place = child_site(place, frames[inner].module);
    place = child_site_of_hash(place, frames[inner].offset);
    return child_site(place, frames[inner].function);
  }

 private:
  /// Innermost first, without what is inlined into them.
  std::vector<StackFrame> frames_of(SiteId site) const {
    std::vector<StackFrame> frames = trace_.site_frames(site);
    std::erase_if(frames, [](const StackFrame& frame) { return frame.is_inlined; });
    std::reverse(frames.begin(), frames.end());
    return frames;
  }

  const Trace& trace_;
  const LifetimeModel& model_;
  bool in_time_;
};

/// Answers that are asked for once in so many objects, as the LLAMA paper has it (2.3): what was short-lived
/// once and is long-lived now is called long-lived from then on; too long is easier to bear than too short.
std::vector<std::uint8_t> predicted_from_cache(const Workload& workload, const ModelAnswers& answers,
                                               Size ask_again) {
  struct Entry {
    std::uint8_t answer = 0;
    Size hits = 0;
  };
  std::unordered_map<SiteId, std::uint64_t> places;
  std::unordered_map<std::uint64_t, Entry> cache;
  std::vector<std::uint8_t> out;
  out.reserve(workload.objects().size());
  for (const Workload::Object& object : workload.objects()) {
    const auto [place, is_new_site] = places.try_emplace(object.site);
    if (is_new_site) place->second = answers.place_of(object.site);
    const auto [cached, is_new] = cache.try_emplace(child_site_of_hash(place->second, object.size));
    Entry& entry = cached->second;
    if (is_new || ++entry.hits == ask_again) {
      const std::uint8_t answer = answers.ask(object.site, object.size);
      entry = {is_new ? answer : std::max(entry.answer, answer), 0};
    }
    out.push_back(entry.answer);
  }
  return out;
}

std::vector<std::uint8_t> predicted(const Workload& workload, const Policy& policy, bool in_time) {
  const ModelFile model(policy.lifetimes.lifetimes);
  const Trace* const trace = workload.trace();
  if (trace == nullptr)
    throw Error("policy '" + policy.text +
                "': this workload has no trace with the names of its sites; make it of one");
  const ModelAnswers answers(*trace, *model, in_time);
  if (policy.lifetimes.ask_again != 0)
    return predicted_from_cache(workload, answers, policy.lifetimes.ask_again);
  std::unordered_map<std::uint64_t, std::uint8_t> known;  // by site and number of bits of the size
  std::vector<std::uint8_t> out;
  out.reserve(workload.objects().size());
  for (const Workload::Object& object : workload.objects()) {
    const std::uint64_t key =
        child_site_of_hash(object.site, static_cast<std::uint64_t>(std::bit_width(object.size)));
    const auto [place, is_new] = known.try_emplace(key);
    if (is_new) place->second = answers.ask(object.site, object.size);
    out.push_back(place->second);
  }
  return out;
}

}  // namespace

std::vector<std::uint8_t> lifetime_classes(const Workload& workload, const Policy& policy) {
  const bool in_time = policy.traits.lifetimes == LifetimeScale::kTime;
  std::string source = policy.lifetimes.lifetimes;
  if (source == "default") source = in_time ? "sites" : "none";
  if (source == "none") return {};
  if (source.ends_with(".model")) return predicted(workload, policy, in_time);
  const WallClasses classes(in_time ? static_cast<Tick>(policy.lifetime_unit) : 1);
  const auto class_of = [&](Tick lifetime) {
    const bool is_long = static_cast<double>(lifetime) >= policy.lifetime_unit * 1024;
    return static_cast<std::uint8_t>(in_time ? classes.of(lifetime) : is_long);
  };
  std::vector<std::uint8_t> out;
  out.reserve(workload.objects().size());
  if (source == "true" || source == "shuffled") {
    for (const Tick lifetime : lifetimes_of(workload, policy)) out.push_back(class_of(lifetime));
    std::mt19937_64 random;  // one order: shuffled lifetimes are a control, and any order is as good
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
                ": give true, sites, shuffled, none, default, the trace of another run (x.trace) or a model "
                "of memoir train "
                "(x.model)");
  }
  for (const Workload::Object& object : workload.objects()) {
    const auto known = sites.find(object.site);
    out.push_back(known == sites.end() ? Request::kNoLifetime : class_of(known->second));
  }
  return out;
}

}  // namespace memoir
