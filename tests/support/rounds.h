// SPDX-License-Identifier: Apache-2.0
//
// How often a test repeats itself.
#pragma once

#include <algorithm>

namespace memoir {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

/// `all`, or an eighth of it under a sanitizer, where each round takes about ten times as long: there the
/// rounds look at how memory is touched; that the answers are right is for the release build to see.
template <class Count>
constexpr Count rounds(Count all) {
  return kSanitized ? std::max(static_cast<Count>(all / 8), static_cast<Count>(1)) : all;
}

}  // namespace memoir
