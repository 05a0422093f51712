// SPDX-License-Identifier: Apache-2.0
#include "memoir/plan/constrained/bodies.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "memoir/plan/align.h"

namespace memoir {
namespace {

/// At most kMaxConstrainedBytes, which validate() does not let pass.
Size common_multiple(Size a, Size b) {
  const Size part = a / std::gcd(a, b);
  return part > kMaxConstrainedBytes / b ? kMaxConstrainedBytes : part * b;
}

std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> out;
  for (const Range& range : ranges) {
    if (range.size == 0) continue;
    if (!out.empty() && range.begin <= out.back().end()) {
      out.back().size = std::max(out.back().end(), range.end()) - out.back().begin;
    } else {
      out.push_back(range);
    }
  }
  return out;
}

/// Whole pieces that touch or overlap become one. Those of members that may share in place stay separate,
/// because only that member may.
void add_pieces(Bodies& out, std::uint32_t b, const std::vector<bool>& shares) {
  const ConstrainedProblem& problem = *out.problem;
  Body& body = out.bodies[b];
  struct Found {
    Piece piece;
    std::uint32_t buffer;
  };
  std::vector<Found> found;
  for (const std::uint32_t member : body.members) {
    for (Piece piece : pieces_of(problem, member)) {
      piece.window.begin += out.shift[member];
      found.push_back({piece, member});
    }
  }
  if (body.row) {  // neighbours that live at the same time are one piece
    std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
      return std::tie(a.piece.lifetime.begin, a.piece.lifetime.end, a.piece.window.begin) <
             std::tie(b.piece.lifetime.begin, b.piece.lifetime.end, b.piece.window.begin);
    });
    std::size_t last = 0;
    for (std::size_t k = 1; k < found.size(); ++k) {
      Piece& below = found[last].piece;
      const Piece& above = found[k].piece;
      if (below.lifetime == above.lifetime && below.window.end() == above.window.begin) {
        below.window.size += above.window.size;
      } else {
        found[++last] = found[k];
      }
    }
    if (!found.empty()) found.resize(last + 1);
  }
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return a.piece.lifetime.begin < b.piece.lifetime.begin;
  });
  body.first_piece = static_cast<std::uint32_t>(out.pieces.size());
  std::size_t last_whole = ~std::size_t{0};
  for (const auto& [piece, buffer] : found) {
    const bool whole = piece.window.size == body.size && !shares[buffer];
    if (whole && last_whole != ~std::size_t{0}) {
      Lifetime& last = out.pieces[last_whole].lifetime;
      if (piece.lifetime.begin <= last.end) {
        last.end = std::max(last.end, piece.lifetime.end);
        continue;
      }
    }
    if (whole) last_whole = out.pieces.size();
    out.pieces.push_back({piece.lifetime, piece.window.size, 1});
    out.window_begin.push_back(piece.window.begin);
    out.piece_body.push_back(b);
    out.piece_buffer.push_back(buffer);
  }
  body.last_piece = static_cast<std::uint32_t>(out.pieces.size());
}

/// Who comes right behind each buffer that stands for its aliases; kNoBuffer: nobody.
std::vector<std::uint32_t> followers(const Constraints& said, const std::vector<std::uint32_t>& root) {
  std::vector<std::uint32_t> next(root.size(), kNoBuffer);
  for (std::uint32_t i = 0; i < said.after.size(); ++i) {
    if (said.after[i] != kNoBuffer) next[root[said.after[i]]] = root[i];
  }
  return next;
}

/// The smallest lead at which every member of a row meets its alignment: x + shift = 0 (mod alignment) for
/// all.
void align_row(Bodies& out, Body& body) {
  __extension__ typedef __int128 Wide;
  Wide lead = 0, modulus = 1;
  for (const std::uint32_t member : body.members) {
    const Wide alignment = out.problem->buffers[member].alignment;
    const Wide wanted = (alignment - out.shift[member] % alignment) % alignment;
    const Wide common = std::gcd(static_cast<Size>(modulus), static_cast<Size>(alignment));
    if ((wanted - lead) % common != 0) {
      body.misplaced = member;
      return;
    }
    const Wide steps = alignment / common, stride = modulus / common % steps;
    Wide old_rest = stride, rest = steps, old_factor = 1, factor = 0;  // the inverse of stride among steps
    while (rest != 0) {
      const Wide quotient = old_rest / rest;
      old_rest = std::exchange(rest, old_rest - quotient * rest);
      old_factor = std::exchange(factor, old_factor - quotient * factor);
    }
    Wide count = steps == 1 ? 0 : (wanted - lead) / common % steps * old_factor % steps;
    if (count < 0) count += steps;
    lead += count * modulus;
    modulus *= steps;
    if (modulus >= kMaxConstrainedBytes) return;  // which validate() refuses
  }
  body.lead = static_cast<Size>(lead);
}

