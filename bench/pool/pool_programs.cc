// SPDX-License-Identifier: Apache-2.0
#include "pool_programs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

#include "memoir/base/error.h"

namespace memoir::programs {

namespace {

/// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double part() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// From low to high, both included.
  std::uint64_t whole(std::uint64_t low, std::uint64_t high) { return low + next() % (high - low + 1); }
  bool happens(double probability) { return part() < probability; }
  /// About normal: the sum of twelve.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += part();
    return sum;
  }
  Size log_normal(double median, double sigma, Size least, Size most) {
    return std::clamp(static_cast<Size>(median * std::exp2(sigma * normal())), least, most);
  }

 private:
  std::uint64_t state_;
};

class Program {
 public:
  explicit Program(std::uint64_t seed) : chance(seed) {}

  ObjectId allocate(Size size, StreamId stream = 0) {
    add(EventKind::kAllocate, next_, std::max<Size>(size, 1), stream);
    return next_++;
  }
  void free(ObjectId object) { add(EventKind::kFree, object, 0, 0); }
  /// Any of the objects, which is then not in the list any more.
  ObjectId take(std::vector<ObjectId>& objects) {
    std::swap(objects[chance.whole(0, objects.size() - 1)], objects.back());
    const ObjectId object = objects.back();
    objects.pop_back();
    return object;
  }
  void free_all(std::vector<ObjectId>& objects) {
    for (const ObjectId object : objects) free(object);
    objects.clear();
  }

  Chance chance;
  std::vector<Event> events;

 private:
  void add(EventKind kind, ObjectId object, Size size, StreamId stream) {
    Event event;
    event.kind = kind;
    event.object = object;
    event.size = size;
    event.stream = stream;
    event.time = events.size();
    events.push_back(event);
  }

  ObjectId next_ = 1;
};

void phases(Program& p) {
  std::vector<ObjectId> live;
  const Size target = p.chance.whole(2, 5) * kGiB;  // bytes that live in each phase
  std::array<Size, 8> classes{};
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = Size{48 * kKiB} << i;
  for (size_t i = classes.size(); i-- > 1;) std::swap(classes[i], classes[p.chance.whole(0, i)]);
  for (const Size base : classes) {
    const size_t most = std::clamp<size_t>(target / (base * 3 / 2), 16, 1500);
    for (int i = 0; i < 3000; ++i) {
      while (live.size() >= most) p.free(p.take(live));
      live.push_back(p.allocate(p.chance.whole(base, 2 * base)));
    }
    while (live.size() > 12) p.free(p.take(live));  // these stay for a while
  }
  p.free_all(live);
}

void survivors(Program& p) {
  std::vector<ObjectId> large, small, kept;
  const double stays = 0.02 + 0.06 * p.chance.part();
  for (int i = 0; i < 9000; ++i) {
    if (large.size() > p.chance.whole(20, 60)) p.free(p.take(large));
    large.push_back(p.allocate(p.chance.log_normal(24 * kMiB, 1.2, 4 * kMiB, 160 * kMiB)));
    for (std::uint64_t n = p.chance.whole(0, 2); n-- > 0;) {
      const ObjectId object = p.allocate(p.chance.log_normal(48 * kKiB, 2, 512, kMiB));
      (p.chance.happens(stays) ? kept : small).push_back(object);
    }
    while (small.size() > 24) p.free(p.take(small));
  }
  p.free_all(large);
  p.free_all(small);
  p.free_all(kept);
}

