// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/profile/profile_file.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "memoir/base/error.h"
#include "memoir/base/utf8.h"
#include "memoir/predict/profile/log_buckets.h"

namespace memoir {

using namespace lifetimes_format;

LifetimeProfile::Text LifetimeProfile::store(std::string_view word) {
  while (word.size() > kMostWord) {  // at the end of a character
    size_t size = kMostWord;
    while (size > 0 && (static_cast<unsigned char>(word[size]) & 0xc0) == 0x80) --size;
    word = word.substr(0, size);
  }
  if (word.empty()) return {};
  if (word.size() >= ~std::uint32_t{0} - text.size())
    throw Error("a lifetime profile with over 4 GiB of names");
  const Text part{static_cast<std::uint32_t>(text.size()), static_cast<std::uint32_t>(word.size())};
  text.append(word);
  text += '\0';
  return part;
}

double run_priority(const LifetimeProfile::Run& run) noexcept {
  const double u = (static_cast<double>((run.id[0] ^ run.id[1]) >> 11) + 0.5) * 0x1p-53;
  return -std::log(u) / static_cast<double>(run.samples + 1);
}

namespace {

// The arrays of a profile in the order of their sections; f(kind, array) for each.
template <class Profile, class Function>
void for_each_array(Profile& profile, Function f) {
  f(kText, profile.text);
  f(kModules, profile.modules);
  f(kFrames, profile.frames);
  f(kStacks, profile.stacks);
  f(kContexts, profile.contexts);
  f(kCells, profile.cells);
  f(kRuns, profile.runs);
  f(kPairs, profile.pairs);
  f(kPoints, profile.points);
}

class Checker {
 public:
  Checker(const LifetimeProfile& profile, const std::string& name) : profile_(profile), name_(name) {}

  void check() {
    if (profile_.text.size() > ~std::uint32_t{0}) fail("text", 0, "is larger than 4 GiB");
    for (std::string_view rest = profile_.text; !rest.empty();) {
      const size_t size = utf8_size(rest);
      if (size == 0) fail("text, byte", profile_.text.size() - rest.size(), "is not UTF-8");
      rest.remove_prefix(size);
    }
    totals();
    modules();
    frames();
    contexts();
    cells();
    runs();
  }

 private:
  using P = LifetimeProfile;

