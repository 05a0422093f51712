// SPDX-License-Identifier: Apache-2.0
#include "memoir/formats/pickle/pickle_machine.h"

#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "memoir/base/error.h"

namespace memoir {

namespace {

enum class Opcode : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinFloat = 'G',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kMemoize = 0x94,
  kFrame = 0x95,
};

struct Refused {
  std::uint8_t opcode;
  const char* name;
  const char* does;
};

constexpr const char* kRuns = "would run code";
constexpr const char* kForeign = "makes what no memory snapshot holds";
constexpr const char* kText = "is of protocol 0 or 1; protocols 2 to 5 are read";
constexpr auto kRefused = std::to_array<Refused>({
    {'c', "GLOBAL", kRuns},
    {0x93, "STACK_GLOBAL", kRuns},
    {'i', "INST", kRuns},
    {'o', "OBJ", kRuns},
    {'R', "REDUCE", kRuns},
    {'b', "BUILD", kRuns},
    {0x81, "NEWOBJ", kRuns},
    {0x92, "NEWOBJ_EX", kRuns},
    {'P', "PERSID", kRuns},
    {'Q', "BINPERSID", kRuns},
    {0x82, "EXT1", kRuns},
    {0x83, "EXT2", kRuns},
    {0x84, "EXT4", kRuns},
    {0x8f, "EMPTY_SET", kForeign},
    {0x90, "ADDITEMS", kForeign},
    {0x91, "FROZENSET", kForeign},
    {0x8e, "BINBYTES8", kForeign},
    {0x96, "BYTEARRAY8", kForeign},
    {0x97, "NEXT_BUFFER", kForeign},
    {0x98, "READONLY_BUFFER", kForeign},
    {'I', "INT", kText},
    {'L', "LONG", kText},
    {'F', "FLOAT", kText},
    {'S', "STRING", kText},
    {'V', "UNICODE", kText},
    {'g', "GET", kText},
    {'p', "PUT", kText},
});

constexpr Size kPerByte = 2;          // bytes of memory for each that was read,
constexpr Size kFree = 4 * kMiB;      // and these for nothing
constexpr unsigned kCheckEach = 256;  // opcodes

class Machine {
 public:
  Machine(PickleInput& input, PickleValues& values, const std::string& name)
      : input_(input), values_(values), name_(name) {}

  Value run();

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(name_ + ": byte " + std::to_string(at_) + ": " + what);
  }
  [[noreturn]] void refuse(std::uint8_t opcode);
  [[noreturn]] void truncated();
  [[noreturn]] void underflow() const {
    fail("the pickle is damaged: an opcode finds too little on the stack");
  }

  const std::uint8_t* take(Size size) {
    const std::uint8_t* const bytes = input_.take(size);
    if (bytes == nullptr) [[unlikely]]
      truncated();
    return bytes;
  }
  template <class T>
  T little() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  void push(Value value) { stack_.push_back(value); }
  void push_text(Size size) {
    push(values_.string({reinterpret_cast<const char*>(take(size)), static_cast<size_t>(size)}));
  }
  /// What lies above the last mark of the stack, or the whole stack.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Value& top() {
    if (stack_.size() <= floor()) underflow();
    return stack_.back();
  }
  Value pop() {
    const Value value = top();
    stack_.pop_back();
    return value;
  }
  size_t pop_mark() {
    if (marks_.empty()) underflow();
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }
  void check(const char* wrong) const {
    if (wrong != nullptr) fail(std::string("the pickle is damaged: ") + wrong);
  }
  /// Opcodes of one byte make values of many: a file gets memory for what it is, not for what it could be.
  void check_memory() const {
    const Size taken = values_.memory() + sizeof(Value) * (2 * stack_.size() + memo_.size()) +
                       2 * sizeof(size_t) * marks_.size();
    if (taken > kFree + kPerByte * at_) {
      fail("it makes more than " + std::to_string(kPerByte) +
           " bytes of every byte that was read, which no memory snapshot does");
    }
  }
  void put(std::uint64_t number);
  void get(std::uint64_t number);
  void tuple(size_t size);
  void add_items(bool pairs);

  PickleInput& input_;
  PickleValues& values_;
  const std::string& name_;
  Offset at_ = 0;  // of the opcode that runs
  std::vector<Value> stack_;
  std::vector<size_t> marks_;
  ChunkedArray<Value> memo_;
};

