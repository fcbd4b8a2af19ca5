// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>

/// Keys, and what protects the bytes of a connection with them, by libsodium.
namespace tutti::tcp {

using Key = std::array<std::byte, 32>;
/// Proves that whoever made it has the key, and that nobody has changed the bytes since.
using Tag = std::array<std::byte, 16>;

/// Returns the keyed BLAKE2b digest of the pieces, which is a key that tells nothing about `key`.
[[nodiscard]] Key digest_of(std::span<const std::byte> key,
                            std::initializer_list<std::span<const std::byte>> pieces);
/// Compares digests in a time that does not depend on where they differ.
[[nodiscard]] bool are_equal(std::span<const std::byte> one, std::span<const std::byte> other) noexcept;

/// Fills the bytes with random ones.
void draw(std::span<std::byte> bytes);

/// A key pair of X25519. Two ends that know one another's public keys agree on a secret that nobody else
/// learns, even if all other secrets become known later.
class KeyPair {
 public:
  /// Draws a new pair.
  KeyPair();
  KeyPair(const KeyPair&) = delete;
  KeyPair& operator=(const KeyPair&) = delete;
  ~KeyPair();
  [[nodiscard]] const Key& public_key() const noexcept { return public_; }
  /// Returns the secret that is agreed on with the owner of `other`, or nothing if `other` is no good key.
  [[nodiscard]] std::optional<Key> agree(const Key& other) const;

 private:
  Key public_{};
  Key secret_{};
};

/// Says how the bytes of a connection are protected.
struct Protection {
  std::uint32_t has_aes = 0;  ///< AES-256-GCM in place of ChaCha20-Poly1305: faster, where processors have it
  std::uint32_t encrypts = 0;  ///< or authenticates only
};
/// Returns what this machine can do, and encryption if it is asked for.
[[nodiscard]] Protection protection_offered(bool encrypts);
/// Returns what both ends can do, and encryption if one of them asks for it. It does not depend on the order.
[[nodiscard]] Protection agreed(Protection one, Protection other) noexcept;

/// Protects the records of one direction of a connection, in order: one that is left out, repeated, changed
/// or put elsewhere does not open.
class Seal {
 public:
  Seal(const Key& key, Protection protection);
  Seal(Seal&&) noexcept;
  Seal& operator=(Seal&&) noexcept;
  ~Seal();

  [[nodiscard]] bool encrypts() const noexcept { return protection_.encrypts != 0; }
  /// Returns the tag of the next record, without encrypting it.
  [[nodiscard]] Tag sign(std::span<const std::byte> bytes);
  /// Encrypts the next record in place, and returns its tag.
  [[nodiscard]] Tag encrypt(std::span<std::byte> bytes);
  /// Returns whether the bytes and the tag are the next record, and decrypts it in place if it is encrypted.
  [[nodiscard]] bool open(std::span<std::byte> bytes, const Tag& tag);

 private:
  struct Aes;

  [[nodiscard]] std::array<unsigned char, 12> next_nonce(std::size_t length) noexcept;
  [[nodiscard]] Tag seal(std::span<const std::byte> clear, std::span<std::byte> hidden);

  Protection protection_;
  Key key_;
  std::unique_ptr<Aes> aes_;  ///< the expanded key
  std::uint64_t count_ = 0;   ///< of records
};

}  // namespace tutti::tcp
