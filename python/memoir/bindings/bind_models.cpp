// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "bind.h"
#include "columns.h"
#include "memoir/base/error.h"
#include "memoir/predict/model/fit_linear.h"
#include "memoir/predict/model/lifetime_model.h"
#include "memoir/predict/model/plain_name.h"
#include "memoir/predict/model/write_model.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

using Hashes = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Places = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// A list of str as views; the strings must outlive them.
struct Names {
  std::vector<std::string_view> views;

  explicit Names(nb::handle list) {
    for (const nb::handle one : list) {
      Py_ssize_t size = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(one.ptr(), &size);
      if (text == nullptr) {
        PyErr_Clear();
        throw Error("a name is not text that UTF-8 can hold");
      }
      views.emplace_back(text, static_cast<size_t>(size));
    }
  }
};

std::uint32_t section_kind(std::string_view name) {
  for (std::uint32_t kind = 1; kind <= model_format::kKinds; ++kind)
    if (model_format::kSectionRows[kind - 1].name == name) return kind;
  throw Error("a model has no section '" + std::string(name) +
              "'; docs/reference/formats-model.md lists them");
}

unsigned log2_of_rows(std::uint64_t rows) {
  for (unsigned bits = 8; bits <= 20; ++bits)
    if (rows == std::uint64_t{1} << bits) return bits;
  throw Error("rows are a power of two from 256 to 1,048,576");
}

/// A model with its bytes.
class HeldModel {
 public:
  HeldModel(std::string_view bytes, const std::string& name)
      : bytes_((bytes.size() + 7) / 8), size_(bytes.size()) {
    std::memcpy(bytes_.data(), bytes.data(), bytes.size());
    if (const char* const why = model_.open({reinterpret_cast<const char*>(bytes_.data()), size_}))
      throw Error(name + ": " + why);
  }
  const LifetimeModel& model() const { return model_; }
  NameCache& names() const { return *names_; }  // under the interpreter's lock

 private:
  std::vector<std::uint64_t> bytes_;
  size_t size_;
  LifetimeModel model_;
  std::unique_ptr<NameCache> names_ = std::make_unique<NameCache>();
};

nb::object predict(const HeldModel& held, nb::list names, Size size, nb::list frames, std::uint64_t height,
                   std::uint32_t stages, bool calibrated, std::string_view program) {
  const LifetimeModel& model = held.model();
  const Names given(names);
  const ModelStack stack(given.views, model.key(), &held.names());
  LifetimeModel::Query query;
  query.size = size;
  query.height = height;
  query.stages = stages;
  query.calibrated = calibrated;
  query.program = model.program(program);
  if (stack.skipped() < nb::len(frames)) {
    const auto frame = nb::cast<nb::tuple>(frames[stack.skipped()]);
    const auto id = nb::cast<std::string>(frame[0]);
    unsigned char bytes[32] = {};
    size_t count = 0;
    for (; 2 * count + 1 < id.size() && count < sizeof bytes; ++count)
      bytes[count] = static_cast<unsigned char>(std::stoul(id.substr(2 * count, 2), nullptr, 16));
    query.module = model.module_of({bytes, count});
    query.offset = nb::cast<std::uint64_t>(frame[1]);
  }
  const LifetimeModel::Prediction found = model.predict(stack, query);
  if (found.stage == LifetimeModel::kAbstains) return nb::none();
  nb::dict result;
  nb::list wall;
  for (const float share : found.wall) wall.append(share);
  result["stage"] = static_cast<int>(found.stage);
  result["wall"] = wall;
  result["long"] = found.long_lived;
  result["samples"] = found.samples;
  result["matched"] = found.matched;
  result["known"] = found.known;
  result["whole"] = found.whole;
  result["other_build"] = found.other_build;
  result["coverage"] = found.coverage;
  result["called_long"] = model.calls_long(found);
  return result;
}

