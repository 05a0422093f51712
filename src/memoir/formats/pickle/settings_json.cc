// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pickle/settings_json.h"

#include <utility>

#include "memoir/base/json.h"

namespace memoir {

namespace {

constexpr int kDeepestSettings = 16;

class SettingsWriter {
 public:
  SettingsWriter(const PickleValues& values, std::size_t most) : values_(values), most_(most) {}

  bool write(Value value, int depth) {
    if (depth > kDeepestSettings || text_.size() > most_) return false;
    switch (value.kind()) {
      case Value::Kind::kNone:
        json_.null();
        return true;
      case Value::Kind::kFalse:
        json_.value(false);
        return true;
      case Value::Kind::kTrue:
        json_.value(true);
        return true;
      case Value::Kind::kInt:
        json_.value(value.integer());
        return true;
      case Value::Kind::kBigInt: {
        std::uint64_t magnitude;
        if (values_.natural(value, magnitude) != Fault::kNone) return false;
        json_.value(magnitude);
        return true;
      }
      case Value::Kind::kFloat:
        json_.value(values_.float_of(value));
        return true;
      case Value::Kind::kString:
        json_.value(values_.text(value.content()));
        return true;
      case Value::Kind::kTuple:
        return array(values_.tuple_items(value), depth);
      case Value::Kind::kSlot:
        break;
    }
    const PickleValues::Type type = values_.type(value);
    if (type == PickleValues::Type::kList) return array(values_.items_of(value), depth);
    return type == PickleValues::Type::kDict && object(values_.dict_of(value), depth);
  }
  std::string& text() { return text_; }

 private:
  bool array(std::span<const Value> items, int depth) {
    json_.begin_array();
    for (const Value item : items) {
      if (!write(item, depth + 1)) return false;
    }
    json_.end_array();
    return true;
  }
  bool object(const PickleValues::Dict& dict, int depth) {
    json_.begin_object();
    for (const auto& [key, value] : dict.items) {
      if (key.kind() != Value::Kind::kString) return false;
      json_.key(values_.text(key.content()));
      if (!write(value, depth + 1)) return false;
    }
    json_.end_object();
    return true;
  }

  const PickleValues& values_;
  std::size_t most_;
  std::string text_;
  JsonWriter json_{text_, {.python_floats = true}};  // for json_to_pickle.cc, and Python
};

}  // namespace

std::optional<std::string> to_json(const PickleValues& values, Value value, std::size_t most) {
  SettingsWriter writer(values, most);
  if (!writer.write(value, 0) || writer.text().size() > most) return std::nullopt;
  return std::move(writer.text());
}

}  // namespace memoir