  [[noreturn]] void fail(const char* what, size_t number, const std::string& why) const {
    throw Error(name_ + ": " + what + " " + std::to_string(number) + " " + why);
  }
  /// Words are whole: however many refer to them, there is no more to hold than the text.
  void text(P::Text part, const char* what, size_t number) const {
    if (part.size == 0 && part.begin == 0) return;
    const std::string_view text = profile_.text;
    if (part.size == 0 || part.size > P::kMostWord || part.size >= text.size() ||
        part.begin >= text.size() - part.size || text[part.begin + part.size] != '\0' ||
        (part.begin > 0 && text[part.begin - 1] != '\0') || profile_.view(part).find('\0') != text.npos)
      fail(what, number, "has text that is not a word of the file's");
  }
  void zero(std::uint64_t reserved, const char* what, size_t number) const {
    if (reserved != 0) fail(what, number, "has a reserved field that is not 0");
  }
  void totals() const {
    const P::Totals& all = profile_.totals;
    if (all.most_pairs > P::kMostPairs || all.most_runs > P::kMostRuns || all.most_runs == 0)
      fail("totals", 0, "allow more pairs or runs than the format");
    if (profile_.runs.size() > all.most_runs || profile_.runs.size() > all.runs)
      fail("totals", 0, "count fewer runs than there are");
  }
  void modules() const {
    for (size_t i = 0; i < profile_.modules.size(); ++i) {
      const P::Module& module = profile_.modules[i];
      text(module.path, "module", i);
      zero(module.reserved, "module", i);
      if (module.id_size > P::kMostIdSize) fail("module", i, "has a build id of over 32 bytes");
      for (size_t k = module.id_size; k < P::kMostIdSize; ++k) zero(module.id[k], "module", i);
      if (module.id_size == 0 && module.path.size == 0) fail("module", i, "has neither build id nor path");
    }
  }
  void frames() const {
    for (size_t i = 0; i < profile_.frames.size(); ++i) {
      const P::Frame& frame = profile_.frames[i];
      text(frame.name, "frame", i);
      zero(frame.reserved, "frame", i);
      if (frame.module == P::kNoModule ? frame.offset != 0 : frame.module >= profile_.modules.size())
        fail("frame", i, "names a module that is not there");
    }
    for (size_t i = 0; i < profile_.stacks.size(); ++i) {
      if (profile_.stacks[i] >= profile_.frames.size())
        fail("stack entry", i, "names a frame that is not there");
    }
  }
  void contexts() const {
    size_t first = 0;
    for (size_t i = 0; i < profile_.contexts.size(); ++i) {
      const P::Context& context = profile_.contexts[i];
      if (context.first != first || context.frames > profile_.stacks.size() - first ||
          context.frames > P::kMostFrames)
        fail("context", i, "has a stack that does not follow the one before, or is too deep");
      first += context.frames;
      zero(context.flags & ~P::kCut, "context", i);
      zero(context.reserved, "context", i);
      if (context.least_size > context.most_size || context.most_size > P::kMostSize)
        fail("context", i, "has sizes that cannot be");
      for (const int fate : {P::kFreed, P::kCensored}) {
        for (const int clock : {P::kMilliseconds, P::kBytes}) {
          const Tally& tally = context.tallies[fate][clock];
          const bool fits = tally.count == context.estimates[fate].samples && tally.least <= tally.most &&
                            (tally.count != 0 || tally == Tally{}) &&
                            tally.most <= (clock == P::kBytes ? P::kMostClock : P::kMostTime) &&
                            tally.sum.value() >= tally.most;
          if (!fits) fail("context", i, "has a tally that contradicts itself");
        }
      }
    }
    if (first != profile_.stacks.size()) fail("stacks", first, "belong to no context");
  }
  void cells() const {
    std::uint64_t before = 0;
    for (size_t i = 0; i < profile_.cells.size(); ++i) {
      const P::Cell& cell = profile_.cells[i];
      if (cell.context >= profile_.contexts.size() || cell.bucket >= log_buckets::kCount ||
          cell.clock > P::kBytes || cell.fate > P::kCensored || cell.estimate.samples == 0)
        fail("cell", i, "is of no context, clock, fate or bucket, or is empty");
      const std::uint64_t key = cell_key(cell);
      if (i > 0 && key <= before) fail("cell", i, "does not follow the one before");
      before = key;
    }
  }
  void runs() const {
    size_t pairs = 0, points = 0;
    for (size_t i = 0; i < profile_.runs.size(); ++i) {
      const P::Run& run = profile_.runs[i];
      text(run.program, "run", i);
      if (run.milliseconds > P::kMostTime || run.allocated > P::kMostClock || run.every == 0 ||
          run.every > P::kMostSize || !(run.priority >= 0) || run.priority > 1e300)
        fail("run", i, "has figures that cannot be");
      if (i > 0) {
        const P::Run& last = profile_.runs[i - 1];
        if (last.id[0] > run.id[0] || (last.id[0] == run.id[0] && last.id[1] >= run.id[1]))
          fail("run", i, "does not follow the one before");
      }
      if (run.pairs > profile_.totals.most_pairs || run.pairs > profile_.pairs.size() - pairs)
        fail("run", i, "has more pairs than there are, or than the totals allow");
      if (run.points > P::kMostPoints || run.points > profile_.points.size() - points)
        fail("run", i, "has more points than there are, or than a run may have");
      for (size_t k = 0; k < run.pairs; ++k) pair(run, pairs + k, k > 0);
      for (size_t k = 0; k < run.points; ++k) point(run, points + k, k > 0);
      pairs += run.pairs;
      points += run.points;
    }
    if (pairs != profile_.pairs.size()) fail("pair", pairs, "is of no run");
    if (points != profile_.points.size()) fail("point", points, "is of no run");
  }
  void pair(const P::Run& run, size_t i, bool follows) const {
    const P::Pair& pair = profile_.pairs[i];
    zero(pair.flags & ~P::kNeverFreed, "pair", i);
    if (pair.context >= profile_.contexts.size() || pair.size == 0 || pair.size > P::kMostSize ||
        pair.weight == 0 || pair.begin > pair.end || pair.end > run.milliseconds ||
        pair.begin_clock > pair.end_clock || pair.end_clock > run.allocated)
      fail("pair", i, "is of no context, or outside its run");
    if (follows && profile_.pairs[i - 1].priority > pair.priority)
      fail("pair", i, "does not follow the one before");
  }
  void point(const P::Run& run, size_t i, bool follows) const {
    const P::Point& point = profile_.points[i];
    if (point.time > run.milliseconds || point.clock > run.allocated || point.decayed < point.live)
      fail("point", i, "is outside its run");
    if (follows) {
      const P::Point& last = profile_.points[i - 1];
      if (last.time > point.time || last.clock > point.clock)
        fail("point", i, "does not follow the one before");
    }
  }
  static std::uint64_t cell_key(const P::Cell& cell) noexcept {
    return std::uint64_t{cell.context} << 24 | std::uint64_t{cell.fate} << 20 |
           std::uint64_t{cell.clock} << 16 | cell.bucket;
  }

