// SPDX-License-Identifier: Apache-2.0
//
// What in a command line looks like a secret: recordings hold command lines, and people pass recordings on.
#pragma once

#include <cstddef>

namespace memoir {

/// Replaces the values of secrets by "***", in place. `arguments`: as /proc/PID/cmdline has them, each with a
/// zero behind it; text in one argument (sh -c) is looked through too. Returns how many bytes are left.
///
///   --password=x   --api-key x   PGPASSWORD=x   curl -u me:x   postgres://me:x@host   -H 'Authorization: x'
///   ghp_x, sk-x and other tokens that are known by how they begin   mysql -px
///
/// It is a guess by names: a secret that is named otherwise stays, and what is only named like one goes.
std::size_t mask_secrets(char* arguments, std::size_t size) noexcept;

}  // namespace memoir