/// Of the processor, that this thread has had.
double thread_seconds() noexcept {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

nb::dict predict_many(const HeldModel& held, nb::list stacks, nb::list sizes, std::uint32_t stages,
                      bool calibrated, nb::list programs) {
  const size_t count = nb::len(stacks);
  if (nb::len(sizes) != count) throw Error("as many sizes as stacks");
  if (nb::len(programs) != count && nb::len(programs) != 0)
    throw Error("as many programs as stacks, or none");
  std::vector<std::int8_t> stage;
  std::vector<std::uint8_t> called_long, whole, other_build;
  std::vector<float> wall, long_lived, coverage;
  std::vector<std::uint16_t> samples, matched, known;
  std::vector<Names> names;
  std::vector<LifetimeModel::Query> queries;
  for (size_t i = 0; i < count; ++i) {
    names.emplace_back(stacks[i]);
    LifetimeModel::Query& query = queries.emplace_back();
    query.size = nb::cast<Size>(sizes[i]);
    query.stages = stages;
    query.calibrated = calibrated;
    if (nb::len(programs) != 0) query.program = held.model().program(nb::cast<std::string_view>(programs[i]));
  }
  const double begin = thread_seconds();
  for (size_t i = 0; i < count; ++i) {
    const ModelStack stack(names[i].views, held.model().key(), &held.names());
    const LifetimeModel::Prediction found = held.model().predict(stack, queries[i]);
    stage.push_back(found.stage);
    wall.insert(wall.end(), std::begin(found.wall), std::end(found.wall));
    long_lived.push_back(found.long_lived);
    samples.push_back(found.samples);
    matched.push_back(found.matched);
    known.push_back(found.known);
    whole.push_back(found.whole);
    other_build.push_back(found.other_build);
    coverage.push_back(found.coverage);
    called_long.push_back(held.model().calls_long(found));
  }
  const double seconds = thread_seconds() - begin;
  nb::dict result;
  result["seconds"] = seconds;
  result["stage"] = to_array(std::move(stage));
  result["wall"] = nb::cast(to_array(std::move(wall))).attr("reshape")(count, 8);
  result["long"] = to_array(std::move(long_lived));
  result["samples"] = to_array(std::move(samples));
  result["matched"] = to_array(std::move(matched));
  result["known"] = to_array(std::move(known));
  result["whole"] = to_array(std::move(whole));
  result["other_build"] = to_array(std::move(other_build));
  result["coverage"] = to_array(std::move(coverage));
  result["called_long"] = to_array(std::move(called_long));
  return result;
}

nb::tuple stack_features(nb::list stacks, nb::list sizes, std::uint64_t rows, std::uint64_t key) {
  const unsigned bits = log2_of_rows(rows);
  if (nb::len(sizes) != nb::len(stacks)) throw Error("as many sizes as stacks");
  std::vector<std::uint32_t> found;
  std::vector<std::uint64_t> begins{0};
  for (size_t i = 0; i < nb::len(stacks); ++i) {
    const Names given(stacks[i]);
    const ModelStack stack(given.views, key);
    for_each_feature(stack, nb::cast<Size>(sizes[i]), bits, true,
                     [&](std::uint32_t row) { found.push_back(row); });
    begins.push_back(found.size());
  }
  return nb::make_tuple(to_array(std::move(found)), to_array(std::move(begins)));
}

nb::tuple fit_words(Hashes rows, Places begins, Table targets, Table weights, std::uint64_t count, float l2,
                    unsigned most_steps) {
  log2_of_rows(count);
  if (begins.size() == 0) throw Error("begins has one more than there are examples");
  const size_t examples = begins.size() - 1;
  if (targets.shape(0) != examples || targets.shape(1) != model_format::kOutputs ||
      weights.shape(0) != examples || weights.shape(1) != 2)
    throw Error("targets are 9 and weights 2 for each example");
  for (size_t i = 0; i < examples; ++i)
    if (begins.data()[i] > begins.data()[i + 1]) throw Error("begins does not ascend");
  if (begins.data()[0] != 0 || begins.data()[examples] != rows.size())
    throw Error("begins does not end where rows end");
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows.data()[i] >= count) throw Error("a row is not below count");
  LinearFit fit;
  {
    const nb::gil_scoped_release release;
    fit = fit_linear({{rows.data(), rows.size()},
                      {begins.data(), begins.size()},
                      {targets.data(), targets.size()},
                      {weights.data(), weights.size()}},
                     count, l2, most_steps);
  }
  std::vector<float> bias(std::begin(fit.bias), std::end(fit.bias));
  return nb::make_tuple(
      nb::cast(to_array(std::move(fit.weights))).attr("reshape")(count, model_format::kOutputs),
      to_array(std::move(bias)));
}