  const LifetimeProfile& profile_;
  const std::string& name_;
};

void read_section(std::string_view bytes, const Section&, std::string& to, const std::string&) {
  to.assign(bytes);
}
template <class T>
void read_section(std::string_view bytes, const Section& section, std::vector<T>& to,
                  const std::string& name) {
  if (bytes.size() % sizeof(T) != 0 || section.count != bytes.size() / sizeof(T))
    throw Error(name + ": section " + std::to_string(section.kind) +
                " does not hold as many elements as it says");
  to.resize(section.count);
  if (!bytes.empty()) std::memcpy(to.data(), bytes.data(), bytes.size());
}

}  // namespace

std::string write_lifetimes(const LifetimeProfile& profile) {
  std::string bytes(sizeof(Header) + kSections * sizeof(Section), '\0');
  std::vector<Section> table;
  const auto append = [&](std::uint32_t kind, const void* data, size_t size, size_t count) {
    table.push_back({kind, 0, bytes.size(), size, count});
    if (size > 0) bytes.append(static_cast<const char*>(data), size);
    bytes.resize(align_up(bytes.size(), 8), '\0');
  };
  for_each_array(profile, [&](std::uint32_t kind, const auto& array) {
    append(kind, array.data(), array.size() * sizeof(array[0]), array.size());
  });
  append(kTotals, &profile.totals, sizeof profile.totals, 1);
  Header header;
  header.sections = kSections;
  header.file_size = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, table.data(), table.size() * sizeof(Section));
  header.checksum = checksum(bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

LifetimeProfile read_lifetimes(std::string_view bytes, const std::string& name) {
  const auto fail = [&](const std::string& why) -> void { throw Error(name + ": " + why); };
  Header header;
  if (bytes.size() < sizeof header) fail("too short for a lifetime profile");
  std::memcpy(&header, bytes.data(), sizeof header);
  // The files of memoir differ in the last letter of their first eight.
  if (header.magic << 8 == kMagic << 8 && header.magic != kMagic)
    fail("not a lifetime profile, but another file of memoir's");
  if (header.magic != kMagic) fail("not a lifetime profile");
  if (header.version != kVersion)
    fail("version " + std::to_string(header.version) + " of the format; this memoir reads version 1");
  if (header.byte_order != kByteOrder || header.header_size != sizeof header)
    fail("a header that cannot be: the file is damaged");
  if (header.file_size != bytes.size())
    fail("has " + std::to_string(bytes.size()) + " bytes instead of " + std::to_string(header.file_size) +
         ": it was cut, or something was added");
  if (header.checksum != checksum(bytes)) fail("the checksum is wrong: the file is damaged");
  for (const std::uint64_t word : header.reserved) {
    if (word != 0) fail("a reserved field of the header is not 0");
  }
  LifetimeProfile profile;
  std::uint32_t known = 0;
  SectionReader table(bytes, sizeof header, header.sections);
  while (table.next()) {
    const Section& section = table.section();
    const bool is_known = section.kind <= kSections;
    if (!is_known && section.flags == kOptionalSection) continue;
    if (!is_known)
      fail("section " + std::to_string(section.kind) + " is of a kind that this memoir does not know");
    if (section.flags != 0) fail("section " + std::to_string(section.kind) + " has unknown flags");
    ++known;
    if (section.kind == kTotals) {
      if (section.size != sizeof profile.totals || section.count != 1) fail("totals of another size");
      std::memcpy(&profile.totals, table.content().data(), sizeof profile.totals);
      continue;
    }
    for_each_array(profile, [&](std::uint32_t kind, auto& array) {
      if (kind == section.kind) read_section(table.content(), section, array, name);
    });
    if (section.kind == kText && section.count != section.size)
      fail("a text section that contradicts itself");
  }
  if (table.fault() != nullptr) fail(table.fault());
  if (known != kSections) fail("a section is missing");
  Checker(profile, name).check();
  return profile;
}

}  // namespace memoir
