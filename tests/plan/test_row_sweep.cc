// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/plan/search/auto.h"
#include "memoir/plan/search/full/row_sweep.h"
#include "memoir/plan/search/full/row_tree.h"
#include "problems.h"
#include "support/rounds.h"

namespace memoir {
namespace {

using Row = std::string;  // a letter for each leaf, from the bottom up

/// Rows, brute force: all orders, of which constraints leave some.
std::set<Row> all_rows(Row row) {
  std::sort(row.begin(), row.end());
  std::set<Row> rows;
  do rows.insert(row);
  while (std::next_permutation(row.begin(), row.end()));
  return rows;
}

bool are_neighbours(const Row& row, const Row& set) {
  std::size_t first = row.size(), last = 0;
  for (const char leaf : set) {
    first = std::min(first, row.find(leaf));
    last = std::max(last, row.find(leaf));
  }
  return last - first + 1 == set.size();
}

RowTree::Marks mark_of(char leaf) { return RowTree::Marks{1} << (leaf - 'a'); }
RowTree::Marks marks_of(const Row& set) {
  RowTree::Marks marks = 0;
  for (const char leaf : set) marks |= mark_of(leaf);
  return marks;
}

RowTree::Id any_of(RowTree& tree, const Row& leaves) {
  std::vector<RowTree::Id> ids;
  for (const char leaf : leaves)
    ids.push_back(tree.add({static_cast<std::uint32_t>(leaf), 1}, mark_of(leaf)));
  return tree.add_any(ids);
}

Row one_row(const RowTree& tree, RowTree::Id root) {
  std::vector<RowTree::Leaf> leaves;
  tree.leaves(root, leaves);
  Row row;
  for (const RowTree::Leaf& leaf : leaves) row += static_cast<char>(leaf.name);
  return row;
}

Row random_set(std::mt19937_64& random, const Row& from) {
  Row set;
  while (set.empty()) {
    for (const char leaf : from) {
      if (random() % 3 == 0) set += leaf;
    }
  }
  return set;
}

/// A height full at every tick: now and then some neighbours of the row end, and others take their place.
Problem full_problem(std::mt19937_64& random, std::size_t count, Size height, double left_out = 0) {
  struct Piece {
    Tick begin;
    Size size;
  };
  const auto cut = [&](Size size, std::size_t parts, Tick tick) {
    std::set<Size> cuts{size};
    while (cuts.size() < std::min<Size>(parts, size)) cuts.insert(1 + random() % size);
    std::vector<Piece> pieces;
    Size below = 0;
    for (const Size top : cuts) pieces.push_back({tick, top - below}), below = top;
    return pieces;
  };
  Problem problem;
  std::vector<Piece> row = cut(height, 10, 0);
  Tick tick = 0;
  const auto end = [&](const Piece& piece) {
    if (static_cast<double>(random() % 1000) >= 1000 * left_out)
      problem.push_back({{piece.begin, tick}, piece.size, 1});
  };
  while (problem.size() + row.size() < count) {
    ++tick;
    const std::size_t ending = 1 + random() % 3,
                      from = random() % (row.size() - std::min(row.size() - 1, ending));
    const auto first = row.begin() + static_cast<std::ptrdiff_t>(from);
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(ending, row.size() - from));
    Size size = 0;
    for (auto piece = first; piece != last; ++piece) end(*piece), size += piece->size;
    const std::size_t parts = row.size() > 14 ? 1 : 1 + random() % 4;
    const std::vector<Piece> newborn = cut(size, parts, tick);
    row.insert(row.erase(first, last), newborn.begin(), newborn.end());
  }
  ++tick;
  for (const Piece& piece : row) end(piece);
  std::shuffle(problem.begin(), problem.end(), random);
  return problem;
}

// Of a plan of the height or, where no tree comes through, none.
std::vector<Offset> sweep(const Problem& problem, Size height, const RowSweepOptions& options) {
  const Sections sections = find_sections(problem);
  RowSweep search(problem, sections, find_grid(problem), height, options);
  std::uint64_t work = 0;
  while (!search.ended()) search.run(1000, {}, work);
  return search.passed() == sections.count ? search.offsets() : std::vector<Offset>{};
}

}  // namespace

