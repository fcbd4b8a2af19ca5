// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

namespace tutti::backend {

/// Returns how many of a machine's GPUs CUDA shows to a process, by the value of its `CUDA_VISIBLE_DEVICES`,
/// nullptr if unset: all, or those of a list of indices, or of UUIDs that may be cut short, up to the first
/// that names none. Returns nothing in cases that only CUDA can decide: parts of GPUs, names that are not
/// unique, GPUs that are named twice, and anything else.
[[nodiscard]] std::optional<int> count_visible(std::span<const std::string> uuids, const char* visible);

}  // namespace tutti::backend
