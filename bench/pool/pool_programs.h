// SPDX-License-Identifier: Apache-2.0
//
// Programs that are hard on a device's pool, made from a seed: what is allocated and freed, in order.
//
//   name           shape
//   phases         sizes move to another class in each of eight phases; some objects stay into the next one
//   survivors      small objects that stay among large short ones
//   comb           every second of many equal blocks is freed, then larger ones are asked for
//   paged          pages of a KV cache, evicted and filled again on two streams
//   kvcat          KV caches that grow by reallocation while requests come and go
//   four_streams   chains on four streams that hand results over
//   experts        a layer of experts: each step splits a batch into random parts
//   serving        prefills of random length next to long decodes, chunks of cache in between
//   quantise       weights are loaded, converted one by one, and their originals dropped
//   beams          search: candidates are copied, most of them dropped, one lives on
//   lru            a cache of log-normal sizes at a constant fill, evicted at random
//   graphs         neighbourhoods of heavy-tailed size in each step, with a cache of features
//   buckets        images in a few resolutions in random order, scratch in each
//   tuning         convolution workspaces of many sizes tried in turn between weights that stay
//
// Sizes are those of programs on a GPU: peaks of one to some twenty GiB, 4,000 to 60,000 operations. The same
// seed gives the same program everywhere, but for the last bit of exp2: no distribution of the standard
// library is used.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "memoir/trace/event.h"

namespace memoir::programs {

/// All names, in the order above.
std::vector<std::string_view> names();

/// Allocations and frees. Throws Error for an unknown name.
std::vector<Event> make(std::string_view name, std::uint64_t seed);

}  // namespace memoir::programs
