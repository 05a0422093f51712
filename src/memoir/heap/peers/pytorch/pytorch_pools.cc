// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/pytorch/pytorch_pools.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr const char* kPhases[] = {"1 search",        "2 callbacks",     "3 old segments",
                                   "4 device",        "5 lent pools",    "6 oversize blocks",
                                   "7 await pending", "7 release cached"};
}

PyTorchPools::PyTorchPools(const PyTorchOptions& options, bool expandable, Collector* collector,
                           PhaseTable* phases) noexcept
    : options_(options),
      rounding_(options),
      expandable_(expandable),
      allowed_(options.allowed_memory()),
      ages_(options.collects_garbage()),
      collector_(collector),
      phases_(phases) {
  if (phases_ != nullptr) phases_->name(kPhases);
  ok_ = blocks_.ok() && sets_.push_back({}) && set_keys_.push_back(~std::uint64_t{0}) &&
        owners_.push_back({0, 1, 0, true, false, false}) && searches_.assign(2, 0);
}

Offset PyTorchPools::allocate(const Request& request) noexcept {
  if (request.size == 0 || request.size > PyTorchRounding::kLargestRequest ||
      !is_power_of_two(request.alignment) || request.alignment > PyTorchRounding::kSmallestBlock || !ok_) {
    return kNoOffset;
  }
  const Size size = rounding_.block_size(request.size);
  const std::uint32_t owner = captures_.empty() ? 0 : owner_for(request.stream);
  const Want want{size, rounding_.segment_size(size),
                  set_of(pool_of(owner, PyTorchRounding::is_small(size)), request.stream)};
  if (want.set == 0 || !blocks_.reserve_live()) [[unlikely]]
    return kNoOffset;

  BlockIndex index = search(want);
  if (index == 0) [[unlikely]] {
    index = climb(want, request.stream);
    if (index == 0) {
      ++counts_.num_ooms;
      return kNoOffset;
    }
  }
  if (is_split_worth(blocks_[index], size)) {
    const BlockIndex rest = blocks_.split(index, size);
    if (rest != 0) {
      blocks_.swap_numbers(index, rest);  // PyTorch makes the new record for the object
      insert_free(rest);
    }
  }
  make_live(index, request.size);
  return blocks_[index].range.begin;
}

bool PyTorchPools::free(Offset offset) noexcept {
  const BlockIndex index = blocks_.take_live(offset);
  if (index == 0) return false;
  live_ -= blocks_[index].asked;
  blocks_[index].asked = 0;
  ++frees_;
  merge(index);
  insert_free(index);
  return true;
}

Size PyTorchPools::size_of(Offset offset) const noexcept {
  const BlockIndex index = blocks_.find_live(offset);
  return index == 0 ? 0 : blocks_[index].range.size;
}

// --- blocks and sets ---

void PyTorchPools::insert_free(BlockIndex index) noexcept {
  Set& set = sets_[blocks_[index].set];
  if (ages_) blocks_[index].inserted = searches_[set.pool];
  set.free.insert(blocks_, index);
}

void PyTorchPools::merge(BlockIndex index) noexcept {
  const auto is_alike = [&](BlockIndex other) {
    return other != 0 && !blocks_[other].is_live() && blocks_[other].mapped;
  };
  if (const BlockIndex before = blocks_[index].before; is_alike(before)) {
    erase_free(before);
    blocks_.absorb(index, before);
  }
  if (const BlockIndex after = blocks_[index].after; is_alike(after)) {
    erase_free(after);
    blocks_.absorb(index, after);
  }
}

