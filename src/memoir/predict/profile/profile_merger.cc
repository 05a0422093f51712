// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/profile/profile_merger.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "memoir/base/error.h"
#include "memoir/base/hex.h"

namespace memoir {

namespace {

using P = LifetimeProfile;

auto order_of(const P::Pair& pair) {
  return std::tuple(pair.priority, pair.begin_clock, pair.end_clock, pair.begin, pair.end, pair.size,
                    pair.weight, pair.allocated_by, pair.freed_by, pair.flags, pair.context);
}

std::uint32_t cell_key(const P::Cell& cell) {
  return std::uint32_t{cell.fate} << 20 | std::uint32_t{cell.clock} << 16 | cell.bucket;
}

/// Text of a canonical profile: each word once, sorted.
class Words {
 public:
  void want(std::string_view word) {
    if (!word.empty() && !places_.contains(word)) places_.emplace(word, P::Text{});
  }
  void lay_out(P& profile) {
    for (auto& [word, place] : places_) place = profile.store(word);
  }
  P::Text operator[](std::string_view word) const {
    return word.empty() ? P::Text{} : places_.find(word)->second;
  }

 private:
  std::map<std::string, P::Text, std::less<>> places_;
};

}  // namespace

std::uint32_t ProfileMerger::module_of(const P& profile, const P::Module& module) {
  const std::string id(reinterpret_cast<const char*>(module.id), module.id_size);
  const std::string path(profile.view(module.path));
  const auto [place, fresh] = module_numbers_.try_emplace(id.empty() ? "p" + path : "i" + id,
                                                          static_cast<std::uint32_t>(modules_.size()));
  if (fresh) modules_.push_back({path, id});
  MergedModule& merged = modules_[place->second];
  if (!path.empty() && (merged.path.empty() || path < merged.path)) merged.path = path;
  return place->second;
}

std::uint32_t ProfileMerger::frame_of(const P& profile, const P::Frame& frame,
                                      const std::vector<std::uint32_t>& modules) {
  const std::uint32_t module = frame.module == P::kNoModule ? P::kNoModule : modules[frame.module];
  const auto [place, fresh] =
      frame_numbers_.try_emplace(std::pair(module, frame.offset), static_cast<std::uint32_t>(frames_.size()));
  if (fresh) frames_.push_back({module, frame.offset, {}});
  MergedFrame& merged = frames_[place->second];
  if (const std::string_view name = profile.view(frame.name); name > merged.name) {
    auto known = names_.find(name);
    if (known == names_.end()) known = names_.emplace(name).first;
    merged.name = *known;
  }
  return place->second;
}

std::uint32_t ProfileMerger::context_of(const P::Context& context, std::vector<std::uint32_t> frames) {
  frames.push_back(context.flags);
  const auto [place, fresh] =
      context_numbers_.try_emplace(frames, static_cast<std::uint32_t>(contexts_.size()));
  if (fresh) {
    frames.pop_back();
    contexts_.push_back({context, std::move(frames), {}});
    return place->second;
  }
  P::Context& merged = contexts_[place->second].context;
  if (context.height != 0)
    merged.height = merged.height == 0 ? context.height : std::min(merged.height, context.height);
  merged.least_size = std::min(merged.least_size, context.least_size);
  merged.most_size = std::max(merged.most_size, context.most_size);
  merged.freed_elsewhere = add_up_to_most(merged.freed_elsewhere, context.freed_elsewhere);
  for (const int fate : {P::kFreed, P::kCensored}) {
    merged.estimates[fate].add(context.estimates[fate]);
    for (const int clock : {P::kMilliseconds, P::kBytes})
      merged.tallies[fate][clock].add(context.tallies[fate][clock]);
  }
  return place->second;
}

void ProfileMerger::add(const P& profile, const std::string& name) {
  for (const P::Run& run : profile.runs) {
    if (runs_.contains({run.id[0], run.id[1]}))
      throw Error(name + ": the run " + hex(run.id[0]) + " of " + std::string(profile.view(run.program)) +
                  " is in another of the files too, and would count twice; give each file once");
  }
  std::vector<std::uint32_t> modules, frames, contexts;
  for (const P::Module& module : profile.modules) modules.push_back(module_of(profile, module));
  for (const P::Frame& frame : profile.frames) frames.push_back(frame_of(profile, frame, modules));
  for (const P::Context& context : profile.contexts) {
    std::vector<std::uint32_t> stack;
    for (const std::uint32_t frame : profile.stack(context)) stack.push_back(frames[frame]);
    contexts.push_back(context_of(context, std::move(stack)));
  }
  for (const P::Cell& cell : profile.cells)
    contexts_[contexts[cell.context]].cells[cell_key(cell)].add(cell.estimate);
  add_runs(profile, contexts, name);
}

void ProfileMerger::add_runs(const P& profile, const std::vector<std::uint32_t>& contexts,
                             const std::string& name) {
  size_t first_pair = 0, first_point = 0;
  for (const P::Run& run : profile.runs) {
    MergedRun& merged = runs_[{run.id[0], run.id[1]}];
    if (merged.run.every != 0) throw Error(name + ": holds the run " + hex(run.id[0]) + " twice");
    merged.run = run;
    merged.program = profile.view(run.program);
    for (size_t i = 0; i < run.pairs; ++i) {
      P::Pair pair = profile.pairs[first_pair + i];
      pair.context = contexts[pair.context];
      merged.pairs.push_back(pair);
    }
    const auto point = profile.points.begin() + static_cast<std::ptrdiff_t>(first_point);
    merged.points.assign(point, point + run.points);
    first_pair += run.pairs;
    first_point += run.points;
  }
  const P::Totals& more = profile.totals;
  totals_.runs = add_up_to_most(totals_.runs, more.runs);
  totals_.samples = add_up_to_most(totals_.samples, more.samples);
  totals_.lost = add_up_to_most(totals_.lost, more.lost);
  totals_.missed_frees = add_up_to_most(totals_.missed_frees, more.missed_frees);
  totals_.milliseconds = add_up_to_most(totals_.milliseconds, more.milliseconds);
  totals_.allocated = add_up_to_most(totals_.allocated, more.allocated);
  totals_.most_pairs = std::min(totals_.most_pairs, more.most_pairs);
  totals_.most_runs = std::min(totals_.most_runs, more.most_runs);
  keep_best_runs();
}

void ProfileMerger::keep_best_runs() {
  if (runs_.size() <= totals_.most_runs) return;
  std::vector<std::tuple<double, std::uint64_t, std::uint64_t>> order;
  for (const auto& [id, run] : runs_) order.emplace_back(run.run.priority, id.first, id.second);
  std::sort(order.begin(), order.end());
  for (size_t i = totals_.most_runs; i < order.size(); ++i)
    runs_.erase({std::get<1>(order[i]), std::get<2>(order[i])});
}

LifetimeProfile ProfileMerger::finish() {
  P result;
  result.totals = totals_;

  // What stands in no stack is left out; the rest is numbered in its order.
  std::vector<char> frame_used(frames_.size()), module_used(modules_.size());
  for (const MergedContext& context : contexts_) {
    for (const std::uint32_t frame : context.frames) {
      frame_used[frame] = 1;
      if (frames_[frame].module != P::kNoModule) module_used[frames_[frame].module] = 1;
    }
  }
  Words words;
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (module_used[i]) words.want(modules_[i].path);
  }
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (frame_used[i]) words.want(frames_[i].name);
  }
  for (const auto& [id, run] : runs_) words.want(run.program);
  words.lay_out(result);

  std::vector<std::uint32_t> modules(modules_.size()), frames(frames_.size());
  for (const auto& [key, number] : module_numbers_) {  // by build id, then by path
    if (!module_used[number]) continue;
    const MergedModule& merged = modules_[number];
    P::Module module;
    module.path = words[merged.path];
    module.id_size = static_cast<std::uint32_t>(merged.id.size());
    std::copy(merged.id.begin(), merged.id.end(), module.id);
    modules[number] = static_cast<std::uint32_t>(result.modules.size());
    result.modules.push_back(module);
  }
  std::vector<std::uint32_t> order;
  const auto final_module = [&](const MergedFrame& frame) {
    return frame.module == P::kNoModule ? P::kNoModule : modules[frame.module];
  };
  for (std::uint32_t i = 0; i < frames_.size(); ++i) {
    if (frame_used[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(final_module(frames_[a]), frames_[a].offset) <
           std::pair(final_module(frames_[b]), frames_[b].offset);
  });
  for (const std::uint32_t number : order) {
    frames[number] = static_cast<std::uint32_t>(result.frames.size());
    result.frames.push_back(
        {frames_[number].offset, final_module(frames_[number]), words[frames_[number].name]});
  }

  for (MergedContext& context : contexts_) {
    for (std::uint32_t& frame : context.frames) frame = frames[frame];
  }
  order.resize(contexts_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(contexts_[a].frames, contexts_[a].context.flags) <
           std::tie(contexts_[b].frames, contexts_[b].context.flags);
  });
  std::vector<std::uint32_t> contexts(contexts_.size());
  for (const std::uint32_t number : order) {
    MergedContext& merged = contexts_[number];
    const auto final_number = static_cast<std::uint32_t>(result.contexts.size());
    contexts[number] = final_number;
    if (result.stacks.size() + merged.frames.size() > ~std::uint32_t{0})
      throw Error("a lifetime profile with over 2^32 frames in its stacks");
    merged.context.first = static_cast<std::uint32_t>(result.stacks.size());
    merged.context.frames = static_cast<std::uint32_t>(merged.frames.size());
    result.stacks.insert(result.stacks.end(), merged.frames.begin(), merged.frames.end());
    result.contexts.push_back(merged.context);
    for (const auto& [key, estimate] : merged.cells)
      result.cells.push_back({final_number, static_cast<std::uint16_t>(key & 0xffff),
                              static_cast<std::uint8_t>(key >> 16 & 0xf),
                              static_cast<std::uint8_t>(key >> 20), estimate});
  }

  for (auto& [id, merged] : runs_) {
    for (P::Pair& pair : merged.pairs) pair.context = contexts[pair.context];
    std::sort(merged.pairs.begin(), merged.pairs.end(),
              [](const P::Pair& a, const P::Pair& b) { return order_of(a) < order_of(b); });
    if (merged.pairs.size() > totals_.most_pairs) merged.pairs.resize(totals_.most_pairs);
    merged.run.program = words[merged.program];
    merged.run.pairs = static_cast<std::uint32_t>(merged.pairs.size());
    merged.run.points = static_cast<std::uint32_t>(merged.points.size());
    result.runs.push_back(merged.run);
    result.pairs.insert(result.pairs.end(), merged.pairs.begin(), merged.pairs.end());
    result.points.insert(result.points.end(), merged.points.begin(), merged.points.end());
  }
  return result;
}

LifetimeProfile canonical(const LifetimeProfile& profile) {
  ProfileMerger merger;
  merger.add(profile, "a profile");
  return merger.finish();
}

}  // namespace memoir