nb::tuple network_tokens(nb::list stacks, Hashes hashes, std::uint32_t split, size_t most,
                         std::uint64_t key) {
  std::vector<std::int32_t> found;
  std::vector<std::uint64_t> begins{0};
  for (size_t i = 0; i < nb::len(stacks); ++i) {
    const Names given(stacks[i]);
    std::uint32_t tokens[SequenceNetwork::kMostTokens];
    const size_t count =
        SequenceNetwork::tokenize(given.views, key, {hashes.data(), hashes.size()}, split, most, tokens);
    found.insert(found.end(), tokens, tokens + count);
    begins.push_back(found.size());
  }
  return nb::make_tuple(to_array(std::move(found)), to_array(std::move(begins)));
}

nb::list own_tokens(const HeldModel& held, nb::list names) {
  nb::list result;
  const SequenceNetwork& network = held.model().network();
  if (!network) return result;
  const Names given(names);
  std::uint32_t tokens[SequenceNetwork::kMostTokens];
  const size_t count = network.tokenize(given.views, held.model().key(), tokens);
  for (size_t i = 0; i < count; ++i) result.append(tokens[i]);
  return result;
}

nb::list network_outputs(const HeldModel& held, nb::list names) {
  nb::list result;
  const SequenceNetwork& network = held.model().network();
  if (!network) return result;
  const Names given(names);
  std::uint32_t tokens[SequenceNetwork::kMostTokens];
  const size_t count = network.tokenize(given.views, held.model().key(), tokens);
  float outputs[model_format::kOutputs];
  network.run({tokens, count}, outputs);
  for (const float output : outputs) result.append(output);
  return result;
}

nb::list stack_plain(nb::list names) {
  nb::list result;
  bool inner = true;
  const Names given(names);
  for (const std::string_view name : given.views) {
    const PlainName plain(name);
    inner = inner && is_allocation_name(plain.view());
    if (!inner && !plain.view().empty()) result.append(to_str(plain.view()));
  }
  return result;
}

nb::bytes write(nb::dict sections, std::uint64_t key) {
  ModelSections all;
  for (const auto& [name, content] : sections) {
    const auto bytes = nb::cast<nb::bytes>(content);
    all[section_kind(nb::cast<std::string>(name)) - 1] = std::string_view(bytes.c_str(), bytes.size());
  }
  const std::string file = write_model(all, key);
  return nb::bytes(file.data(), file.size());
}

}  // namespace

