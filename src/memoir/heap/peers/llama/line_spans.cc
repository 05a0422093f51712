// SPDX-License-Identifier: Apache-2.0
#include "memoir/heap/peers/llama/line_spans.h"

#include <algorithm>

namespace memoir {

namespace {
constexpr Size kBlock = LlamaPages::kBlock;
}

Offset LineSpans::allocate(Size size, Size alignment, size_t lifetime, std::uint32_t thread) noexcept {
  const size_t local = (thread % kMostThreads) * LlamaPages::kClasses + lifetime;
  if (!locals_.reserve(local + 1)) return kNoOffset;
  while (locals_.size() <= local) locals_.push_back({});
  Local& own = locals_[local];
  size = align_up(size, kGrain);
  if (const Offset offset = bump(own.through, size, alignment); offset != kNoOffset) return offset;
  if (size <= kLine && alignment <= kLine) {
    do {
      while (next_run(own.through)) {
        if (const Offset offset = bump(own.through, size, alignment); offset != kNoOffset) return offset;
      }
    } while (open_next(own.through, lifetime));
    return kNoOffset;
  }
  if (const Offset offset = bump(own.whole, size, alignment); offset != kNoOffset) return offset;
  return open_fresh(own.whole, lifetime) ? bump(own.whole, size, alignment) : kNoOffset;
}

Offset LineSpans::bump(Run& run, Size size, Size alignment) noexcept {
  if (run.span == kNoSpan) return kNoOffset;
  Span& span = spans_[run.span];
  const Offset at = align_up(span.begin + run.cursor, alignment);
  if (at + size > span.begin + run.limit) return kNoOffset;
  run.cursor = at + size - span.begin;
  ++span.objects;
  for (size_t line = (at - span.begin) / kLine; line <= (run.cursor - 1) / kLine; ++line) ++span.line[line];
  return at;
}

/// The next free lines behind the run.
bool LineSpans::next_run(Run& run) noexcept {
  if (run.span == kNoSpan) return false;
  const Span& span = spans_[run.span];
  size_t line = run.limit / kLine;
  while (line < kLines && span.line[line] != 0) ++line;
  run.cursor = line * kLine;
  while (line < kLines && span.line[line] == 0) ++line;
  run.limit = line * kLine;
  return run.cursor < run.limit;
}

/// A listed span to go through, or a new one.
bool LineSpans::open_next(Run& run, size_t lifetime) noexcept {
  const SpanIndex index = listed_[lifetime];
  if (index == kNoSpan) {
    if (!open_fresh(run, lifetime)) return false;
    run.limit = 0;  // its lines are free, and found as those of others are
    return true;
  }
  close(run);
  unlist(index);
  spans_[index].state = State::kOpen;
  run = {index, 0, 0};
  return true;
}

bool LineSpans::open_fresh(Run& run, size_t lifetime) noexcept {
  if (!unused_.reserve(spans_.size() + 1) || !spans_.reserve(spans_.size() + 1)) return false;
  const Offset begin = pages_->allocate(kSpan, kBlock, lifetime);
  if (begin == kNoOffset) return false;
  if (!by_block_.reserve(begin / kBlock + 2)) {
    pages_->free({begin, kSpan});
    return false;
  }
  while (by_block_.size() < begin / kBlock + 2) by_block_.push_back(0);
  close(run);
  SpanIndex index = static_cast<SpanIndex>(spans_.size());
  if (unused_.empty()) {
    spans_.push_back({});
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  spans_[index] = {};
  spans_[index].begin = begin;
  spans_[index].state = State::kOpen;
  by_block_[begin / kBlock] = by_block_[begin / kBlock + 1] = index + 1;
  run = {index, 0, kSpan};
  return true;
}

void LineSpans::close(Run& run) noexcept {
  if (run.span == kNoSpan) return;
  spans_[run.span].state = State::kClosed;
  if (spans_[run.span].objects == 0) end(run.span);
  run = {};
}

void LineSpans::end(SpanIndex index) noexcept {
  Span& span = spans_[index];
  if (span.state == State::kListed) unlist(index);
  by_block_[span.begin / kBlock] = by_block_[span.begin / kBlock + 1] = 0;
  span.state = State::kUnused;
  unused_.push_back(index);
  pages_->free({span.begin, kSpan});
}

bool LineSpans::free(Range object) noexcept {
  Span* const span = span_at(object.begin);
  if (span == nullptr) return false;
  const Size first = object.begin - span->begin, last = first + align_up(object.size, kGrain) - 1;
  for (size_t line = first / kLine; line <= last / kLine; ++line) --span->line[line];
  if (--span->objects == 0 && span->state != State::kOpen) end(static_cast<SpanIndex>(span - spans_.data()));
  return true;
}

void LineSpans::list_spans(LlamaPages::PageIndex page) noexcept {
  const size_t first = page * LlamaPages::kBlocks;
  const auto lifetime = static_cast<std::uint8_t>(pages_->page(page).lifetime);
  for (size_t block = first; block < std::min(first + LlamaPages::kBlocks, by_block_.size()); ++block) {
    if (by_block_[block] == 0) continue;
    const SpanIndex index = by_block_[block] - 1;
    Span& span = spans_[index];
    if (span.begin != block * kBlock || span.state == State::kOpen) continue;
    if (std::find(span.line, span.line + kLines, 0) == span.line + kLines) continue;
    if (span.state == State::kListed) unlist(index);
    span.state = State::kListed;
    span.lifetime = lifetime;
    span.next = listed_[lifetime];
    if (span.next != kNoSpan) spans_[span.next].previous = index;
    listed_[lifetime] = index;
  }
}

void LineSpans::unlist(SpanIndex index) noexcept {
  Span& span = spans_[index];
  (span.previous != kNoSpan ? spans_[span.previous].next : listed_[span.lifetime]) = span.next;
  if (span.next != kNoSpan) spans_[span.next].previous = span.previous;
  span.next = span.previous = kNoSpan;
}

void LineSpans::trim() noexcept {
  for (Local& local : locals_) {
    for (Run* const run : {&local.through, &local.whole}) {
      if (run->span != kNoSpan && spans_[run->span].objects == 0) close(*run);
    }
  }
}

Size LineSpans::objects() const noexcept {
  Size sum = 0;
  for (const Span& span : spans_) sum += span.state == State::kUnused ? 0 : span.objects;
  return sum;
}

LineSpans::Span* LineSpans::span_at(Offset offset) noexcept {
  const size_t block = offset / kBlock;
  return block < by_block_.size() && by_block_[block] != 0 ? &spans_[by_block_[block] - 1] : nullptr;
}

}  // namespace memoir
