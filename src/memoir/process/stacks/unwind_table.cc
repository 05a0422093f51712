// SPDX-License-Identifier: Apache-2.0
//
// The format is that of the Linux Standard Base, "Exception Frames", with DWARF 5's call frame instructions.
#include "memoir/process/stacks/unwind_table.h"

#include <cstring>

namespace memoir::stacks {

namespace {

constexpr std::uint8_t kOmit = 0xff, kPcRelative = 0x10, kDataRelative = 0x30, kIndirectBit = 0x80;
constexpr unsigned kRbp = 6, kRsp = 7, kReturnAddress = 16;
constexpr unsigned kMostRemembered = 8;
constexpr unsigned kMostInstructions = 1u << 20;  // compilers' own functions have thousands

/// Bytes between two addresses; a read beyond them gives 0 and sets `bad`.
class Reader {
 public:
  Reader(Address at, Address end) noexcept : at_(at), end_(end), bad_(at > end) {}

  Address at() const noexcept { return at_; }
  bool bad() const noexcept { return bad_; }
  bool done() const noexcept { return bad_ || at_ >= end_; }
  void skip(std::uint64_t bytes) noexcept {
    if (bad_ || bytes > end_ - at_) bad_ = true;
    else at_ += bytes;
  }

  template <class T>
  T read() noexcept {
    T value{};
    if (bad_ || sizeof(T) > end_ - at_) {
      bad_ = true;
      return value;
    }
    std::memcpy(&value, reinterpret_cast<const void*>(at_), sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::uint64_t uleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = read<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    bad_ = true;
    return 0;
  }
  std::int64_t sleb() noexcept {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64;) {
      const auto byte = read<std::uint8_t>();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      shift += 7;
      if (byte < 0x80) {
        if (shift < 64 && (byte & 0x40) != 0) value |= ~std::uint64_t{0} << shift;
        return static_cast<std::int64_t>(value);
      }
    }
    bad_ = true;
    return 0;
  }
  /// A pointer in one of the encodings DW_EH_PE_*; `data` is what data-relative ones count from.
  Address pointer(std::uint8_t encoding, Address data) noexcept {
    if (encoding == kOmit) return 0;
    const Address from = at_;
    std::uint64_t value = 0;
    switch (encoding & 0x0f) {
      case 0x00:
      case 0x04:
      case 0x0c:
        value = read<std::uint64_t>();
        break;
      case 0x01:
        value = uleb();
        break;
      case 0x02:
        value = read<std::uint16_t>();
        break;
      case 0x03:
        value = read<std::uint32_t>();
        break;
      case 0x09:
        value = static_cast<std::uint64_t>(sleb());
        break;
      case 0x0a:
        value = static_cast<std::uint64_t>(std::int64_t{read<std::int16_t>()});
        break;
      case 0x0b:
        value = static_cast<std::uint64_t>(std::int64_t{read<std::int32_t>()});
        break;
      default:
        bad_ = true;
        return 0;
    }
    if ((encoding & kIndirectBit) != 0) return 0;  // only personalities and the like
    switch (encoding & 0x70) {
      case 0:
        return value;
      case kPcRelative:
        return from + value;
      case kDataRelative:
        return data + value;
      default:
        bad_ = true;
        return 0;
    }
  }

