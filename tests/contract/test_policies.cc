// SPDX-License-Identifier: Apache-2.0
//
// The same allocator on a trace and on the device: every policy that both have, with its defaults and with
// each of its settings changed, over programs of several streams and pools. The list is policy/policies.h's,
// so that a new policy is here by itself.
//
// Left out, because a simulation stands in for something there that a device has:
//   finalizer_delay, finalizer_young  the model of a program's collector; on a device the program has its own
//   granule below the device's         a device cannot, and says so
//   device_memory below the program's  PyTorch's areas run out of addresses, of which a device has more
//   addresses, per_process_memory_fraction without a cap: a simulation does not know the device's size
//   a program's real queues            see both_substrates.h
#include <algorithm>
#include <list>
#include <random>
#include <string>
#include <vector>

#include "contract/both_substrates.h"
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/plan/files/plan_file.h"
#include "memoir/simulate/plan_run.h"
#include "support/gpu_trace_events.h"
#include "trace/temporary.h"

namespace memoir::contract {

namespace {

constexpr std::uint8_t kAlignmentLog2 = 8;  // what the runtime asks for

/// Events of a made-up program, one each millisecond.
class Story {
 public:
  void allocate(ObjectId object, Size size, StreamId stream, std::uint32_t pool) {
    Event event;
    event.kind = EventKind::kAllocate;
    event.object = object;
    event.size = size;
    event.alignment_log2 = kAlignmentLog2;
    event.stream = stream;
    add(event);
    if (pool == 0) return;
    event = {};
    event.kind = EventKind::kAddress;
    event.object = object;
    event.size = 4096 * object;
    event.thread = pool;
    add(event);
  }
  void free(ObjectId object) {
    Event event;
    event.kind = EventKind::kFree;
    event.object = object;
    add(event);
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  void add(Event event) {
    event.time = 1 + 1'000'000 * events_.size();
    events_.push_back(event);
  }
  std::vector<Event> events_;
};

Size random_size(std::mt19937_64& random) {
  const Size most[] = {4 * kKiB, 300 * kKiB, 900 * kKiB, 6 * kMiB, 30 * kMiB};
  return 1 + random() % most[random() % 5];
}

/// Several streams, phases in which more and less lives, and private pools.
std::vector<Event> random_program(unsigned seed, int steps, StreamId streams, std::uint32_t pools) {
  std::mt19937_64 random(seed);
  Story story;
  std::vector<ObjectId> live;
  ObjectId next = 1;
  story.allocate(next, kMiB, 0, 0);
  live.push_back(next++);
  for (int i = 0; i < steps; ++i) {
    const bool grows = random() % 100 < (i / 120 % 2 == 0 ? 70u : 30u);
    if (live.empty() || grows) {
      const auto pool = static_cast<std::uint32_t>(random() % 8 < 7 ? 0 : random() % (pools + 1));
      story.allocate(next, random_size(random), static_cast<StreamId>(random() % streams), pool);
      live.push_back(next++);
    } else {
      std::swap(live[random() % live.size()], live.back());
      story.free(live.back());
      live.pop_back();
    }
  }
  return story.events();
}

/// The same round again and again, and then another.
std::vector<Event> loop_program(unsigned seed, int rounds, int round_steps, StreamId streams) {
  Story story;
  ObjectId next = 1;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed + (round >= rounds - 2));
    std::vector<ObjectId> live;
    for (int i = 0; i < round_steps; ++i) {
      if (live.empty() || random() % 100 < 55) {
        const Size size = random_size(random);
        story.allocate(next, size, static_cast<StreamId>(random() % streams), 0);
        live.push_back(next++);
      } else {
        std::swap(live[random() % live.size()], live.back());
        story.free(live.back());
        live.pop_back();
      }
    }
    for (const ObjectId object : live) story.free(object);
  }
  return story.events();
}

std::vector<Event> recorded_program(const std::string& name) {
  std::vector<Event> events =
      gpu_trace::events_of(gpu_trace::read(MEMOIR_TEST_DATA "/gpu/" + name + ".trace"));
  for (Event& event : events) event.alignment_log2 = kAlignmentLog2;
  return events;
}

/// Values to try for a setting: some are impossible, which both shall say.
std::vector<std::string> values_of(const SettingInfo& setting) {
  if (setting.unit == "bytes") return {"512", "64KiB", "4MiB", "96MiB"};
  if (setting.unit == "count") return {"1", "3", "100000"};
  if (setting.unit == "times") return {"1", "3"};
  if (setting.unit == "share") return {"0", "0.3"};
  if (setting.unit == "seconds") return {"0.05", "1000"};
  if (setting.unit == "flag") return {"true", "false"};
  return {};
}

bool is_left_out(const SettingInfo& setting, const std::string& value) {
  if (setting.name.starts_with("finalizer_")) return true;
  if (setting.name == "device_memory") return parse_bytes(value, "here") < 96 * kMiB;
  return setting.name == "granule" && parse_bytes(value, "here") < 2 * kMiB;
}

bool needs_cap(const std::string& text) {
  return text.find("addresses=") != text.npos || text.find("per_process_memory_fraction=") != text.npos ||
         text.find("part=") != text.npos;
}

std::vector<PolicyInfo> on_both() {
  std::vector<PolicyInfo> infos = policies(Substrate::kSimulation);
  std::erase_if(infos, [](const PolicyInfo& info) { return !info.is_on(Substrate::kDevice); });
  return infos;
}

std::vector<std::string> texts_of(const PolicyInfo& info) {
  std::vector<std::string> texts{info.name};
  for (const SettingInfo& setting : info.settings) {
    for (const std::string& value : values_of(setting)) {
      if (!is_left_out(setting, value)) texts.push_back(info.name + "," + setting.name + "=" + value);
    }
  }
  if (info.traits.mapped) texts.push_back(info.name + ",granule=4MiB,piece=16MiB");
  if (info.traits.pytorch) {
    texts.push_back(info.name + ":max_split_size_mb:20,roundup_power2_divisions:4");
    texts.push_back(info.name + ":large_segment_size_mb:32");
  }
  return texts;
}

/// A guided device has to be told its plan.
class PlanOf {
 public:
  explicit PlanOf(const std::vector<Event>& events) {
    const std::string bytes = write_plan(plan_run(events, 0, 512));
    write_file(path_, std::as_bytes(std::span(bytes)));
  }
  std::string text(const std::string& policy, const PolicyInfo& info) const {
    return info.name == "guided" ? policy + ",plan=[" + path_ + "]" : policy;
  }

