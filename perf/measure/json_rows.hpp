// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

/// Pieces of the JSON document.
namespace tutti::perf {

using Json = nlohmann::ordered_json;

enum class Detail : std::uint8_t { summaries, each_latency };

/// An entry of `rows`.
[[nodiscard]] Json row_of(const Row& row, Detail detail);

[[nodiscard]] Json number_or_null(const std::optional<double>& number);
[[nodiscard]] Json text_or_null(const std::string& text);
[[nodiscard]] std::string_view name_of(ResultForm form) noexcept;

}  // namespace tutti::perf
