// SPDX-License-Identifier: Apache-2.0
// Arithmetic on long numbers: every intermediate result is a small block of its own that lives for a few
// steps. The pattern of `cfrac` (Barrett's continued fractions, in Grunwald, Zorn, Henderson, PLDI 1993),
// here as convergents of the continued fraction of e. What it shows: the fast path of a program that
// computes, and does not only allocate.
#include <cstdlib>
#include <cstring>

#include "workload.h"

using namespace memoir::bench;

namespace {

// Little-endian words; never changed once made.
struct Number {
  uint32_t length;
  uint32_t words[1];
};

Number* make(uint32_t length) {
  auto* number = static_cast<Number*>(allocate(sizeof(uint32_t) * (length + 1)));
  number->length = length;
  return number;
}

// a * factor + b
Number* multiply_add(const Number* a, uint32_t factor, const Number* b) {
  const uint32_t longest = a->length > b->length ? a->length : b->length;
  Number* result = make(longest + 1);
  uint64_t carry = 0;
  for (uint32_t i = 0; i <= longest; ++i) {
    carry += i < a->length ? static_cast<uint64_t>(a->words[i]) * factor : 0;
    carry += i < b->length ? b->words[i] : 0;
    result->words[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  if (result->words[longest] == 0) --result->length;
  return result;
}

Number* of(uint32_t value) {
  Number* number = make(1);
  number->words[0] = value;
  return number;
}

// The next convergent's numerator or denominator takes the place of the one before the last.
void step(Number*& before, Number*& last, uint32_t quotient) {
  Number* next = multiply_add(last, quotient, before);
  std::free(before);
  before = last;
  last = next;
}

constexpr uint64_t kTerms = 100;

void convergents() {
  Number *p0 = of(1), *p1 = of(2), *q0 = of(0), *q1 = of(1);
  for (uint64_t term = 1; term < kTerms; ++term) {
    // [2; 1,2,1, 1,4,1, ...]
    const uint32_t quotient = term % 3 == 2 ? static_cast<uint32_t>(2 * (term + 1) / 3) : 1;
    step(p0, p1, quotient);
    step(q0, q1, quotient);
  }
  if (p1->length < q1->length) std::exit(4);  // p / q is near 2.718
  for (Number* number : {p0, p1, q0, q1}) std::free(number);
}

}  // namespace

int main(int count, char** arguments) {
  const Workload workload = parse(count, arguments);
  const uint64_t rounds = workload.operations(30'000);
  const double start = seconds();
  run_threads(workload.threads, [&](int) {
    for (uint64_t round = 0; round < rounds; ++round) convergents();
  });
  const uint64_t numbers = 4 + 2 * (kTerms - 1);  // of a round
  report(rounds * numbers * static_cast<uint64_t>(workload.threads), seconds() - start);
}