static_assert(PickleValues::kDeepest == 64, "an error says so");
constexpr Value kNoValue{~std::uint64_t{0}};

void Machine::truncated() {
  const Offset end = input_.at() + input_.left(~Size{0});
  fail("the file ends at byte " + std::to_string(end) + ", in the middle of a value, after " +
       std::to_string(values_.entries()) + " trace entries and " + std::to_string(values_.blocks()) +
       " blocks: it is truncated; dump or copy it again");
}

void Machine::refuse(std::uint8_t opcode) {
  for (const Refused& refused : kRefused) {
    if (refused.opcode != opcode) continue;
    std::string what = std::string("the opcode ") + refused.name;
    if (opcode == 'c' || opcode == 'i') {  // module and name, a line each
      const Size size = input_.left(200);
      const std::uint8_t* const bytes = take(size);
      std::string named;
      int lines = 0;
      for (Size i = 0; i < size && lines < 2; ++i) {
        const bool printable = bytes[i] >= 0x20 && bytes[i] < 0x7f;
        if (bytes[i] == '\n') named += ++lines == 1 ? "." : "";
        else named += printable ? static_cast<char>(bytes[i]) : '?';
      }
      what += " of " + named;
    }
    what += std::string(" ") + refused.does;
    if (refused.does == kRuns)
      what += "; a memory snapshot has none, so this is something else: nothing was run";
    fail(what);
  }
  fail("no pickle has the opcode " + std::to_string(opcode) + ": this is not a snapshot, or a damaged one");
}

void Machine::put(std::uint64_t number) {
  // Whoever writes pickles counts upwards, a number per value; memory goes to no others.
  if (number >= memo_.size() + 1024)
    fail("the pickle is damaged: the memo jumps to " + std::to_string(number));
  const Value value = top();
  while (memo_.size() <= number) memo_.push_back(kNoValue);
  memo_[number] = value;
}

void Machine::get(std::uint64_t number) {
  if (number >= memo_.size() || memo_[number] == kNoValue) {
    fail("the pickle is damaged: it reads memo " + std::to_string(number) + ", which was not written");
  }
  push(memo_[number]);
}

void Machine::tuple(size_t size) {
  if (stack_.size() - floor() < size) underflow();
  const size_t begin = stack_.size() - size;
  Value made;
  check(values_.tuple(std::span(stack_).subspan(begin), made));
  stack_.resize(begin);
  push(made);
}

void Machine::add_items(bool pairs) {
  const size_t mark = pop_mark();
  if (mark <= floor()) underflow();
  const std::span<const Value> items = std::span(stack_).subspan(mark);
  const Value to = stack_[mark - 1];
  check(pairs ? values_.set_items(to, items, at_) : values_.append(to, items));
  stack_.resize(mark);
}

