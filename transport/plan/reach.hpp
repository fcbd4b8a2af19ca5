// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace tutti::transport {

/// Tells whether a device may read and write another's memory; true for itself.
using Reach = std::function<bool(int device, int peer)>;

}  // namespace tutti::transport