void bind_models(nb::module_& module) {
  module.def(
      "plain_name", [](std::string_view name) { return to_str(PlainName(name).view()); }, "name"_a,
      "What a function is called without parameters, template arguments and what else differs between "
      "builds. "
      "`name`: mangled or readable.");
  module.def("is_allocation_name", &is_allocation_name, "plain"_a,
             "Whether programs ask for memory by the function of that plain name: stacks begin behind it.");
  module.def(
      "stack_plain", &stack_plain, "names"_a,
      "Plain names of a stack's functions, innermost first, without those that ask for memory and without "
      "frames that have no name.");
  module.def(
      "name_parts",
      [](std::string_view plain) {
        nb::list parts;
        for_each_part(plain, [&](std::string_view part) { parts.append(to_str(part)); });
        return parts;
      },
      "plain"_a, "The identifiers that a plain name consists of.");
  module.def(
      "name_words",
      [](std::string_view plain) {
        nb::list words;
        for_each_word(plain, [&](std::string_view word) { words.append(to_str(word)); });
        return words;
      },
      "plain"_a, "The words that its identifiers consist of, in small letters.");
  module.def(
      "size_name", [](Size size) { return to_str(SizeName(size).view()); }, "size"_a,
      "What models call objects of about that size, as if it were a function outside of the stack.");
  module.def(
      "program_name", [](std::string_view path) { return to_str(program_name(path)); }, "path"_a,
      "What a program is called, of whatever version.");
  module.def("name_hash", &model_hash, "text"_a, "key"_a = 0, "Of a plain name, in models.");
  module.def("token_hash", &word_hash, "text"_a, "key"_a = 0, "Of a word or a part of a name, in models.");
  module.def("stack_features", &stack_features, "stacks"_a, "sizes"_a, "rows"_a, "key"_a = 0,
             "For each stack (names, innermost first) the rows of a linear model that it has: all of them, "
             "and where "
             "those of each stack begin. `sizes`: of the objects, 0: not known.");
  module.def(
      "fit_words", &fit_words, "rows"_a, "begins"_a, "targets"_a, "weights"_a, "count"_a, "l2"_a,
      "most_steps"_a,
      "Weights (count, 9) and biases (9) of a linear model that fits the examples best. `rows`, `begins`: "
      "as stack_features() gives them; `targets`: (n, 9), parts of the eight classes, then of long; "
      "`weights`: (n, 2), of either; `l2`: what squares of weights cost.");
  module.def(
      "network_tokens", &network_tokens, "stacks"_a, "hashes"_a, "split"_a, "most_tokens"_a, "key"_a = 0,
      "For each stack the tokens that a sequence model reads: all of them, and where those of each begin. "
      "`hashes`: of the known ones, ascending; `split`: 0 parts, 1 words.");
  module.def(
      "write_model", &write, "sections"_a, "key"_a = 0,
      "The bytes of a .model file with these sections, by name. Raises Error for what no reader takes.");

  nb::class_<HeldModel>(
      module, "LifetimeModel",
      "How long objects of a context will live, learned from profiles: what a .model file holds.")
      .def_static(
          "from_bytes",
          [](nb::bytes bytes, const FileName& name) {
            return new HeldModel(std::string_view(bytes.c_str(), bytes.size()), name);
          },
          nb::rv_policy::take_ownership, "bytes"_a, "name"_a = "<memory>",
          "Checks the bytes of a file. Raises Error when they are none.")
      .def(
          "predict", &predict, "names"_a, "size"_a = 0, "frames"_a = nb::list(), "height"_a = 0,
          "stages"_a = LifetimeModel::kAllStages, "calibrated"_a = true, "program"_a = "",
          "Of a stack, innermost first: names of functions ('' unknown), and for each frame (build id, "
          "offset) "
          "where that is known. `program`: the path of the executable; '' unknown. None: the model abstains.")
      .def("predict_many", &predict_many, "stacks"_a, "sizes"_a, "stages"_a = LifetimeModel::kAllStages,
           "calibrated"_a = true, "programs"_a = nb::list(),
           "The same of many stacks of names, as arrays; stage -1: it abstains. seconds: of the processor, "
           "for the "
           "answers without what Python adds.")
      .def("network_tokens", &own_tokens, "names"_a,
           "What its sequence model reads of a stack; [] without one.")
      .def("network_outputs", &network_outputs, "names"_a,
           "What its sequence model answers, before softmax: eight classes, then long; [] without one.")
      .def(
          "records",
          [](nb::handle_t<HeldModel> self, std::string_view section) {
            const std::string_view bytes =
                nb::cast<const HeldModel&>(self).model().section(section_kind(section));
            return nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(
                reinterpret_cast<const std::uint8_t*>(bytes.data()), {bytes.size()}, self);
          },
          "section"_a, "The bytes of a section. A view; it keeps the model alive.")
      .def(
          "count",
          [](const HeldModel& held, std::string_view section) {
            return held.model().count(section_kind(section));
          },
          "section"_a, "How many records a section has.")
      .def_prop_ro(
          "key", [](const HeldModel& held) { return held.model().key(); }, "Of the hashes; 0: not private.");
}

}  // namespace memoir