void comb(Program& p) {
  std::vector<ObjectId> live;
  for (int round = 0; round < 6; ++round) {
    const Size tooth = p.chance.whole(5, 60) * 128 * kKiB;
    const size_t count = 2 * kGiB / tooth;
    std::vector<ObjectId> teeth;
    for (size_t i = 0; i < count; ++i) teeth.push_back(p.allocate(tooth));
    std::vector<ObjectId> left;
    for (size_t i = 0; i < teeth.size(); ++i) {
      if (i % 2 == 0) {
        p.free(teeth[i]);
      } else {
        left.push_back(teeth[i]);
      }
    }
    const Size larger = tooth * p.chance.whole(9, 28) / 8;
    std::vector<ObjectId> asked;
    for (Size sum = 0; sum + larger <= count / 2 * tooth; sum += larger) asked.push_back(p.allocate(larger));
    // Some teeth stay into the next round.
    for (size_t keep = left.size() / 16; left.size() > keep;) p.free(p.take(left));
    p.free_all(asked);
    live.insert(live.end(), left.begin(), left.end());
    while (live.size() > 64) p.free(p.take(live));
  }
  p.free_all(live);
}

void paged(Program& p) {
  const Size page = p.chance.whole(1, 12) * 96 * kKiB;
  struct Sequence {
    std::vector<ObjectId> pages;
    StreamId stream;
    std::uint64_t length;
  };
  std::vector<Sequence> sequences;
  size_t pages = 0;
  const size_t most = 3 * kGiB / page;
  for (int step = 0; step < 3000; ++step) {
    if (sequences.size() < 48 && p.chance.happens(0.3)) {
      sequences.push_back({{}, static_cast<StreamId>(p.chance.whole(0, 1)), p.chance.whole(20, 200)});
      for (std::uint64_t n = p.chance.whole(4, 60); n-- > 0; ++pages)
        sequences.back().pages.push_back(p.allocate(page, sequences.back().stream));
    }
    std::array<ObjectId, 2> scratch{};
    for (StreamId stream = 0; stream < 2; ++stream)
      scratch[stream] = p.allocate(p.chance.whole(2048, 99'000) * 512, stream);
    for (size_t i = 0; i < sequences.size();) {
      Sequence& it = sequences[i];
      if (p.chance.happens(0.15)) {
        it.pages.push_back(p.allocate(page, it.stream));
        ++pages;
      }
      if (it.length-- == 0) {
        pages -= it.pages.size();
        p.free_all(it.pages);
        std::swap(it, sequences.back());
        sequences.pop_back();
      } else {
        ++i;
      }
    }
    while (pages > most) {  // a part of a sequence is evicted
      Sequence& it = sequences[p.chance.whole(0, sequences.size() - 1)];
      for (size_t n = it.pages.size() / 2; n-- > 0; --pages) p.free(p.take(it.pages));
      if (it.pages.size() == 1) {
        p.free_all(it.pages);
        --pages;
      }
    }
    for (const ObjectId object : scratch) p.free(object);
  }
  for (Sequence& it : sequences) p.free_all(it.pages);
}

void kvcat(Program& p) {
  const std::uint64_t layers = p.chance.whole(8, 24);
  const Size token = p.chance.whole(2, 16) * kKiB;
  struct Request {
    std::vector<ObjectId> caches;
    std::uint64_t tokens, left;
  };
  std::vector<Request> requests;
  for (int step = 0; step < 700; ++step) {
    if (requests.size() < 10 && p.chance.happens(0.15)) {
      Request request{{}, p.chance.whole(30, 1500), p.chance.whole(10, 90)};
      for (std::uint64_t i = 0; i < layers; ++i) request.caches.push_back(p.allocate(token * request.tokens));
      requests.push_back(std::move(request));
    }
    for (size_t i = 0; i < requests.size();) {
      Request& it = requests[i];
      if (it.left-- == 0) {
        p.free_all(it.caches);
        std::swap(it, requests.back());
        requests.pop_back();
        continue;
      }
      it.tokens += 1;
      for (ObjectId& cache : it.caches) {
        const ObjectId scratch = p.allocate(token * 4);
        const ObjectId longer = p.allocate(token * it.tokens);
        p.free(cache);
        p.free(scratch);
        cache = longer;
      }
      ++i;
    }
  }
  for (Request& it : requests) p.free_all(it.caches);
}

void four_streams(Program& p) {
  std::array<std::deque<ObjectId>, 4> held;
  for (int i = 0; i < 4; ++i) {
    for (std::uint64_t n = p.chance.whole(4, 12); n-- > 0;)
      p.allocate(p.chance.log_normal(16 * kMiB, 1.5, kMiB, 128 * kMiB), static_cast<StreamId>(i));
  }
  for (int step = 0; step < 2500; ++step) {
    const auto first = static_cast<StreamId>(p.chance.whole(0, 3));
    ObjectId given = p.allocate(p.chance.log_normal(6 * kMiB, 1.5, 64 * kKiB, 64 * kMiB), first);
    for (std::uint64_t hop = 1; hop <= p.chance.whole(1, 3); ++hop) {
      const auto stream = static_cast<StreamId>((first + hop) % 4);
      const ObjectId scratch = p.allocate(p.chance.log_normal(2 * kMiB, 2, 4 * kKiB, 48 * kMiB), stream);
      const ObjectId result = p.allocate(p.chance.log_normal(6 * kMiB, 1.5, 64 * kKiB, 64 * kMiB), stream);
      p.free(given);
      p.free(scratch);
      given = result;
    }
    auto& queue = held[first];
    queue.push_back(given);
    while (queue.size() > p.chance.whole(4, 40)) {
      p.free(queue.front());
      queue.pop_front();
    }
  }
}

void experts(Program& p) {
  const std::uint64_t layers = p.chance.whole(6, 12), count = 16;
  const Size row = p.chance.whole(4, 24) * kKiB;
  for (std::uint64_t i = 0; i < layers * 4; ++i) p.allocate(p.chance.whole(4, 40) * kMiB + 512 * i);
  for (int step = 0; step < 24; ++step) {
    std::vector<ObjectId> kept;
    const std::uint64_t batch = p.chance.whole(1500, 3000);
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      std::vector<double> shares(count);
      double sum = 0;
      for (double& share : shares) sum += share = std::exp2(1.3 * p.chance.normal());
      std::vector<ObjectId> scratch;
      for (const double share : shares) {
        const Size rows = 1 + static_cast<Size>(static_cast<double>(batch) * share / sum);
        scratch.push_back(p.allocate(rows * row * 2));
        kept.push_back(p.allocate(rows * row));
        kept.push_back(p.allocate(rows * 64));
      }
      p.free_all(scratch);
    }
    while (!kept.empty()) {
      const ObjectId gradient = p.allocate(p.chance.whole(1, 200) * row);
      p.free(kept.back());
      kept.pop_back();
      p.free(gradient);
    }
  }
}

void serving(Program& p) {
  const Size chunk = p.chance.whole(1, 8) * 512 * kKiB;
  for (int i = 0; i < 60; ++i) p.allocate(p.chance.log_normal(40 * kMiB, 1, 512, 200 * kMiB));
  struct Decode {
    std::vector<ObjectId> chunks;
    std::uint64_t left;
  };
  std::vector<Decode> decodes;
  for (int step = 0; step < 4000; ++step) {
    if (decodes.size() < 32 && p.chance.happens(0.2)) {  // a prefill
      const std::uint64_t tokens = p.chance.log_normal(600, 1.5, 16, 8192);
      std::vector<ObjectId> scratch;
      for (int i = 0; i < 4; ++i) scratch.push_back(p.allocate(tokens * p.chance.whole(4, 28) * kKiB));
      Decode decode{{}, p.chance.whole(20, 600)};
      for (std::uint64_t n = 1 + tokens / 128; n-- > 0;) decode.chunks.push_back(p.allocate(chunk));
      p.free_all(scratch);
      decodes.push_back(std::move(decode));
    }
    const ObjectId logits = p.allocate((1 + decodes.size()) * 32000 * 4);
    for (size_t i = 0; i < decodes.size();) {
      if (p.chance.happens(1.0 / 16)) decodes[i].chunks.push_back(p.allocate(chunk));
      if (decodes[i].left-- == 0) {
        p.free_all(decodes[i].chunks);
        std::swap(decodes[i], decodes.back());
        decodes.pop_back();
      } else {
        ++i;
      }
    }
    p.free(logits);
  }
}

void quantise(Program& p) {
  std::vector<std::pair<ObjectId, Size>> weights;
  for (int model = 0; model < 3; ++model) {
    const std::uint64_t layers = p.chance.whole(24, 48);
    const Size width = p.chance.whole(10, 40) * 128;
    for (std::uint64_t i = 0; i < layers; ++i) {
      for (const Size size : {3 * width * width * 2, width * width * 2, 8 * width * width * 2, width * 4})
        weights.emplace_back(p.allocate(size), size);
    }
    for (auto& [weight, size] : weights) {
      const ObjectId absolute = p.allocate(size), scales = p.allocate(size / 64 + 4);
      const ObjectId packed = p.allocate(size / 4 + 1);
      p.free(absolute);
      p.free(weight);
      weight = packed;
      size = size / 4 + 1;
      if (p.chance.happens(0.3)) p.free(scales);  // the others stay
    }
    std::vector<ObjectId> activations;
    for (int i = 0; i < 1500; ++i) {
      activations.push_back(p.allocate(p.chance.log_normal(3 * kMiB, 1.5, 512, 64 * kMiB)));
      while (activations.size() > 12) p.free(p.take(activations));
    }
    p.free_all(activations);
    std::vector<std::pair<ObjectId, Size>> kept;
    for (const auto& it : weights) {
      if (p.chance.happens(0.25)) {
        kept.push_back(it);
      } else {
        p.free(it.first);
      }
    }
    weights = std::move(kept);
  }
}

void beams(Program& p) {
  const std::uint64_t width = p.chance.whole(4, 12);
  for (int search = 0; search < 14; ++search) {
    std::vector<std::pair<ObjectId, Size>> beam;
    Size size = p.chance.whole(4, 40) * kMiB;
    for (std::uint64_t i = 0; i < width; ++i) beam.emplace_back(p.allocate(size), size);
    for (std::uint64_t step = p.chance.whole(40, 90); step-- > 0;) {
      size += p.chance.whole(16, 256) * kKiB;
      std::vector<ObjectId> fresh;
      for (std::uint64_t i = 0; i < width * 3 / 2; ++i) fresh.push_back(p.allocate(size));
      const ObjectId scores = p.allocate(width * 50000 * 4);
      for (auto& [old, bytes] : beam) p.free(old);
      beam.clear();
      while (fresh.size() > width) p.free(p.take(fresh));
      p.free(scores);
      for (const ObjectId object : fresh) beam.emplace_back(object, size);
    }
    const bool keeps_one = p.chance.happens(0.7);
    for (size_t i = keeps_one; i < beam.size(); ++i) p.free(beam[i].first);
  }
}

void lru(Program& p) {
  std::vector<ObjectId> live;
  std::vector<Size> sizes{0};  // by object
  const Size fill = p.chance.whole(1, 6) * kGiB;
  const double median = static_cast<double>(p.chance.whole(1, 12) * kMiB);
  Size held = 0;
  for (int i = 0; i < 14000; ++i) {
    const Size size = p.chance.log_normal(median, 1.6, 512, 256 * kMiB);
    while (held + size > fill) {
      const ObjectId gone = p.take(live);
      held -= sizes[gone];
      p.free(gone);
    }
    live.push_back(p.allocate(size));
    sizes.push_back(size);
    held += size;
  }
}

void graphs(Program& p) {
  std::deque<ObjectId> features;
  for (int step = 0; step < 500; ++step) {
    std::vector<ObjectId> kept;
    Size nodes = p.chance.log_normal(2000, 1.2, 100, 60000);
    for (int layer = 0; layer < 4; ++layer) {
      const Size edges = nodes * p.chance.whole(3, 12);
      kept.push_back(p.allocate(edges * 16));
      const ObjectId gathered = p.allocate(edges * 256);
      kept.push_back(p.allocate(nodes * 1024));
      p.free(gathered);
      nodes = nodes * p.chance.whole(10, 25) / 10;
    }
    while (!kept.empty()) {
      const ObjectId gradient = p.allocate(p.chance.log_normal(4 * kMiB, 1, 4 * kKiB, 64 * kMiB));
      p.free(kept.back());
      kept.pop_back();
      p.free(gradient);
    }
    if (p.chance.happens(0.5))
      features.push_back(p.allocate(p.chance.log_normal(3 * kMiB, 2, 512, 96 * kMiB)));
    while (features.size() > 80) {
      p.free(features.front());
      features.pop_front();
    }
  }
}

void buckets(Program& p) {
  std::vector<Size> resolutions;
  for (int i = 0; i < 6; ++i) resolutions.push_back(p.chance.whole(24, 96) * 8);
  for (int i = 0; i < 40; ++i) p.allocate(p.chance.log_normal(20 * kMiB, 1.2, 4 * kKiB, 128 * kMiB));
  std::deque<ObjectId> results;
  for (int image = 0; image < 60; ++image) {
    const Size side = resolutions[p.chance.whole(0, resolutions.size() - 1)];
    std::vector<ObjectId> skips;
    for (int down = 0; down < 2; ++down) {
      for (Size level = 1; level <= 8; level *= 2) {
        const Size area = (side / level) * (side / level), channels = 16 * level;
        for (int block = 0; block < 3; ++block) {
          const ObjectId scratch = p.allocate(area * channels * 18), input = p.allocate(area * channels * 4);
          p.free(scratch);
          if (down == 0) {
            skips.push_back(input);
          } else {
            p.free(input);
            p.free(skips.back());
            skips.pop_back();
          }
        }
      }
    }
    results.push_back(p.allocate(side * side * 12));
    while (results.size() > p.chance.whole(3, 20)) {
      p.free(results.front());
      results.pop_front();
    }
  }
}

void tuning(Program& p) {
  std::vector<ObjectId> cached;
  for (int layer = 0; layer < 250; ++layer) {
    p.allocate(p.chance.log_normal(2 * kMiB, 2, 512, 64 * kMiB));
    const ObjectId input = p.allocate(p.chance.log_normal(12 * kMiB, 1, kMiB, 128 * kMiB));
    for (std::uint64_t trial = p.chance.whole(3, 9); trial-- > 0;) {
      const ObjectId output = p.allocate(p.chance.log_normal(12 * kMiB, 0.5, kMiB, 96 * kMiB));
      const ObjectId workspace = p.allocate(p.chance.log_normal(32 * kMiB, 2, 512, 700 * kMiB));
      p.free(workspace);
      p.free(output);
      if (p.chance.happens(0.3))
        cached.push_back(p.allocate(p.chance.log_normal(128 * kKiB, 2, 512, 4 * kMiB)));
    }
    p.free(input);
    while (cached.size() > 200) p.free(p.take(cached));
  }
}

constexpr std::pair<std::string_view, void (*)(Program&)> kPrograms[] = {
    {"phases", phases},     {"survivors", survivors},
    {"comb", comb},         {"paged", paged},
    {"kvcat", kvcat},       {"four_streams", four_streams},
    {"experts", experts},   {"serving", serving},
    {"quantise", quantise}, {"beams", beams},
    {"lru", lru},           {"graphs", graphs},
    {"buckets", buckets},   {"tuning", tuning}};

}  // namespace

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const auto& [name, function] : kPrograms) all.push_back(name);
  return all;
}

std::vector<Event> make(std::string_view name, std::uint64_t seed) {
  for (const auto& [known, function] : kPrograms) {
    if (known != name) continue;
    Program program(seed);
    function(program);
    return std::move(program.events);
  }
  throw Error("no program '" + std::string(name) + "'");
}

}  // namespace memoir::programs
