// SPDX-License-Identifier: Apache-2.0
#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "memoir/simulate/simulated_heap.h"
#include "memoir/simulate/simulation.h"
#include "memoir/simulate/workload.h"
#include "simulate/events.h"

namespace memoir {

namespace {

struct ExampleOptions {
  Size largest = 32 * kMiB;
  Size count = 5;
  double share = 0.5;
  bool strict = false;

  static constexpr auto fields() {
    return std::tuple{
        OptionField{"largest", &ExampleOptions::largest, Unit::kBytes, "larger ones go elsewhere"},
        OptionField{"count", &ExampleOptions::count, Unit::kCount, "how many"},
        OptionField{"share", &ExampleOptions::share, Unit::kShare, "of all"},
        OptionField{"strict", &ExampleOptions::strict, Unit::kFlag, "refuse instead of growing"}};
  }
};

/// What the error says, or "" when there is none.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Policy choose(std::string_view text) { return choose_policy(text, Substrate::kSimulation); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("bytes are read with their units, and only when they are whole") {
  CHECK(parse_bytes("512", "x") == 512);
  CHECK(parse_bytes("64KiB", "x") == 64 * kKiB);
  CHECK(parse_bytes("20MiB", "x") == 20 * kMiB);
  CHECK(parse_bytes("1.5GiB", "x") == 3 * kGiB / 2);
  CHECK(parse_bytes("2 m", "x") == 2 * kMiB);
  CHECK(parse_bytes("0", "x") == 0);
  for (const char* const wrong : {"", "MiB", "-1", "1e3", "12cats", "1.3", "0.3KiB", "1.2.3",
                                  "99999999999999999999", "9000000000GiB", "1 2", "0x10"}) {
    CAPTURE(wrong);
    CHECK(has(message_of([&] { parse_bytes(wrong, "here"); }), "here: "));
  }
  for (const Size size : {Size{0}, Size{1}, Size{512}, kKiB, 3 * kMiB, 3 * kMiB + 1, 7 * kGiB}) {
    CHECK(parse_bytes(bytes_setting(size), "x") == size);
  }
}

TEST_CASE("settings are split at commas, but not in brackets") {
  const auto settings = split_settings(" a=1, strict ,divisions=[256:1,512:2],b = two ");
  REQUIRE(settings.size() == 4);
  CHECK(settings[0].key == "a");
  CHECK(settings[0].value == "1");
  CHECK(settings[1].key == "strict");
  CHECK(settings[1].value == "true");
  CHECK(settings[2].value == "[256:1,512:2]");
  CHECK(settings[3].key == "b");
  CHECK(settings[3].value == "two");
  CHECK(split_settings("").empty());
  CHECK(has(message_of([] { split_settings("=5"); }), "no name"));
}

TEST_CASE("settings reach the fields of an options struct, and the table tells what there is") {
  auto settings = split_settings("largest=64KiB,count=7,share=0.25,strict=yes,other=1");
  ExampleOptions options;
  take_settings(options, settings, "example");
  CHECK(options.largest == 64 * kKiB);
  CHECK(options.count == 7);
  CHECK(options.share == 0.25);
  CHECK(options.strict);
  REQUIRE(settings.size() == 1);
  CHECK(settings[0].key == "other");

  const auto infos = settings_of<ExampleOptions>();
  REQUIRE(infos.size() == 4);
  CHECK(infos[0].unit == "bytes");
  CHECK(infos[0].initial == "32MiB");
  CHECK(infos[1].unit == "count");
  CHECK(infos[1].initial == "5");
  CHECK(infos[2].unit == "share");
  CHECK(infos[2].initial == "0.5");
  CHECK(infos[3].unit == "flag");
  CHECK(infos[3].initial == "false");

  for (const char* const wrong :
       {"largest=big", "count=-1", "count=1KiB", "share=nan", "share=-1", "strict=ture"}) {
    CAPTURE(wrong);
    auto bad = split_settings(wrong);
    CHECK(has(message_of([&] { take_settings(options, bad, "example"); }), "policy 'example', "));
  }
  auto bad = split_settings("strict=ture");
  CHECK(has(message_of([&] { take_settings(options, bad, "example"); }), "did you mean 'true'?"));
}

TEST_CASE("a policy or setting that does not exist is answered with one that does") {
  CHECK(has(message_of([] { choose("spam"); }), "there is no policy 'spam'; did you mean 'span'?"));
  CHECK(has(message_of([] { choose("zzzzzzzz"); }), "(policies: "));
  CHECK(has(message_of([] { choose("span,granul=4KiB"); }), "did you mean 'granule'?"));
  CHECK(has(message_of([] { choose("span,granule=4KiB,granule=8KiB"); }), "set twice"));
  const Workload workload(run::Events().allocate(1, 100).all());
  CHECK(has(message_of([&] { make_policy("span,granule=3KiB", workload); }), "power of two"));
  CHECK(message_of([] { choose("span,granule=64KiB"); }) == "");
}

TEST_CASE("PyTorch's settings come as memoir's, or as PyTorch's text") {
  const Workload workload(run::Events().allocate(1, 12 * kMiB).all());
  const auto reserved = [&](const char* text) {
    const auto made = make_policy(text, workload);
    CHECK(made->heap().allocate({3 * kMiB + 1, 1}) != kNoOffset);
    return made->reserved();
  };
  CHECK(reserved("pytorch") == 20 * kMiB);
  CHECK(reserved("pytorch,large_segment_size=32MiB") == 32 * kMiB);
  CHECK(reserved("pytorch:large_segment_size_mb:40") == 40 * kMiB);
  CHECK(reserved("expandable:large_segment_size_mb:12") == 12 * kMiB);
  CHECK(reserved("pytorch:expandable_segments:True,large_segment_size_mb:16") == 16 * kMiB);
  CHECK(has(message_of([] { choose("pytorch:max_splt_size_mb:64"); }),
            "did you mean 'max_split_size_mb:...'?"));
  CHECK(
      has(message_of([&] { make_policy("pytorch,per_process_memory_fraction=0.5", workload); }), "of what?"));
  CHECK(message_of([&] { make_policy("pytorch,per_process_memory_fraction=0.5", workload, kGiB); }) == "");
}

TEST_CASE("every policy serves a small workload, counts what it takes, and gives back what trim() may") {
  run::Events events;
  for (ObjectId i = 1; i <= 20; ++i) events.allocate(i, i * 100'000);
  for (ObjectId i = 1; i <= 20; ++i) events.free(i);
  const Workload workload(events.all());
  for (const PolicyInfo& info : policies(Substrate::kSimulation)) {
    CAPTURE(info.name);
    CHECK_FALSE(info.what.empty());
    const auto made = make_policy(info.name, workload);
    std::vector<Offset> offsets;
    for (const Workload::Object& object : workload.objects()) {
      offsets.push_back(made->allocate(object));
      REQUIRE(offsets.back() != kNoOffset);
    }
    CHECK(made->heap().live() == workload.peak_live());
    CHECK(made->reserved() >= workload.peak_live());
    CHECK(made->calls().all() > 0);
    for (const Offset offset : offsets) CHECK(made->heap().free(offset));
    CHECK(made->heap().live() == 0);
  }
}

TEST_CASE("simulated segments cost what a device charges, up to the cap") {
  SimSegments segments(8 * kMiB);
  CHECK(Segments::cost(1) == 512);
  CHECK(Segments::cost(kMiB - 1) == kMiB);
  CHECK(Segments::cost(kMiB) == 2 * kMiB);
  CHECK(Segments::cost(2 * kMiB + 1) == 4 * kMiB);
  const Offset a = segments.take(kMiB), b = segments.take(3 * kMiB), c = segments.take(100);
  REQUIRE(c != kNoOffset);
  CHECK(a % kMiB == 0);
  CHECK(b != a);
  CHECK(segments.held() == 6 * kMiB + 512);
  CHECK(segments.take(kMiB) == kNoOffset);  // 2 MiB, and 512 bytes are gone
  segments.give_back({c, 100});
  CHECK(segments.take(kMiB) != kNoOffset);
  CHECK(segments.take(1) == kNoOffset);
  CHECK(segments.take(0) == kNoOffset);
  CHECK(segments.take(~Size{0}) == kNoOffset);
  segments.give_back({b, 3 * kMiB});
  CHECK(segments.held() == 4 * kMiB);
  CHECK(segments.calls().takes == 4);
  CHECK(segments.calls().give_backs == 2);
  CHECK(segments.calls().refusals == 2);
}

TEST_CASE("a pool that no memory can hold is refused before its bookkeeping is made") {
  const Workload workload(run::Events().allocate(1, 512).free(1).all());
  for (const char* const text :
       {"static_tensors,pool=4294967296GiB", "static_tensors,pool=524288GiB", "static_tensors,pool=257MiB"}) {
    CAPTURE(text);
    CHECK(has(message_of([&] { (void)simulate(workload, text, {.cap = 256 * kMiB}); }), "not fit where"));
  }
}

}  // namespace memoir
