// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/base/error.h"
#include "predict/small_model.h"

namespace memoir {

namespace {

using Names = std::vector<std::string_view>;

LifetimeModel::Prediction ask(const LifetimeModel& model, const Names& names,
                              const LifetimeModel::Query& query = {}) {
  return model.predict(ModelStack(names, model.key()), query);
}

SmallModel three_stacks() {
  SmallModel model;
  model.stacks[{"parse", "read_file", "serve", "main"}] = SmallModel::answer(0, 0.1);
  model.stacks[{"insert", "table_add", "serve", "main"}] = SmallModel::answer(7, 0.9);
  model.stacks[{"insert", "table_add", "load", "main"}] = SmallModel::answer(6, 0.5);
  return model;
}

/// All that is to say of the stacks of `model`, of which none takes two ways from one frame to another.
std::vector<SmallModel::Call> calls_of(const SmallModel& model) {
  std::map<std::pair<std::string, std::string>, std::pair<size_t, std::string>> shortest;
  for (const auto& [stack, ignored] : model.stacks)
    for (size_t i = 0; i < stack.size(); ++i)
      for (size_t j = i + 1; j < stack.size() && j - i <= model_format::kMostBetween + 1; ++j) {
        auto& way = shortest.try_emplace({stack[i], stack[j]}, j - i, stack[i + 1]).first->second;
        if (j - i < way.first) way = {j - i, stack[i + 1]};
      }
  std::vector<SmallModel::Call> calls;
  for (const auto& [pair, way] : shortest) calls.push_back({pair.first, pair.second, way.second});
  return calls;
}

SmallModel golden_model(unsigned seed) {
  SmallModel model = three_stacks();
  model.addresses = {{0x1000, 64, 0, 0}, {0x1000, 80, 0, 1}};
  model.has_words = seed != 1;
  model.network = seed == 0 || seed >= 3 ? 0 : seed;
  model.settings.words_in_near = 0.25f;
  if (seed == 4) model.calls = calls_of(model);
  if (seed == 3) {
    model.settings.flags = model_format::kPrivate;
    model.key = 0xfeedfacecafebeef;
  }
  return model;
}

}  // namespace

TEST_CASE("model: the golden file of the format is read for ever") {
  std::ifstream file(MEMOIR_TEST_DATA "/small.v1.model", std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const AlignedBytes bytes(content);
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  CHECK(content == golden_model(0).bytes());
  CHECK(model.addresses().size() == 2);
  CHECK(ask(model, {"insert", "table_add", "load", "main"}).wall[6] > 0.9f);
}

TEST_CASE("model: another file of memoir's is said to be that") {
  std::string content = golden_model(0).bytes();
  const auto refusal = [&] {
    const AlignedBytes bytes(content);
    LifetimeModel model;
    const char* const why = model.open(bytes.view());
    return std::string(why == nullptr ? "" : why);
  };
  for (const char letter : {'T', 'P', 'L'}) {
    content[7] = letter;
    CHECK(refusal() == "it is not a model, but another file of memoir's");
  }
  content[7] = 'M';
  CHECK(refusal().empty());
  content[1] = 'n';
  CHECK(refusal() == "it is not a model");
}

TEST_CASE("write the golden file of the model format" * doctest::skip()) {
  std::ofstream(MEMOIR_TEST_DATA "/small.v1.model", std::ios::binary) << golden_model(0).bytes();
  for (unsigned seed = 0; seed < 5; ++seed)
    std::ofstream(MEMOIR_TEST_DATA "/../../fuzz/seeds/model_fuzz/" + std::to_string(seed) + ".model",
                  std::ios::binary)
        << golden_model(seed).bytes();
}

TEST_CASE("model: exact names, with unknown frames dropped and repeats merged") {
  const AlignedBytes bytes(three_stacks().bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  const auto exact = ask(model, {"insert", "table_add", "serve", "main"});
  CHECK(exact.stage == LifetimeModel::kByNames);
  CHECK(exact.matched == 4);
  CHECK(exact.wall[7] == 1);
  CHECK(exact.long_lived == doctest::Approx(0.9).epsilon(1e-3));
  CHECK(model.calls_long(exact));
  const auto more = ask(model, {"operator new(unsigned long)", "insert(int)", "never_seen", "table_add",
                                "table_add", "", "serve", "main"});
  CHECK(more.stage == LifetimeModel::kByNames);
  CHECK(more.wall[7] == 1);
  CHECK(ask(model, {"parse", "read_file", "serve", "main"}).wall[0] == 1);
}

TEST_CASE("model: near stacks, with two frames passed over") {
  SmallModel maker = three_stacks();
  const AlignedBytes bytes(maker.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  const auto cut = ask(model, {"insert", "table_add", "serve"});
  CHECK(cut.stage == LifetimeModel::kByNear);
  CHECK(cut.matched == 3);
  CHECK(cut.wall[7] == 1);
  const auto missing = ask(model, {"insert", "serve", "main"});  // table_add was inlined
  CHECK(missing.stage == LifetimeModel::kByNear);
  CHECK(missing.matched == 3);
  CHECK(missing.wall[7] == 1);
  const auto extra = ask(model, {"parse", "insert", "table_add", "load", "main"});
  CHECK(extra.stage == LifetimeModel::kByNear);
  CHECK(extra.matched == 4);
  CHECK(extra.wall[6] == 1);
  CHECK(ask(model, {"insert", "table_add"}).stage == LifetimeModel::kAbstains);
  CHECK(ask(model, {"other", "program", "altogether"}).stage == LifetimeModel::kAbstains);

  maker.settings.least_share = 0.5f;  // three of eight named frames are not enough
  const AlignedBytes strict(maker.bytes());
  REQUIRE(model.open(strict.view()) == nullptr);
  CHECK(ask(model, {"insert", "table_add", "serve"}).stage == LifetimeModel::kByNear);
  CHECK(ask(model, {"insert", "table_add", "serve", "a", "b", "c", "d", "e"}).stage ==
        LifetimeModel::kAbstains);
}

TEST_CASE("model: stacks of another program that end in known code get no answer") {
  SmallModel small = three_stacks();
  small.outer = {"serve", "load"};
  const AlignedBytes bytes(small.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  CHECK(ask(model, {"insert", "table_add", "serve", "main"}).stage == LifetimeModel::kByNames);
  CHECK(ask(model, {"insert", "table_add", "main"}).stage == LifetimeModel::kAbstains);
  // One of the outermost eight, or of the outer third, of the frames that have names.
  Names deep{"insert", "table_add", "serve"};
  for (const char* const name : {"a", "b", "c", "d", "e", "f", "g"}) deep.push_back(name);
  CHECK(ask(model, deep).stage == LifetimeModel::kByNear);
  deep.push_back("h");
  CHECK(ask(model, deep).stage == LifetimeModel::kAbstains);
  std::vector<std::string> more;
  for (int i = 0; i < 100; ++i) more.push_back("f" + std::to_string(i));
  Names deeper(more.begin(), more.begin() + 30);
  deeper.insert(deeper.end(), {"insert", "table_add", "serve"});
  deeper.insert(deeper.end(), more.begin() + 30, more.begin() + 45);
  CHECK(ask(model, deeper).stage == LifetimeModel::kByNear);

  auto sections = small.sections();
  for (const std::string& wrong : {std::string("\1\0\1\0", 4), std::string("\xff\0", 2)}) {
    sections["outer"] = wrong;
    CHECK_THROWS_AS(small.bytes(sections), Error);
  }
}

TEST_CASE("model: one stack's objects are told apart by their size") {
  SmallModel small = three_stacks();
  small.stacks[{"insert", "table_add", "serve", "main", "size 64"}] = SmallModel::answer(2, 0.25);
  small.stacks[{"insert", "table_add", "serve", "main", "size 1024"}] = SmallModel::answer(5, 0.75);
  const Names stack{"insert", "table_add", "serve", "main"};
  const Names inlined{"insert", "inlined", "table_add", "serve", "main"};
  const auto long_of = [&](const Names& names, Size size) {
    const AlignedBytes bytes(small.bytes());
    LifetimeModel model;
    REQUIRE(model.open(bytes.view()) == nullptr);
    return ask(model, names, {.size = size}).long_lived;
  };
  const float all = long_of(stack, 0);
  for (const Size size : {64, 1100}) CHECK(long_of(stack, size) == all);  // without the flag
  small.settings.flags = model_format::kSizes;
  for (const Names& names : {stack, inlined}) {
    for (const Size size : {64, 79}) CHECK(long_of(names, size) == doctest::Approx(0.25).epsilon(1e-3));
    for (const Size size : {1024, 1279}) CHECK(long_of(names, size) == doctest::Approx(0.75).epsilon(1e-3));
    for (const Size size : {0, 1, 63, 80, 1280, 1 << 30}) CHECK(long_of(names, size) == all);
  }
  CHECK(SizeName(79).view() == "size 64");
  CHECK(SizeName(~Size{0}).view() == "size 16140901064495857664");
  for (const Size size : {1, 7, 8, 9, 10, 96}) {
    const Size begin = SizeName::begin_of(size);
    CHECK(begin <= size);
    CHECK(4 * (size - begin) <= size);
    CHECK(SizeName::begin_of(begin) == begin);
  }
}

TEST_CASE("model: of a program that was profiled less of a stack has to be known, of another one more") {
  using Program = LifetimeModel::Program;
  SmallModel small = three_stacks();
  small.outer = {"main"};
  small.programs = {"server", "other"};
  small.has_words = true;
  small.long_bias = 20;
  small.settings.least_tokens = 3;
  small.settings.least_share = 0.3f;
  const AlignedBytes bytes(small.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  CHECK(model.program("/usr/bin/server-2.1") == Program::kSame);
  CHECK(model.program("server") == Program::kSame);
  CHECK(model.program("/opt/server/client") == Program::kOther);
  CHECK(model.program("") == Program::kUnknown);
  CHECK(model.program("/opt/14") == Program::kUnknown);
  const auto stage = [&](const Names& names, Program program) {
    return ask(model, names, {.program = program}).stage;
  };
  const Names words{"Table"};  // one word, where three are needed
  CHECK(stage(words, Program::kSame) == LifetimeModel::kByWords);
  CHECK(stage(words, Program::kUnknown) == LifetimeModel::kAbstains);
  CHECK(stage(words, Program::kOther) == LifetimeModel::kAbstains);
  for (const Program program : {Program::kSame, Program::kUnknown})
    CHECK(stage({"a", "b"}, program) ==  // no words at all
          (program == Program::kSame ? LifetimeModel::kByWords : LifetimeModel::kAbstains));
  small.long_bias = 0;
  const AlignedBytes unsure(small.bytes());
  REQUIRE(model.open(unsure.view()) == nullptr);
  CHECK(stage({"a", "b"}, Program::kSame) == LifetimeModel::kAbstains);
  const Names near{"insert", "table_add", "a", "b", "main"};  // a half and more matches
  CHECK(stage(near, Program::kUnknown) == LifetimeModel::kByNear);
  CHECK(stage({"insert", "table_add", "a", "b", "c", "main"}, Program::kOther) == LifetimeModel::kAbstains);
  CHECK(stage({"insert", "table_add", "serve", "main"}, Program::kOther) == LifetimeModel::kByNames);

  auto sections = small.sections();
  sections["programs"] = std::string(16, '\1');
  CHECK_THROWS_AS(small.bytes(sections), Error);
}

TEST_CASE("model: hot contexts are called long when it is surer") {
  SmallModel small = three_stacks();
  small.stacks[{"insert", "table_add", "serve", "main"}] = SmallModel::answer(7, 0.7, 200);
  small.stacks[{"insert", "table_add", "load", "main"}] = SmallModel::answer(7, 0.7, 199);
  small.settings.hot_samples = 200;
  small.settings.least_long_hot = 0.8f;
  const AlignedBytes bytes(small.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  CHECK_FALSE(model.calls_long(ask(model, {"insert", "table_add", "serve", "main"})));
  CHECK(model.calls_long(ask(model, {"insert", "table_add", "load", "main"})));
}

TEST_CASE("model: names that are remembered are those that were looked up") {
  const AlignedBytes bytes(three_stacks().bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  const auto cache = std::make_unique<NameCache>();
  std::mt19937 random(4);
  const Names known{"parse", "_Znwm",       "read_file", "serve", "main",
                    "",      "std::f<int>", "insert",    "load",  "_ZN4DBox7get_itEv"};
  for (int i = 0; i < 300; ++i) {
    Names names;
    for (unsigned count = random() % 12; count > 0; --count) names.push_back(known[random() % known.size()]);
    const ModelStack plain(names, 0), cached(names, 0, cache.get());
    REQUIRE(plain.skipped() == cached.skipped());
    REQUIRE(
        std::equal(plain.names().begin(), plain.names().end(), cached.names().begin(), cached.names().end()));
    for (size_t frame = 0; frame < plain.word_frames(); ++frame)
      REQUIRE(std::equal(plain.words(frame).begin(), plain.words(frame).end(), cached.words(frame).begin(),
                         cached.words(frame).end()));
  }
}

TEST_CASE("model: addresses, at their height or at any") {
  SmallModel maker = three_stacks();
  maker.addresses = {{0x1000, 0, 0, 0}, {0x1000, 64, 0, 0}, {0x2000, 128, 0, 0}};
  const AlignedBytes bytes(maker.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  const std::uint32_t module =
      model.module_of({reinterpret_cast<const unsigned char*>(maker.build_id.data()), maker.build_id.size()});
  CHECK(module == 0);
  CHECK(model.module_of({reinterpret_cast<const unsigned char*>("x"), 1}) == LifetimeModel::kNoModule);
  const auto at = [&](std::uint64_t offset, std::uint64_t height, std::uint32_t in = 0) {
    return ask(model, {}, {.module = in, .offset = offset, .height = height}).stage;
  };
  CHECK(at(0x1000, 64) == LifetimeModel::kByAddress);
  CHECK(at(0x1000, 80) == LifetimeModel::kByAddress);
  CHECK(at(0x2000, 128) == LifetimeModel::kByAddress);
  CHECK(at(0x2000, 136) == LifetimeModel::kAbstains);
  CHECK(at(0x1008, 64) == LifetimeModel::kAbstains);
  CHECK(at(0x100001000, 64) == LifetimeModel::kAbstains);
  CHECK(at(0x1000, 64, LifetimeModel::kNoModule) == LifetimeModel::kAbstains);
  CHECK(model.predict(model.addresses()[2]).stage == LifetimeModel::kByAddress);
}

TEST_CASE("model: words answer where names do not, if enough of them are known") {
  SmallModel maker = three_stacks();
  maker.has_words = true;
  maker.long_bias = 20;
  const AlignedBytes bytes(maker.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  const auto renamed = ask(model, {"InsertTable", "ReadTable", "TableAdd"}, {.size = 100});
  CHECK(renamed.stage == LifetimeModel::kByWords);
  CHECK(renamed.coverage == 1);
  CHECK(renamed.long_lived > 0.99f);
  double sum = 0;
  for (const float share : renamed.wall) sum += share;
  CHECK(sum == doctest::Approx(1).epsilon(1e-5));
  CHECK(ask(model, {"InsertTable", "ReadTable", "TableAdd"}, {.stages = 7}).stage ==
        LifetimeModel::kAbstains);
  CHECK(ask(model, {"zlib::Deflate", "png::Encode", "Table"}).stage == LifetimeModel::kAbstains);
  // A size is one row more.
  const auto sized = ask(model, {"InsertTable", "ReadTable", "TableAdd"}, {.size = 1 << 20});
  CHECK(sized.wall[0] != renamed.wall[0]);
}

TEST_CASE("model: a stack with new names is of another build, one without was not seen") {
  SmallModel maker = three_stacks();
  maker.has_words = true;
  maker.long_bias = -20;  // words say short
  maker.passed_over = {"main_loop"};
  maker.settings.words_in_near = 1;
  const Names unseen{"insert", "parse", "table_add", "serve", "main"},
      passed{"insert", "parse", "table_add", "serve", "main_loop", "main"},
      renamed{"insert", "begin", "table_add", "parse", "serve", "main"};
  const auto ask_with = [&](std::uint32_t flags, const Names& names) {
    maker.settings.flags = flags;
    const AlignedBytes bytes(maker.bytes());
    LifetimeModel model;
    REQUIRE(model.open(bytes.view()) == nullptr);
    const auto found = ask(model, names);
    CHECK(found.stage == LifetimeModel::kByNear);
    CHECK(found.whole);
    return found;
  };
  for (const Names& names : {unseen, passed}) {
    CHECK_FALSE(ask_with(model_format::kOtherBuild, names).other_build);
    CHECK(ask_with(model_format::kOtherBuild, names).long_lived == doctest::Approx(0).epsilon(1e-3));
    CHECK(ask_with(0, names).long_lived == doctest::Approx(0.9).epsilon(1e-3));
  }
  CHECK(ask_with(model_format::kOtherBuild, renamed).other_build);
  CHECK(ask_with(model_format::kOtherBuild, renamed).long_lived == doctest::Approx(0.9).epsilon(1e-3));
}

TEST_CASE("model: a stack that lacks frames of the profiled build gets them back") {
  SmallModel maker;
  maker.stacks[{"grab", "f1", "f2", "f3", "f4", "keep", "serve", "main"}] = SmallModel::answer(7, 0.9);
  maker.stacks[{"grab", "f1", "f2", "g3", "drop", "serve", "main"}] = SmallModel::answer(0, 0.1);
  const auto ask_with = [&](const std::vector<SmallModel::Call>& calls, const Names& names) {
    maker.calls = calls;
    const AlignedBytes bytes(maker.bytes());
    LifetimeModel model;
    REQUIRE(model.open(bytes.view()) == nullptr);
    return ask(model, names);
  };
  const auto calls = calls_of(maker);
  const Names inlined{"grab", "keep", "serve", "main"};  // four frames fewer
  const auto found = ask_with(calls, inlined);
  CHECK(found.stage == LifetimeModel::kByNear);
  CHECK(found.whole);
  CHECK(found.other_build);
  CHECK(found.matched == 4);
  CHECK(found.wall[7] == 1);
  CHECK_FALSE(ask_with({}, inlined).whole);
  // A frame that this build has and the other one inlined, alone, innermost, and with a gap elsewhere.
  for (const Names& more : {Names{"grab", "f1", "f2", "f3", "f4", "drop", "keep", "serve", "main"},
                            Names{"drop", "grab", "f1", "f2", "f3", "f4", "keep", "serve", "main"},
                            Names{"grab", "f4", "drop", "keep", "serve", "main"}}) {
    CAPTURE(more.size());
    const auto said = ask_with(calls, more);
    CHECK(said.whole);
    CHECK(said.other_build);
    CHECK(said.wall[7] == 1);
  }
  // Calls that were never seen are of code that never ran; and what stands there already is left alone.
  CHECK_FALSE(ask_with(calls, {"grab", "serve", "drop", "keep", "main"}).other_build);
  CHECK_FALSE(ask_with(calls, {"grab", "f1", "f2", "g3", "drop", "serve"}).other_build);
  const auto exact = ask_with(calls, {"grab", "f1", "f2", "g3", "drop", "serve", "main"});
  CHECK(exact.stage == LifetimeModel::kByNames);
  CHECK_FALSE(exact.other_build);
  // A file from a stranger: ways that lead round in a circle, and that end nowhere.
  for (const SmallModel::Call& wrong : {SmallModel::Call{"f1", "keep", "f2"}, {"f1", "keep", "grab"}}) {
    std::vector<SmallModel::Call> bad{{"grab", "keep", "f1"}, {"f2", "keep", "f1"}, wrong};
    CHECK_FALSE(ask_with(bad, inlined).other_build);
  }
  auto sections = maker.sections();
  for (const std::string& wrong : {std::string("\1\0\2\0\xff\0", 6), std::string("\xff\0\1\0\1\0", 6),
                                   std::string("\1\0\2\0\2\0\1\0\2\0\2\0", 12)}) {
    sections["calls"] = wrong;
    CHECK_THROWS_AS(maker.bytes(sections), Error);
  }
}

TEST_CASE("model: blends are means") {
  SmallModel maker = three_stacks();
  maker.has_words = true;
  maker.long_bias = -20;
  const Names stack = {"insert", "table_add", "serve", "main"};
  const auto long_lived = [&](float weight) {
    maker.settings.words_in_names = weight;
    const AlignedBytes bytes(maker.bytes());
    LifetimeModel model;
    REQUIRE(model.open(bytes.view()) == nullptr);
    return ask(model, stack).long_lived;
  };
  CHECK(long_lived(0) == doctest::Approx(0.9).epsilon(1e-3));
  CHECK(long_lived(0.5f) == doctest::Approx(0.45).epsilon(1e-3));
  CHECK(long_lived(1) == doctest::Approx(0).epsilon(1e-3));
}

TEST_CASE("model: calibration goes by stage and samples") {
  SmallModel maker = three_stacks();
  auto sections = maker.sections();
  model_format::Calibration calibration;
  std::memcpy(&calibration, sections["calibration"].data(), sizeof calibration);
  for (float& knot : calibration.stages[LifetimeModel::kByNames].knots[2]) knot = 0.25f;  // 16 to 63 samples
  sections["calibration"].assign(reinterpret_cast<const char*>(&calibration), sizeof calibration);
  const AlignedBytes bytes(maker.bytes(sections));
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  const Names stack = {"insert", "table_add", "serve", "main"};
  CHECK(ask(model, stack).long_lived == 0.25f);
  CHECK(ask(model, stack, {.calibrated = false}).long_lived == doctest::Approx(0.9).epsilon(1e-3));
  CHECK(ask(model, {"insert", "table_add", "serve"}).long_lived == doctest::Approx(0.9).epsilon(1e-3));
}

TEST_CASE("model: a private one answers the same, and has other hashes") {
  SmallModel maker = three_stacks();
  const auto open_names = maker.sections()["names"];
  maker.key = 0x123456789abcdef;
  maker.settings.flags = model_format::kPrivate;
  CHECK(maker.sections()["names"] != open_names);
  const AlignedBytes bytes(maker.bytes());
  LifetimeModel model;
  REQUIRE(model.open(bytes.view()) == nullptr);
  CHECK(ask(model, {"insert", "table_add", "serve", "main"}).wall[7] == 1);
  auto sections = maker.sections();
  sections["text"] = std::string("secret\0", 7);
  CHECK_THROWS_WITH_AS(maker.bytes(sections), doctest::Contains("private"), Error);
}

TEST_CASE("model: networks are as plain loops have them") {
  for (const std::uint32_t kind : {1u, 2u}) {
    SmallModel maker = three_stacks();
    maker.network = kind;
    const AlignedBytes bytes(maker.bytes());
    LifetimeModel model;
    REQUIRE(model.open(bytes.view()) == nullptr);
    const SequenceNetwork& network = model.network();
    REQUIRE(network);
    std::uint32_t tokens[SequenceNetwork::kMostTokens];
    const Names names = {"malloc", "insert", "unknown_name", "main"};
    const size_t count = network.tokenize(names, 0, tokens);
    REQUIRE(count == 8);  // begin, insert, |, unknown, name, |, main, |
    CHECK(tokens[0] == SequenceNetwork::kBegin);
    CHECK(tokens[2] == SequenceNetwork::kSeparator);
    CHECK(tokens[3] == SequenceNetwork::kUnknown);
    float outputs[model_format::kOutputs];
    network.run({tokens, count}, outputs);

    // The same in double, from the file's own bytes.
    const std::string_view section = model.section(model_format::kNetwork);
    const size_t t = network.head().tokens, e = 3, h = 5;
    const float* at = reinterpret_cast<const float*>(section.data() + 32 + ((t - 3) * 4 + 7) / 8 * 8);
    const auto take = [&](size_t floats) {
      const float* const begin = at;
      at += floats;
      return begin;
    };
    const float* const embedding = take(t * e);
    const auto row = [](const float* matrix, size_t i, const std::vector<double>& x) {
      double sum = 0;
      for (size_t j = 0; j < x.size(); ++j) sum += matrix[i * x.size() + j] * x[j];
      return sum;
    };
    const auto gate = [](double x) { return 1 / (1 + std::exp(-x)); };
    std::vector<double> state(h), cell(h);
    const float *a = take(kind == 1 ? 4 * h * e : h * e), *b = take(kind == 1 ? 4 * h * h : h),
                *c = take(kind == 1 ? 4 * h : h * e), *d = take(kind == 1 ? 4 * h : h);
    for (size_t step = 0; step < count; ++step) {
      std::vector<double> x;
      for (size_t j = 0; j < e; ++j) x.push_back(embedding[tokens[step] * e + j]);
      std::vector<double> next = state;
      for (size_t i = 0; i < h; ++i) {
        if (kind == 1) {
          const auto sum = [&](size_t k) {
            return row(a, k * h + i, x) + c[k * h + i] + row(b, k * h + i, state) + d[k * h + i];
          };
          cell[i] = gate(sum(1)) * cell[i] + gate(sum(0)) * std::tanh(sum(2));
          next[i] = gate(sum(3)) * std::tanh(cell[i]);
        } else {
          const double z = gate(row(a, i, x) + b[i]);
          next[i] = (1 - z) * state[i] + z * (row(c, i, x) + d[i]);
        }
      }
      state = next;
    }
    const float *out = take(9 * h), *bias = take(9);
    for (size_t i = 0; i < 9; ++i)
      CHECK(outputs[i] == doctest::Approx(row(out, i, state) + bias[i]).epsilon(1e-5));

    const auto answer = ask(model, {"insert", "insert_serve"});
    CHECK(answer.stage == LifetimeModel::kByNetwork);
  }
}

TEST_CASE("model: whatever is cut off or turned is refused, or answers") {
  SmallModel maker = three_stacks();
  maker.has_words = true;
  maker.network = 1;
  maker.addresses = {{0x1000, 64, 0, 0}};
  const std::string good = maker.bytes();
  LifetimeModel model;
  for (size_t size = 0; size < good.size(); size += 1 + size / 16) {
    const AlignedBytes cut(std::string_view(good).substr(0, size));
    CHECK(model.open(cut.view()) != nullptr);
  }
  std::mt19937 random(1);
  unsigned accepted = 0;
  for (unsigned round = 0; round < 3000; ++round) {
    std::string turned = good;
    for (unsigned i = 0; i < 1 + round % 3; ++i)
      turned[64 + random() % (turned.size() - 64)] ^= static_cast<char>(1u << random() % 8);
    {
      const AlignedBytes damaged(turned);
      CHECK((turned == good || model.open(damaged.view()) != nullptr));  // the checksum
    }
    const std::uint64_t checksum = model_format::checksum(turned);
    std::memcpy(turned.data() + offsetof(model_format::Header, checksum), &checksum, sizeof checksum);
    const AlignedBytes hostile(turned);
    if (model.open(hostile.view()) != nullptr) continue;
    ++accepted;
    for (const Names& names : {Names{"insert", "table_add", "serve", "main"},
                               Names{"insert", "x", "serve", "main"}, Names{"parse_table", "read", "main"}}) {
      const auto answer = ask(model, names, {.size = 64, .module = 0, .offset = 0x1000});
      CHECK(answer.long_lived >= 0);
      CHECK(answer.long_lived <= 1);
    }
  }
  CHECK(accepted > 100);  // of weights and answers any byte is a value
}

TEST_CASE("model: a writer is told what is wrong") {
  SmallModel maker = three_stacks();
  auto sections = maker.sections();
  sections["names"].pop_back();
  CHECK_THROWS_WITH_AS(maker.bytes(sections), doctest::Contains("'names'"), Error);
  sections = maker.sections();
  sections.erase("nodes");
  CHECK_THROWS_WITH_AS(maker.bytes(sections), doctest::Contains("missing"), Error);
  sections = maker.sections();
  std::swap(sections["names"][0], sections["names"][8]);
  sections["settings"][8] = 0;  // least_frames
  CHECK_THROWS_AS(maker.bytes(sections), Error);
}

}  // namespace memoir