 private:
  Address at_, end_;
  bool bad_;
};

/// What a common information entry says for all the functions that name it.
struct Common {
  std::uint64_t code_align = 1;
  std::int64_t data_align = 1;
  std::uint8_t pointer_encoding = 0;
  bool signal = false;
  bool augmented = false;
  Address program = 0, program_end = 0;
};

/// Moves `reader` behind the length, and returns where the entry ends; 0 when it cannot be.
Address entry_end(Reader& reader, Address limit) noexcept {
  std::uint64_t length = reader.read<std::uint32_t>();
  if (length == 0xffffffff) length = reader.read<std::uint64_t>();
  if (reader.bad() || length == 0 || length > limit - reader.at()) return 0;
  return reader.at() + length;
}

bool read_common(Address at, Address limit, Common& common) noexcept {
  Reader reader(at, limit);
  const Address end = entry_end(reader, limit);
  if (end == 0) return false;
  reader = Reader(reader.at(), end);
  if (reader.read<std::uint32_t>() != 0) return false;  // no CIE
  const auto version = reader.read<std::uint8_t>();
  if (version != 1 && version != 3 && version != 4) return false;
  char augmentation[8] = {};
  unsigned letters = 0;
  for (;;) {
    const auto letter = static_cast<char>(reader.read<std::uint8_t>());
    if (letter == 0) break;
    if (letters + 1 >= sizeof augmentation || reader.bad()) return false;
    augmentation[letters++] = letter;
  }
  if (version == 4) reader.skip(2);  // sizes of an address and of a segment's selector
  common.code_align = reader.uleb();
  common.data_align = reader.sleb();
  const std::uint64_t column = version == 1 ? reader.read<std::uint8_t>() : reader.uleb();
  if (column != kReturnAddress) return false;
  if (letters != 0) {
    if (augmentation[0] != 'z') return false;
    common.augmented = true;
    const std::uint64_t length = reader.uleb();
    const Address behind = reader.at() + length;
    if (reader.bad() || length > end - reader.at()) return false;
    for (unsigned i = 1; i < letters; ++i) switch (augmentation[i]) {
        case 'R':
          common.pointer_encoding = reader.read<std::uint8_t>();
          break;
        case 'P': {
          const auto encoding = reader.read<std::uint8_t>();
          reader.pointer(encoding & 0x0f, 0);
          break;
        }
        case 'L':
          reader.skip(1);
          break;
        case 'S':
          common.signal = true;
          break;
        case 'B':
          break;
        default:
          return false;
      }
    if (reader.bad()) return false;
    reader = Reader(behind, end);
  }
  common.program = reader.at();
  common.program_end = end;
  return !reader.bad();
}

/// The rules of a moment in a function: of the CFA and of the two registers that matter.
struct Row {
  enum class Saved : std::uint8_t { kSame, kAtCfa, kAtRbp, kUndefined, kOther };
  std::uint64_t cfa_register = kRsp;
  std::int64_t cfa_offset = 0;
  bool cfa_indirect = false, cfa_other = false;
  Saved rbp = Saved::kSame, address = Saved::kSame;
  std::int64_t rbp_at = 0, address_at = 0;

  void set(std::uint64_t number, Saved saved, std::int64_t at = 0) noexcept {
    if (number == kRbp) {
      rbp = saved;
      rbp_at = at;
    } else if (number == kReturnAddress) {
      address = saved;
      address_at = at;
    }
  }
};

/// A block of DWARF operations: "the register, plus so much", then perhaps "what stands there".
struct Expression {
  bool known = false, dereferenced = false;
  unsigned number = 0;
  std::int64_t offset = 0;
};

Expression read_expression(Reader& reader) noexcept {
  Expression expression;
  const std::uint64_t length = reader.uleb();
  const Address from = reader.at();
  reader.skip(length);
  if (reader.bad() || length == 0) return expression;
  Reader operations(from, from + length);
  const auto first = operations.read<std::uint8_t>();
  if (first < 0x70 || first > 0x8f) return expression;  // DW_OP_breg0 to breg31
  expression.number = first - 0x70u;
  expression.offset = operations.sleb();
  if (!operations.done() && operations.read<std::uint8_t>() == 0x06) {  // DW_OP_deref
    expression.dereferenced = true;
    expression.known = operations.done();
  } else {
    expression.known = !expression.dereferenced && operations.at() == from + length;
  }
  if (operations.bad()) expression.known = false;
  return expression;
}

/// Runs call frame instructions until the row of `pc` is complete.
class Machine {
 public:
  Machine(const Common& common, Address location, Address pc) noexcept
      : common_(common), location_(location), pc_(pc) {}

  Row row;

  /// What DW_CFA_restore goes back to: the row after the common entry's own instructions.
  void keep_initial() noexcept { initial_ = row; }

  bool run(Address program, Address end) noexcept {
    Reader reader(program, end);
    for (unsigned count = 0; !reader.done(); ++count) {
      if (count == kMostInstructions || !step(reader)) return false;
      if (location_ > pc_) return true;
    }
    return !reader.bad();
  }

