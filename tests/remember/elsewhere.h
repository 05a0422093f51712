// SPDX-License-Identifier: Apache-2.0
//
// What another thread, or whoever did not follow the plan, does with memory of a slab.
#pragma once

#include "memoir/remember/slab/address_space.h"

namespace memoir {

inline void give_memory_back(const void* pointer) {
  AddressSpace::instance().owner_of(pointer)->free_from_elsewhere(const_cast<void*>(pointer));
}

}  // namespace memoir
