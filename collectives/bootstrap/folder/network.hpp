// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/folder/session.hpp"
#include "tutti/exchange.hpp"

#include <memory>

namespace tutti::shared_folder {

/// Makes a network among all ranks of `exchange`, who call it together, with files in the session's folder.
/// Throws on all of them if one cannot.
[[nodiscard]] std::unique_ptr<Network> make_network(std::shared_ptr<const Session> session,
                                                    tutti::Exchange& exchange);

}  // namespace tutti::shared_folder
