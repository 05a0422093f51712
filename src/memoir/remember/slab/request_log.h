// SPDX-License-Identifier: Apache-2.0
//
// What a pass that follows a plan asked for, in order.
#pragma once

#include "memoir/base/metadata.h"
#include "memoir/base/units.h"

namespace memoir {

struct LoggedRequest {
  Size size = 0;
  SiteId site = kNoSite;  // kNoSite: nobody listened to operators
};
using RequestLog = MetadataArray<LoggedRequest>;

}  // namespace memoir