Value Machine::run() {
  {
    const std::uint8_t* const begin = input_.left(2) < 2 ? nullptr : input_.take(2);
    if (begin == nullptr) throw Error(name_ + ": the file is empty, or a byte long: no snapshot");
    if (begin[0] == 'P' && begin[1] == 'K') {
      throw Error(name_ +
                  ": a zip archive (such as torch.save writes), not a snapshot by "
                  "torch.cuda.memory._dump_snapshot");
    }
    if (begin[0] != 0x80) {
      throw Error(name_ +
                  ": not a pickle of protocol 2 to 5: name a file that torch.cuda.memory._dump_snapshot "
                  "wrote");
    }
    if (begin[1] < 2 || begin[1] > 5) {
      throw Error(name_ + ": byte 1: a pickle of protocol " + std::to_string(begin[1]) +
                  ", but 2 to 5 are read");
    }
  }
  for (unsigned steps = 0;; ++steps) {
    at_ = input_.at();
    if (steps % kCheckEach == 0) check_memory();
    const std::uint8_t opcode = *take(1);
    switch (static_cast<Opcode>(opcode)) {
      case Opcode::kProto:
        take(1);
        break;
      case Opcode::kFrame:
        take(8);
        break;
      case Opcode::kStop: {
        const Value result = pop();
        if (!stack_.empty() || !marks_.empty()) fail("the pickle is damaged: it ends with values left over");
        return result;
      }
      case Opcode::kMark:
        marks_.push_back(stack_.size());
        break;
      case Opcode::kPop:
        if (stack_.size() == floor() && !marks_.empty()) marks_.pop_back();
        else pop();
        break;
      case Opcode::kPopMark:
        stack_.resize(pop_mark());
        break;
      case Opcode::kDup:
        push(top());
        break;
      case Opcode::kNone:
        push(Value::of(Value::Kind::kNone));
        break;
      case Opcode::kNewTrue:
        push(Value::of(Value::Kind::kTrue));
        break;
      case Opcode::kNewFalse:
        push(Value::of(Value::Kind::kFalse));
        break;
      case Opcode::kBinInt:
        push(values_.integer(std::int64_t{little<std::int32_t>()}));
        break;
      case Opcode::kBinInt1:
        push(values_.integer(std::int64_t{*take(1)}));
        break;
      case Opcode::kBinInt2:
        push(values_.integer(std::int64_t{little<std::uint16_t>()}));
        break;
      case Opcode::kLong1: {
        const Size size = *take(1);
        push(values_.integer(std::span(take(size), size)));
        break;
      }
      case Opcode::kLong4: {
        const auto size = little<std::int32_t>();
        if (size < 0) fail("the pickle is damaged: an integer of a negative length");
        const auto length = static_cast<Size>(size);
        push(values_.integer(std::span(take(length), length)));
        break;
      }
      case Opcode::kBinFloat:
        push(values_.number(std::bit_cast<double>(__builtin_bswap64(little<std::uint64_t>()))));
        break;
      case Opcode::kShortBinUnicode:
      case Opcode::kShortBinString:
      case Opcode::kShortBinBytes:
        push_text(*take(1));
        break;
      case Opcode::kBinUnicode:
      case Opcode::kBinString:
      case Opcode::kBinBytes:
        push_text(little<std::uint32_t>());
        break;
      case Opcode::kBinUnicode8:
        push_text(little<std::uint64_t>());
        break;
      case Opcode::kEmptyList:
        push(values_.list());
        break;
      case Opcode::kEmptyDict:
        push(values_.dict());
        break;
      case Opcode::kList:
      case Opcode::kDict: {
        const size_t mark = pop_mark();
        const bool is_dict = static_cast<Opcode>(opcode) == Opcode::kDict;
        const Value made = is_dict ? values_.dict() : values_.list();
        const std::span<const Value> items = std::span(stack_).subspan(mark);
        check(is_dict ? values_.set_items(made, items, at_) : values_.append(made, items));
        stack_.resize(mark);
        push(made);
        break;
      }
      case Opcode::kAppend: {
        const Value item = pop();
        check(values_.append(top(), std::span(&item, 1)));
        break;
      }
      case Opcode::kAppends:
        add_items(false);
        break;
      case Opcode::kSetItem: {
        const Value value = pop();
        const Value key = pop();
        const Value pair[] = {key, value};
        check(values_.set_items(top(), pair, at_));
        break;
      }
      case Opcode::kSetItems:
        add_items(true);
        break;
      case Opcode::kEmptyTuple:
        tuple(0);
        break;
      case Opcode::kTuple1:
        tuple(1);
        break;
      case Opcode::kTuple2:
        tuple(2);
        break;
      case Opcode::kTuple3:
        tuple(3);
        break;
      case Opcode::kTuple: {
        const size_t mark = pop_mark();
        tuple(stack_.size() - mark);
        break;
      }
      case Opcode::kMemoize:
        put(memo_.size());
        break;
      case Opcode::kBinPut:
        put(*take(1));
        break;
      case Opcode::kLongBinPut:
        put(little<std::uint32_t>());
        break;
      case Opcode::kBinGet:
        get(*take(1));
        break;
      case Opcode::kLongBinGet:
        get(little<std::uint32_t>());
        break;
      default:
        refuse(opcode);
    }
  }
}

}  // namespace

Value run_pickle(PickleInput& input, PickleValues& values, const std::string& name) {
  return Machine(input, values, name).run();
}

}  // namespace memoir