 private:
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "x.plan";
};

struct Program {
  Program(std::string its_name, const std::vector<Event>& events)
      : name(std::move(its_name)), workload(events), plan(events) {}
  std::string name;
  Workload workload;
  PlanOf plan;
};

}  // namespace

TEST_CASE("every policy with every setting takes from a device what it takes in a simulation") {
  std::list<Program> programs;
  programs.emplace_back("random", random_program(1, 500, 3, 0));
  programs.emplace_back("loop", loop_program(2, 7, 150, 2));
  for (const PolicyInfo& info : on_both()) {
    int made = 0;
    for (const std::string& text : texts_of(info)) {
      for (const Program& program : programs) {
        for (const Size cap : {kNoCap, align_up(program.workload.peak_live() / 10 * 11, 2 * kMiB)}) {
          if (cap == kNoCap && needs_cap(text)) continue;
          CAPTURE(text);
          CAPTURE(program.name);
          CAPTURE(cap);
          const BothResult result = run_on_both(program.workload, program.plan.text(text, info), cap);
          CAPTURE(result.simulation);
          CAPTURE(result.device);
          CHECK(result.difference == "");
          made += result.made;
        }
      }
    }
    CHECK(made > 0);
  }
}

TEST_CASE("private pools take from a device what they take in a simulation") {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const Program program("pools", random_program(seed, 600, 2, 2));
    REQUIRE(program.workload.pools() == 3);
    for (const PolicyInfo& info : on_both()) {
      CAPTURE(info.name);
      CAPTURE(seed);
      const BothResult result = run_on_both(program.workload, program.plan.text(info.name, info), kNoCap);
      CHECK(result.made);
      CHECK(result.difference == "");
    }
  }
}

TEST_CASE("recorded programs take from a device what they take in a simulation") {
  for (const char* const name : {"silmont_mem.d0", "silmont_fwd_fp32_128.d0", "magma27_cs336.d0"}) {
    const Program program(name, recorded_program(name));
    for (const PolicyInfo& info : on_both()) {
      CAPTURE(name);
      CAPTURE(info.name);
      const BothResult result = run_on_both(program.workload, program.plan.text(info.name, info), kNoCap);
      CHECK(result.made);
      CHECK(result.difference == "");
      CHECK(result.refused == 0);
      if (info.name == "guided") CHECK(result.planned == program.workload.objects().size());
    }
  }
}

TEST_CASE("a program on two streams whose loop is planned is the same on both") {
  const Program program("llama", recorded_program("llama7b_lora_zero3_2stream"));
  for (const char* const policy : {"memoir", "span", "pytorch"}) {
    CAPTURE(policy);
    const BothResult result = run_on_both(program.workload, policy, kNoCap);
    CHECK(result.made);
    CHECK(result.difference == "");
  }
}

}  // namespace memoir::contract