std::uint32_t PyTorchPools::find_set(std::uint64_t key, std::uint32_t& hint) noexcept {
  for (std::uint32_t set = 1; set < set_keys_.size(); ++set) {
    if (set_keys_[set] == key) return hint = set;
  }
  const auto pool = static_cast<std::uint32_t>(key >> 32);
  if (!set_keys_.reserve(set_keys_.size() + 1) ||
      !sets_.push_back({.pool = pool,
                        .stream = static_cast<StreamId>(key),
                        .free = FreeBlockSet(options_.ties_by_record),
                        .first_unmapped = 0})) {
    return 0;
  }
  set_keys_.push_back(key);
  return hint = static_cast<std::uint32_t>(set_keys_.size() - 1);
}

void PyTorchPools::make_live(BlockIndex index, Size asked) noexcept {
  blocks_[index].asked = asked;
  blocks_.insert_live(index);
  live_ += asked;
}

bool PyTorchPools::can_hold(Range memory, std::span<const RestoredObject> objects) noexcept {
  const auto fits_units = [](Range range) {
    return range.size != 0 && (range.begin | range.size) % PyTorchRounding::kSmallestBlock == 0;
  };
  if (!fits_units(memory) || memory.size > PyTorchRounding::kLargestRequest) return false;
  Offset free_from = memory.begin;
  for (const auto& [block, asked] : objects) {
    if (!fits_units(block) || asked == 0 || asked > block.size || block.begin < free_from ||
        block.begin > memory.end() || block.size > memory.end() - block.begin) {
      return false;
    }
    free_from = block.end();
  }
  return true;
}

void PyTorchPools::place(BlockIndex index, Offset base, std::span<const RestoredObject> objects) noexcept {
  for (const auto& [block, asked] : objects) {
    if (const Offset begin = base + block.begin; begin != blocks_[index].range.begin) {
      const BlockIndex rest = blocks_.split(index, begin - blocks_[index].range.begin);
      insert_free(index);
      index = rest;
    }
    const BlockIndex rest = block.size == blocks_[index].range.size ? 0 : blocks_.split(index, block.size);
    make_live(index, asked);
    index = rest;
  }
  if (index != 0) insert_free(index);
}

void PyTorchPools::hold(std::uint32_t set, Size size) noexcept {
  reserved_ += size;
  owner_of(set).reserved += size;
}

void PyTorchPools::let_go(std::uint32_t set, Size size) noexcept {
  reserved_ -= size;
  owner_of(set).reserved -= size;
}

BlockView PyTorchPools::view(BlockIndex index) const noexcept {
  const CachedBlock& block = blocks_[index];
  const Set& set = sets_[block.set];
  return {block.range,   block.asked,  set.stream,       owners_[set.pool / 2].id,
          is_small(set), block.mapped, block.before == 0};
}

// --- best fit ---

/// Takes the block that PyTorch would take out of the set, or answers 0.
BlockIndex PyTorchPools::search(const Want& want) noexcept {
  const PhaseTable::Timer timer(phases_, kSearch);
  Set& set = sets_[want.set];
  if (ages_) ++searches_[set.pool];
  BlockIndex index = set.free.best_fit(blocks_, want.size);
  if (index == 0) return 0;
  if (expandable_) index = prefer_expandable(index);
  const Size size = blocks_[index].range.size;
  if (want.size < options_.max_split_size) {
    if (size >= options_.max_split_size) return 0;
  } else if (size - want.size >= options_.max_non_split_rounding) {
    return 0;
  }
  set.free.erase(blocks_, index);
  return index;
}

/// Among free blocks of growing size, the first whose room to grow is the least: a block that ends where the
/// mapped memory does counts as all the addresses behind it.
BlockIndex PyTorchPools::prefer_expandable(BlockIndex index) const noexcept {
  const auto room = [&](BlockIndex at) {
    const BlockIndex after = blocks_[at].after;
    return blocks_[at].range.size + (after != 0 && !blocks_[after].mapped ? blocks_[after].range.size : 0);
  };
  const FreeBlockSet& free = sets_[blocks_[index].set].free;
  for (Size least = room(index);;) {
    const BlockIndex after = blocks_[index].after;
    if (after == 0 || blocks_[after].mapped) return index;  // its room is its size: none has less
    const BlockIndex next = free.next(blocks_, index);
    if (next == 0 || room(next) >= least) return index;
    index = next;
    least = room(index);
  }
}

