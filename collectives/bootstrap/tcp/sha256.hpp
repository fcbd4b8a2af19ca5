// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::tcp {

using Digest = std::array<std::byte, 32>;

/// Returns the SHA-256 digest, of FIPS 180-4.
[[nodiscard]] Digest sha256(std::span<const std::byte> message);
/// Returns the HMAC with SHA-256, of RFC 2104.
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
/// Compares digests in a time that does not depend on where they differ.
[[nodiscard]] bool are_equal(const Digest& one, const Digest& other) noexcept;

}  // namespace tutti::tcp