 private:
  bool step(Reader& reader) noexcept {
    const auto code = reader.read<std::uint8_t>();
    const unsigned low = code & 0x3f;
    switch (code >> 6) {
      case 1:
        return advance(low);
      case 2:
        row.set(low, Row::Saved::kAtCfa, static_cast<std::int64_t>(reader.uleb()) * common_.data_align);
        return true;
      case 3:
        restore(low);
        return true;
      default:
        break;
    }
    switch (low) {
      case 0x00:
        return true;  // nop
      case 0x01:
        return set_location(reader.pointer(common_.pointer_encoding, 0));  // set_loc
      case 0x02:
        return advance(reader.read<std::uint8_t>());  // advance_loc1, 2, 4
      case 0x03:
        return advance(reader.read<std::uint16_t>());
      case 0x04:
        return advance(reader.read<std::uint32_t>());
      case 0x05: {  // offset_extended
        const std::uint64_t number = reader.uleb();
        row.set(number, Row::Saved::kAtCfa, static_cast<std::int64_t>(reader.uleb()) * common_.data_align);
        return true;
      }
      case 0x06:
        restore(reader.uleb());
        return true;  // restore_extended
      case 0x07:
        row.set(reader.uleb(), Row::Saved::kUndefined);
        return true;  // undefined
      case 0x08:
        row.set(reader.uleb(), Row::Saved::kSame);
        return true;  // same_value
      case 0x09:
        row.set(reader.uleb(), Row::Saved::kOther);
        reader.uleb();
        return true;  // register
      case 0x0a:      // remember_state
        if (remembered_ == kMostRemembered) return false;
        stack_[remembered_++] = row;
        return true;
      case 0x0b:  // restore_state
        if (remembered_ == 0) return false;
        row = stack_[--remembered_];
        return true;
      case 0x0c:
        row.cfa_register = reader.uleb();
        return plain_cfa(static_cast<std::int64_t>(reader.uleb()));
      case 0x0d:
        row.cfa_register = reader.uleb();
        return true;  // def_cfa_register
      case 0x0e:
        return plain_cfa(static_cast<std::int64_t>(reader.uleb()));  // def_cfa_offset
      case 0x0f: {                                                   // def_cfa_expression
        const Expression expression = read_expression(reader);
        row.cfa_other = !expression.known || !expression.dereferenced;
        row.cfa_indirect = !row.cfa_other;
        row.cfa_register = expression.number;
        row.cfa_offset = expression.offset;
        return true;
      }
      case 0x10: {  // expression: the register is saved at that address
        const std::uint64_t number = reader.uleb();
        const Expression expression = read_expression(reader);
        const bool plain = expression.known && !expression.dereferenced && expression.number == kRbp;
        row.set(number, plain ? Row::Saved::kAtRbp : Row::Saved::kOther, expression.offset);
        return true;
      }
      case 0x11: {  // offset_extended_sf
        const std::uint64_t number = reader.uleb();
        row.set(number, Row::Saved::kAtCfa, reader.sleb() * common_.data_align);
        return true;
      }
      case 0x12:
        row.cfa_register = reader.uleb();
        return plain_cfa(reader.sleb() * common_.data_align);
      case 0x13:
        return plain_cfa(reader.sleb() * common_.data_align);  // def_cfa_offset_sf
      case 0x14:
        row.set(reader.uleb(), Row::Saved::kOther);
        reader.uleb();
        return true;  // val_offset
      case 0x15:
        row.set(reader.uleb(), Row::Saved::kOther);
        reader.sleb();
        return true;  // val_offset_sf
      case 0x16: {    // val_expression
        const std::uint64_t number = reader.uleb();
        read_expression(reader);
        row.set(number, Row::Saved::kOther);
        return true;
      }
      case 0x2e:
        reader.uleb();
        return true;  // GNU_args_size
      case 0x2f: {    // GNU_negative_offset_extended
        const std::uint64_t number = reader.uleb();
        row.set(number, Row::Saved::kAtCfa, -static_cast<std::int64_t>(reader.uleb()) * common_.data_align);
        return true;
      }
      default:
        return false;
    }
  }

  bool advance(std::uint64_t units) noexcept {
    location_ += units * common_.code_align;
    return true;
  }
  bool set_location(Address location) noexcept {
    location_ = location;
    return true;
  }
  bool plain_cfa(std::int64_t offset) noexcept {
    row.cfa_offset = offset;
    row.cfa_indirect = row.cfa_other = false;
    return true;
  }
  void restore(std::uint64_t number) noexcept {
    if (number == kRbp) {
      row.rbp = initial_.rbp;
      row.rbp_at = initial_.rbp_at;
    } else if (number == kReturnAddress) {
      row.address = initial_.address;
      row.address_at = initial_.address_at;
    }
  }