TEST_CASE("a tree of rows holds exactly the orders that its constraints leave") {
  std::mt19937_64 random(1);
  std::size_t refused = 0;
  for (int round = 0; round < rounds(400); ++round) {
    const Row row = Row("abcdefg").substr(0, 3 + random() % 5);
    RowTree tree;
    RowTree::Id root = any_of(tree, row);
    std::set<Row> rows = all_rows(row);
    double lost = 0;
    for (int constraint = 0; constraint < 5; ++constraint) {
      CAPTURE(round);
      // Which sets may be neighbours is known before.
      const std::vector<RowTree::Marks> sets = tree.neighbours(root, marks_of(row));
      std::set<RowTree::Marks> possible;
      for (const Row& one : rows) {
        for (std::size_t from = 0; from < one.size(); ++from) {
          for (std::size_t to = from + 1; to <= one.size(); ++to)
            possible.insert(marks_of(one.substr(from, to - from)));
        }
      }
      CHECK(std::set<RowTree::Marks>(sets.begin(), sets.end()) == possible);

      const Row set = random_set(random, row);
      std::set<Row> left;
      for (const Row& one : rows) {
        if (are_neighbours(one, set)) left.insert(one);
      }
      const RowTree::Id gathered = tree.gather(root, marks_of(set), lost);
      CHECK((gathered == RowTree::kNone) == left.empty());
      if (gathered == RowTree::kNone) {
        ++refused;
        break;
      }
      rows = left;
      root = gathered;
      CHECK(rows.contains(one_row(tree, root)));
      CHECK(std::exp(log_factorial(row.size()) - lost) == doctest::Approx(static_cast<double>(rows.size())));
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("neighbours are replaced, and what stood in their place is known for the way back") {
  RowTree tree;
  double lost = 0;
  RowTree::Id root = tree.gather(any_of(tree, "abcde"), marks_of("ab"), lost);
  root = tree.gather(root, marks_of("bc"), lost);  // a b c in a row, or reversed
  RowTree::Block block;
  root = tree.replace(root, marks_of("bc"), any_of(tree, "xy"), block);
  REQUIRE(root != RowTree::kNone);
  std::vector<RowTree::Leaf> before;
  tree.leaves(block, before);
  REQUIRE(before.size() == 2);
  std::uint32_t beside = 0;
  bool first = false;
  REQUIRE(tree.beside(block, beside, first));
  CHECK(beside == 'a');
  CHECK(before[first ? 0 : 1].name == 'b');
  CHECK(tree.gather(root, marks_of("ax"), lost) != RowTree::kNone);
  CHECK(tree.gather(root, marks_of("ad"), lost) != RowTree::kNone);
  RowTree other;
  CHECK(other.hash(any_of(other, "abc")) == other.hash(any_of(other, "cab")));
  CHECK(other.hash(any_of(other, "abc")) != other.hash(any_of(other, "abd")));
}

TEST_CASE("free leaves become one room only where they are neighbours in every order") {
  RowTree tree;
  const auto leaf = [&](char name, bool free) {
    return tree.add({static_cast<std::uint32_t>(name), 1, free}, mark_of(name));
  };
  const std::vector<RowTree::Id> any{leaf('a', true), leaf('b', true), leaf('c', false)};
  CHECK(tree.joined_room(tree.add_any(any)) == 0);
  CHECK(tree.joined_room(tree.add_ordered(any)) == marks_of("ab"));
  const std::vector<RowTree::Id> both{leaf('d', true), leaf('e', true)};
  const std::vector<RowTree::Id> nested{tree.add_any(both), leaf('f', false)};
  CHECK(tree.joined_room(tree.add_any(nested)) == marks_of("de"));
}

TEST_CASE("what is full at every tick is packed without a gap, from either end of time") {
  std::mt19937_64 random(5);
  int packed = 0, tried = 0;
  for (int round = 0; round < rounds(20); ++round) {
    const Problem problem = full_problem(random, 100 + random() % 200, 100'000);
    REQUIRE(load(problem) == 100'000);
    for (const bool backwards : {false, true}) {
      CAPTURE(round);
      const std::vector<Offset> offsets = sweep(problem, 100'000, {20, backwards});
      ++tried;
      if (offsets.empty()) continue;
      const Plan plan{offsets, 100'000};
      CHECK_FALSE(check(problem, plan).has_value());
      ++packed;
      CHECK(sweep(problem, 100'000, {20, backwards}) == offsets);
    }
  }
  CHECK(packed > tried * 3 / 4);
}

TEST_CASE("a sweep's plan is valid whatever the problem, and less than the load is refused") {
  std::mt19937_64 random(6);
  int found = 0;
  for (int round = 0; round < rounds(300); ++round) {
    const bool full = round % 2 == 0;
    const Problem problem = full ? full_problem(random, 60, 1000, 0.05)
                                 : random_problem(random, 1 + random() % 30, 1 + random() % 20, 9);
    CAPTURE(round);
    const Size height = load(problem) + random() % 3;
    const std::vector<Offset> offsets = sweep(
        problem, height, {1 + random() % 10, random() % 2 == 0, round % 4 == 0, round % 3 * 0.5, random()});
    CHECK(sweep(problem, load(problem) - 1, {}).empty());
    if (offsets.empty()) continue;
    ++found;
    Size arena = 0;
    for (std::size_t i = 0; i < problem.size(); ++i) arena = std::max(arena, offsets[i] + problem[i].size);
    CHECK_FALSE(check(problem, {offsets, arena}).has_value());
    CHECK(arena <= height);
  }
  CHECK(found > rounds(300) / 3);
}

TEST_CASE("auto packs problems that are full at every tick") {
  std::mt19937_64 random(7);
  SearchOptions options;
  options.work_limit = 300'000;
  int proven = 0;
  const int problems = rounds(6);
  for (int round = 0; round < problems; ++round)
    proven += plan_auto(full_problem(random, 600, 1'000'000), options).optimal;
  CHECK(proven >= problems / 2);
}

}  // namespace memoir