void unique_sorted(std::vector<std::uint32_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

Bodies make_bodies(const ConstrainedProblem& problem) {
  const Constraints& said = problem.constraints;
  const auto n = static_cast<std::uint32_t>(problem.buffers.size());
  Bodies out;
  out.problem = &problem;
  out.arenas = arenas_of(said);
  for (ArenaChoice& arena : out.arenas) arena.forbidden = merged(std::move(arena.forbidden));

  std::vector<std::uint32_t> root(n);
  std::iota(root.begin(), root.end(), 0u);
  if (!said.alias.empty()) {
    for (std::uint32_t i = 0; i < n; ++i) {
      std::uint32_t end = i;
      while (said.alias[end] != kNoBuffer && root[end] == end) end = said.alias[end];
      end = root[end];
      for (std::uint32_t k = i; said.alias[k] != kNoBuffer && root[k] != end; k = said.alias[k])
        root[k] = end;
    }
  }
  out.shift.assign(n, 0);
  std::vector<bool> in_row(n);
  if (!said.after.empty()) {  // a row is known by its first; all but the first are somebody's followers
    const std::vector<std::uint32_t> next = followers(said, root);
    std::vector<bool> follows(n);
    for (const std::uint32_t i : next) {
      if (i != kNoBuffer) follows[i] = true;
    }
    std::vector<std::uint32_t> first(n);
    std::iota(first.begin(), first.end(), 0u);
    for (std::uint32_t head = 0; head < n; ++head) {
      if (root[head] != head || follows[head] || next[head] == kNoBuffer) continue;
      Size shift = 0;
      for (std::uint32_t i = head; i != kNoBuffer; i = next[i]) {
        first[i] = head;
        out.shift[i] = shift;
        in_row[i] = true;
        shift += problem.buffers[i].size;
      }
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      out.shift[i] = out.shift[root[i]];
      root[i] = first[root[i]];
    }
  }
  out.body_of.assign(n, kNoBuffer);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (out.body_of[root[i]] == kNoBuffer) {
      out.body_of[root[i]] = static_cast<std::uint32_t>(out.bodies.size());
      out.bodies.emplace_back();
      out.bodies.back().allowed = ~std::uint64_t{0};
    }
    const std::uint32_t b = out.body_of[i] = out.body_of[root[i]];
    Body& body = out.bodies[b];
    body.members.push_back(i);
    body.size = std::max(body.size, out.shift[i] + problem.buffers[i].size);
    body.row = in_row[root[i]];
    body.alignment = common_multiple(body.alignment, problem.buffers[i].alignment);
    body.allowed &= allowed_of(said, i);
    body.weight += weight_of(problem, i);
  }
  for (Body& body : out.bodies) {
    if (body.row) {
      align_row(out, body);
      for (const std::uint32_t i : body.members) out.shift[i] += body.lead;
      body.size += body.lead;
    }
    for (const std::uint32_t i : body.members) {
      const Size shift = out.shift[i];
      if (!said.fixed.empty() && said.fixed[i] != kNoOffset)
        body.fixed = said.fixed[i] - std::min(said.fixed[i], shift);
      if (!said.hints.empty() && body.hint == kNoOffset && said.hints[i] != kNoOffset &&
          said.hints[i] >= shift)
        body.hint = said.hints[i] - shift;
    }
  }

  std::vector<bool> shares(n);
  for (const auto& [output, input] : said.in_place) {
    const std::uint32_t a = out.body_of[output], b = out.body_of[input];
    if (a == b || !dies_at_birth(problem, output, input)) continue;
    out.sharing.insert(Bodies::pair_key(output, input));
    shares[output] = shares[input] = true;
    out.bodies[a].partners.push_back(b);
    out.bodies[b].partners.push_back(a);
  }
  for (const auto& [i, j] : said.apart) {
    out.bodies[out.body_of[i]].apart.push_back(out.body_of[j]);
    out.bodies[out.body_of[j]].apart.push_back(out.body_of[i]);
  }
  for (const auto& [i, j] : said.conflicts) {
    const std::uint32_t a = out.body_of[i], b = out.body_of[j];
    if (a == b) continue;  // neighbours in a row
    out.bodies[a].edges.push_back({b, i, j});
    out.bodies[b].edges.push_back({a, j, i});
  }
  for (std::uint32_t b = 0; b < out.bodies.size(); ++b) {
    unique_sorted(out.bodies[b].apart);
    unique_sorted(out.bodies[b].partners);
    if (said.timed) add_pieces(out, b, shares);
  }
  return out;
}

ConstrainedPlan to_plan(const Bodies& bodies, const std::vector<Offset>& offsets,
                        const std::vector<std::uint32_t>& arenas) {
  ConstrainedPlan plan;
  plan.offsets.resize(bodies.body_of.size());
  plan.arenas.resize(bodies.body_of.size());
  plan.arena_sizes.assign(bodies.arenas.size(), 0);
  for (std::size_t i = 0; i < bodies.body_of.size(); ++i) {
    const std::uint32_t b = bodies.body_of[i];
    plan.offsets[i] = offsets[b] + bodies.shift[i];
    plan.arenas[i] = arenas[b];
    Size& size = plan.arena_sizes[arenas[b]];
    size = std::max(size, offsets[b] + bodies.bodies[b].size);
  }
  return plan;
}

Offset next_place(const Body& body, const ArenaChoice& arena, Offset from) {
  if (body.fixed != kNoOffset) {
    if (from > body.fixed) return kNoOffset;
    from = body.fixed;
  }
  Offset at = align_to(from, body.alignment);
  auto range = std::partition_point(arena.forbidden.begin(), arena.forbidden.end(),
                                    [&](const Range& range) { return range.end() <= at + body.lead; });
  for (; range != arena.forbidden.end() && range->begin < at + body.size; ++range) {
    if (range->end() > at + body.lead) at = align_to(range->end() - body.lead, body.alignment);
  }
  return body.fixed != kNoOffset && at != body.fixed ? kNoOffset : at;
}

}  // namespace memoir