  const Common& common_;
  Address location_;
  Address pc_;
  Row initial_;
  Row stack_[kMostRemembered];
  unsigned remembered_ = 0;
};

UnwindRule packed(const Row& row) noexcept {
  UnwindRule rule;
  if (row.address == Row::Saved::kUndefined) {
    rule.cfa = CfaKind::kOutermost;
    return rule;
  }
  if (row.address != Row::Saved::kAtCfa || row.address_at != -8 || row.cfa_other) return rule;
  if (row.cfa_offset != static_cast<std::int32_t>(row.cfa_offset)) return rule;
  rule.cfa_offset = static_cast<std::int32_t>(row.cfa_offset);
  const bool wide = row.rbp_at % 8 != 0 || row.rbp_at / 8 != static_cast<std::int16_t>(row.rbp_at / 8);
  switch (row.rbp) {
    case Row::Saved::kSame:
      rule.rbp = RbpKind::kSame;
      break;
    case Row::Saved::kAtCfa:
      rule.rbp = RbpKind::kAtCfa;
      break;
    case Row::Saved::kAtRbp:
      rule.rbp = RbpKind::kAtRbp;
      break;
    default:
      return rule;
  }
  if (rule.rbp != RbpKind::kSame) {
    if (wide) return rule;
    rule.rbp_offset = static_cast<std::int16_t>(row.rbp_at / 8);
  }
  if (row.cfa_indirect) rule.cfa = row.cfa_register == kRbp ? CfaKind::kIndirect : CfaKind::kUnknown;
  else if (row.cfa_register == kRsp) rule.cfa = CfaKind::kFromRsp;
  else if (row.cfa_register == kRbp) rule.cfa = CfaKind::kFromRbp;
  return rule;
}

/// The entry of .eh_frame that covers `pc`, by the sorted table of .eh_frame_hdr; 0 when there is none.
Address find_entry(const UnwindModule& module, Address pc) noexcept {
  Reader reader(module.eh_frame_header, module.table_end);
  if (reader.read<std::uint8_t>() != 1) return 0;
  const auto frame_encoding = reader.read<std::uint8_t>();
  const auto count_encoding = reader.read<std::uint8_t>();
  const auto table_encoding = reader.read<std::uint8_t>();
  reader.pointer(frame_encoding, module.eh_frame_header);
  const std::uint64_t count = reader.pointer(count_encoding, 0);
  // Every linker writes pairs of 32-bit numbers that count from the header.
  if (reader.bad() || table_encoding != (kDataRelative | 0x0b) || count == 0) return 0;
  if (count > (module.table_end - reader.at()) / 8) return 0;
  const auto* const table = reinterpret_cast<const std::int32_t*>(reader.at());
  const auto wanted = static_cast<std::int64_t>(pc - module.eh_frame_header);
  std::uint64_t low = 0, high = count;  // the last row that begins at or before pc
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (table[2 * middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low == 0 ? 0 : module.eh_frame_header + static_cast<std::int64_t>(table[2 * (low - 1) + 1]);
}

}  // namespace

UnwindRule read_rule(const UnwindModule& module, Address pc, Address* function) noexcept {
  UnwindRule rule;
  rule.cfa = CfaKind::kUncovered;
  if (module.eh_frame_header < module.table_begin || module.eh_frame_header >= module.table_end) return rule;
  const Address entry = find_entry(module, pc);
  if (entry < module.table_begin || entry >= module.table_end) return rule;
  Reader reader(entry, module.table_end);
  const Address end = entry_end(reader, module.table_end);
  if (end == 0) return rule;
  reader = Reader(reader.at(), end);
  const Address here = reader.at();
  const auto back = reader.read<std::uint32_t>();
  if (back == 0 || back > here - module.table_begin) return rule;
  Common common;
  if (!read_common(here - back, module.table_end, common)) return rule;
  const Address begin = reader.pointer(common.pointer_encoding, 0);
  const Address length = reader.pointer(common.pointer_encoding & 0x0f, 0);
  if (reader.bad() || pc < begin || pc - begin >= length) return rule;
  if (function != nullptr) *function = begin;
  rule.cfa = CfaKind::kUnknown;
  if (common.signal) {
    rule.cfa = CfaKind::kSignal;
    return rule;
  }
  if (common.augmented) reader.skip(reader.uleb());
  if (reader.bad()) return rule;
  Machine machine(common, begin, pc);
  if (!machine.run(common.program, common.program_end)) return rule;
  machine.keep_initial();
  if (!machine.run(reader.at(), end)) return rule;
  return packed(machine.row);
}

}  // namespace memoir::stacks