bool PyTorchPools::is_split_worth(const CachedBlock& block, Size size) const noexcept {
  const Set& set = sets_[block.set];
  if (any_whole_ && owners_[set.pool / 2].whole) [[unlikely]]
    return false;
  const Size rest = block.range.size - size;
  if (is_small(set) || expandable_) return rest >= PyTorchRounding::kSmallestBlock;
  return size < options_.max_split_size && rest > PyTorchRounding::kLargestSmall;
}

// --- private pools ---

std::uint32_t PyTorchPools::find_owner(PoolId pool) const noexcept {
  for (std::uint32_t owner = 1; owner < owners_.size(); ++owner) {
    if (owners_[owner].exists && owners_[owner].id == pool) return owner;
  }
  return 0;
}

std::uint32_t PyTorchPools::owner_for(StreamId stream) const noexcept {
  for (size_t i = captures_.size(); i-- > 0;) {
    const PoolFilter& filter = captures_[i].filter;
    if (filter.takes == nullptr || filter.takes(filter.context, stream)) return captures_[i].owner;
  }
  return 0;
}

bool PyTorchPools::add_pool_use(PoolId pool) noexcept {
  if (pool == 0 || !ok_) return false;
  std::uint32_t owner = find_owner(pool);
  if (owner != 0) {
    if (owners_[owner].uses == 0) return false;  // its last use ended
    ++owners_[owner].uses;
    return true;
  }
  owner = 1;
  while (owner < owners_.size() && owners_[owner].exists) ++owner;
  if (owner == owners_.size()) {
    if (!searches_.reserve(searches_.size() + 2) || !owners_.push_back({})) return false;
    searches_.push_back(0);
    searches_.push_back(0);
  }
  owners_[owner] = {.id = pool, .uses = 1, .reserved = 0, .exists = true, .lent = false, .whole = false};
  return true;
}

bool PyTorchPools::release_pool(PoolId pool) noexcept {
  const std::uint32_t owner = find_owner(pool);
  if (owner == 0 || owners_[owner].uses == 0) return false;
  --owners_[owner].uses;
  return true;
}

int PyTorchPools::pool_uses(PoolId pool) const noexcept {
  const std::uint32_t owner = find_owner(pool);
  return owner == 0 ? 0 : static_cast<int>(owners_[owner].uses);
}

bool PyTorchPools::begin_allocate_to_pool(PoolId pool, PoolFilter filter, bool capture) noexcept {
  const auto is_this = [&](const Capture& other) { return owners_[other.owner].id == pool; };
  if (std::any_of(captures_.begin(), captures_.end(), is_this) || !captures_.reserve(captures_.size() + 1) ||
      !add_pool_use(pool)) {
    return false;
  }
  captures_.push_back({find_owner(pool), filter, capture});
  return true;
}

bool PyTorchPools::end_allocate_to_pool(PoolId pool) noexcept {
  for (size_t i = 0; i < captures_.size(); ++i) {
    if (owners_[captures_[i].owner].id != pool) continue;
    for (; i + 1 < captures_.size(); ++i) captures_[i] = captures_[i + 1];
    captures_.pop_back();
    return true;
  }
  return false;
}

bool PyTorchPools::lend_pool(PoolId pool, bool lend) noexcept {
  const std::uint32_t owner = find_owner(pool);
  if (owner == 0) return false;
  owners_[owner].lent = lend;
  return true;
}

bool PyTorchPools::keep_pool_whole(PoolId pool) noexcept {
  const std::uint32_t owner = find_owner(pool);
  if (owner == 0) return false;
  owners_[owner].whole = any_whole_ = true;
  return true;
}

}  // namespace memoir
