// SPDX-License-Identifier: Apache-2.0
#include "memoir/policy/option_limits.h"

#include <string>

#include "memoir/base/error.h"
#include "memoir/policy/settings.h"

namespace memoir {

namespace {

constexpr Size kLargest = Size{1} << (BinnedHeap::kBins - 1);
// SplitHeap: the unit of the next class, so that a size that is rounded up never lands below its class.
constexpr Size kLargeUnit = 128 * kKiB, kHugeUnit = kMiB;

class Limits {
 public:
  explicit Limits(std::string_view policy) : policy_(policy) {}

  void hold(bool within, std::string_view setting, const std::string& value, const std::string& rule) const {
    if (within) return;
    throw Error("policy '" + std::string(policy_) + "', " + std::string(setting) + "=" + value +
                ": must be " + rule);
  }
  void hold(bool within, std::string_view setting, Size bytes, const std::string& rule) const {
    hold(within, setting, bytes_setting(bytes), rule);
  }

 private:
  std::string_view policy_;
};

}  // namespace

void check_options(const BinnedOptions& options, std::string_view policy) {
  const Limits limits(policy);
  const std::string delay = detail::number_text(options.least_delay);
  limits.hold(options.largest <= kLargest, "largest", options.largest, "at most " + bytes_setting(kLargest));
  limits.hold(options.least_delay > 0, "least_delay", delay, "above 0");
  limits.hold(options.most_delay >= options.least_delay, "most_delay",
              detail::number_text(options.most_delay), "at least least_delay, " + delay);
}

void check_options(const SplitOptions& options, std::string_view policy) {
  const Limits limits(policy);
  limits.hold(options.small != 0 && options.small % kLargeUnit == 0, "small", options.small,
              "a multiple of " + bytes_setting(kLargeUnit) + ", above 0");
  limits.hold(options.large >= options.small && options.large <= ~Size{0} / 4, "large", options.large,
              "at least small, " + bytes_setting(options.small) + ", and below 2^62 bytes");
  limits.hold(options.large % kHugeUnit == 0, "large", options.large,
              "a multiple of " + bytes_setting(kHugeUnit));
}

void check_options(const RmmOptions& options, std::string_view policy) {
  const Limits limits(policy);
  limits.hold(options.maximum == 0 || options.initial <= options.maximum, "initial", options.initial,
              "at most maximum, " + bytes_setting(options.maximum));
}

void check_options(const RmmArenaOptions& options, std::string_view policy) {
  const Limits limits(policy);
  limits.hold(options.size == 0 || options.size >= RmmArenaHeap::kSuperblock, "size", options.size,
              "0, or at least " + bytes_setting(RmmArenaHeap::kSuperblock));
  limits.hold(options.part >= 0 && options.part <= 1, "part", detail::number_text(options.part),
              "from 0 to 1");
}

void check_pool_alignment(Size alignment, Size granule) {
  if (is_power_of_two(alignment) && alignment <= granule) return;
  throw Error("alignment=" + bytes_setting(alignment) + ": must be a power of two, at most the granule of " +
              bytes_setting(granule));
}

}  // namespace memoir
