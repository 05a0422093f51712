// SPDX-License-Identifier: Apache-2.0
#include "memoir/trace/file/block_decoder.h"

#include <string>

#include "memoir/base/error.h"
#include "memoir/trace/format.h"

namespace memoir {

using namespace trace_format;

bool NumberReader::read_long(std::uint64_t& value) noexcept {
  value = 0;
  for (unsigned shift = 0; at_ < end_; shift += 7) {
    const auto bits = static_cast<std::uint64_t>(*at_++);
    if (shift == 63 && bits > 1) return false;
    value |= (bits & 0x7f) << shift;
    if (bits < 0x80) return true;
  }
  return false;
}

void BlockDecoder::fail(const char* what) const {
  throw Error("at byte " + std::to_string(at_) + " of its operations: " + what);
}

std::uint8_t BlockDecoder::byte(NumberReader& numbers) const {
  if (numbers.left() == 0) fail("it ends inside an operation");
  const auto value = static_cast<std::uint8_t>(*numbers.at());
  numbers.advance(1);
  return value;
}

std::uint64_t BlockDecoder::number(NumberReader& numbers) const {
  std::uint64_t value;
  if (!numbers.read(value)) [[unlikely]]
    fail("a number in it ends too late or not at all");
  return value;
}

std::uint32_t BlockDecoder::small(NumberReader& numbers) const {
  const std::uint64_t value = number(numbers);
  if (value > ~std::uint32_t{0}) fail("a number in it is 2^32 or more");
  return static_cast<std::uint32_t>(value);
}

void BlockDecoder::advance_tick(std::uint64_t ticks) {
  if (ticks > kMaxTime || tick_ > kMaxTime) fail("its time is beyond 2^62");
  tick_ += ticks;
}

bool BlockDecoder::next(std::span<const std::byte> payload, Item& item) {
  NumberReader numbers(payload.subspan(at_));
  while (numbers.left() > 0) {
    const std::uint8_t operation = byte(numbers);
    if (operation >= static_cast<std::uint8_t>(Operation::kFree)) {
      free(numbers, operation, item);
    } else if (operation >= static_cast<std::uint8_t>(Operation::kAllocate)) {
      allocate(numbers, operation, item);
    } else if (operation == static_cast<std::uint8_t>(Operation::kTick)) {
      advance_tick(number(numbers));
      at_ = static_cast<std::size_t>(numbers.at() - payload.data());
      continue;
    } else if (operation > static_cast<std::uint8_t>(Operation::kRecord) &&
               operation <= static_cast<std::uint8_t>(Operation::kRecord) + kLastKind) {
      record(numbers, static_cast<std::uint8_t>(operation - static_cast<std::uint8_t>(Operation::kRecord)),
             item);
    } else if (operation >= static_cast<std::uint8_t>(Operation::kString) &&
               operation <= static_cast<std::uint8_t>(Operation::kProgramEnd)) {
      define(numbers, static_cast<Operation>(operation), item);
    } else {
      fail("an operation that version 1 does not have; the file is damaged, or of a newer memoir");
    }
    item.tick = tick_;
    at_ = static_cast<std::size_t>(numbers.at() - payload.data());
    return true;
  }
  return false;
}

std::uint64_t BlockDecoder::address(NumberReader& numbers, std::uint8_t operation, std::uint64_t& last) {
  std::uint64_t address;
  if ((operation & kByDelta) == 0) {
    if ((operation & kOdd) != 0) fail("an address by its slot that is odd");
    address = state_.addresses.at[byte(numbers)];
  } else {
    const std::uint64_t high = last + unzigzag(number(numbers));
    if (high >= kMaxAddress >> 4) fail("an address beyond 2^63");
    address = high << 4;
    if ((operation & kOdd) != 0) {
      const std::uint8_t low = byte(numbers);
      if (low == 0 || low > 15) fail("the low bits of an odd address are 0, or more than four");
      address |= low;
    }
    state_.addresses.at[RecentAddresses::slot(address)] = address;
  }
  if (address == 0) fail("the address 0");
  last = address >> 4;
  return address;
}

void BlockDecoder::allocate(NumberReader& numbers, std::uint8_t operation, Item& item) {
  item.operation = Operation::kAllocate;
  item.flags = operation & 0x3f;
  if ((operation & 1) != 0 || (operation & (kExplicit | kSameClass)) == kSameClass) {
    fail("an allocation with flags that version 1 does not have");
  }
  item.address = address(numbers, operation, state_.allocated);
  RecentRequests::Request request;
  if ((operation & kExplicit) == 0) {
    request = state_.requests.at[byte(numbers)];
  } else {
    const std::uint64_t stack = small(numbers);
    request.size = number(numbers);
    if (request.size > kMaxSize) fail("an allocation of more than 2^56 bytes");
    if ((operation & kSameClass) == 0) state_.last_class = std::byte{byte(numbers)};
    request.place = stack | static_cast<std::uint64_t>(state_.last_class) << 32;
    state_.requests.at[RecentRequests::slot(request)] = request;
  }
  item.size = request.size;
  item.stack = static_cast<std::uint32_t>(request.place);
  const auto kind = static_cast<unsigned>(request.place >> 32);
  item.family = static_cast<Family>(kind >> 6);
  item.alignment_log2 = kind & 0x3f;
  if (item.alignment_log2 > kMaxSizeLog2) fail("an alignment over 2^56");
  if (item.size > kMaxAddress - item.address) fail("an allocation that ends beyond 2^63");
}

void BlockDecoder::free(NumberReader& numbers, std::uint8_t operation, Item& item) {
  item.operation = Operation::kFree;
  item.flags = operation & 0x3f;
  item.address = address(numbers, operation, state_.freed);
  item.stack = (operation & kAtStack) != 0 ? small(numbers) : 0;
}

void BlockDecoder::record(NumberReader& numbers, std::uint8_t kind, Item& item) {
  item.operation = Operation::kRecord;
  Event& last = state_.records.of[kind];
  Event& event = item.event;
  event = last;
  event.kind = static_cast<EventKind>(kind);
  const std::uint8_t has = byte(numbers);
  if ((has & kHasTime) != 0) advance_tick(number(numbers));
  event.time = tick_;
  event.object = next_object(state_.records, event.kind);
  if ((has & kHasObject) != 0) event.object += unzigzag(number(numbers));
  if ((has & kHasSiteSlot) != 0) event.site = state_.sites.at[byte(numbers)];
  if ((has & kHasSite) != 0) {
    if (numbers.left() < sizeof event.site) fail("it ends inside an operation");
    std::memcpy(&event.site, numbers.at(), sizeof event.site);
    numbers.advance(sizeof event.site);
    state_.sites.at[RecentSites::slot(event.site)] = event.site;
  }
  if ((has & kHasSize) != 0) {
    const std::uint64_t size = number(numbers);
    event.size = event.kind == EventKind::kAllocate ? size : last.size + unzigzag(size);
  }
  if ((has & kHasThread) != 0) event.thread = small(numbers);
  if ((has & kHasDevice) != 0) {
    const std::uint32_t device = small(numbers);
    if (device > 0xffff) fail("a device of 2^16 or more");
    event.device = static_cast<std::uint16_t>(device);
    event.stream = small(numbers);
  }
  if ((has & kHasClass) != 0) {
    const std::uint8_t kind_byte = byte(numbers);
    if (event.kind == EventKind::kSite) {
      if (kind_byte == 0 || kind_byte > static_cast<std::uint8_t>(FrameKind::kPython))
        fail("an unknown kind of frame");
      event.frame = static_cast<FrameKind>(kind_byte);
    } else {
      event.family = static_cast<Family>(kind_byte >> 6);
      event.alignment_log2 = kind_byte & 0x3f;
    }
  }
  last = event;
  item.text = {};
  if (has_text(event)) {
    if (event.object > numbers.left()) fail("a text goes past the end");
    item.text = {reinterpret_cast<const char*>(numbers.at()), static_cast<std::size_t>(event.object)};
    numbers.advance(item.text.size());
  }
}

/// Definitions and what is said of the process: numbers, perhaps bytes, perhaps a list of numbers.
void BlockDecoder::define(NumberReader& numbers, Operation operation, Item& item) {
  item.operation = operation;
  item.text = {};
  item.list = {};
  std::size_t count = 0;
  const auto read = [&](std::size_t fields) {
    while (fields-- > 0) item.numbers[count++] = number(numbers);
  };
  const auto text = [&] {
    const std::uint64_t size = number(numbers);
    if (size > numbers.left()) fail("a text goes past the end");
    item.text = {reinterpret_cast<const char*>(numbers.at()), static_cast<std::size_t>(size)};
    numbers.advance(item.text.size());
  };
  const auto list = [&](std::uint64_t fields) {
    const std::uint64_t rows = item.numbers[count - 1];
    const std::byte* const begin = numbers.at();
    if (rows > numbers.left() || !numbers.skip(rows * fields)) fail("a list goes past the end");
    item.list = {begin, numbers.at()};
  };
  switch (operation) {
    case Operation::kString:
      read(1);
      text();
      break;
    case Operation::kModule:  // id, path, build id, base, ranges
      read(2);
      text();
      read(2);
      list(4);
      break;
    case Operation::kModuleGone:
    case Operation::kThreadEnd:
      read(1);
      break;
    case Operation::kNativeFrame:
    case Operation::kNamedFrame:
    case Operation::kThread:
      read(3);
      break;
    case Operation::kPythonFrame:
      read(4);
      break;
    case Operation::kStack:  // first, parent, frames
      read(3);
      list(1);
      break;
    case Operation::kLost:
    case Operation::kCounter:
    case Operation::kProgramEnd:
      read(2);
      break;
    case Operation::kMappings:  // moment, resident, groups
      read(3);
      list(7);
      break;
    case Operation::kSymbol:  // module, offset, lines
      read(3);
      list(3);
      break;
    default:  // kMap, kUnmap
      item.address = number(numbers);
      item.size = number(numbers);
      item.stack = small(numbers);
      if (item.size == 0 || item.size > kMaxSize || item.address > kMaxAddress - item.size) {
        fail("a mapping that is empty, over 2^56 bytes, or ends beyond 2^63");
      }
  }
}

}  // namespace memoir
