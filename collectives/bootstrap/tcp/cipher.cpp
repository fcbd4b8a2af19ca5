// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/cipher.hpp"

#include "tutti/error.hpp"

#include <cstring>

#include <sodium.h>

namespace tutti::tcp {
namespace {

static_assert(sizeof(Key) == crypto_generichash_BYTES && sizeof(Key) == crypto_scalarmult_BYTES);
static_assert(sizeof(Key) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);
static_assert(sizeof(Key) == crypto_aead_aes256gcm_KEYBYTES);
static_assert(sizeof(Tag) == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(sizeof(Tag) == crypto_aead_aes256gcm_ABYTES);

/// Must have been called before anything else of libsodium is. Costs a load after the first time.
void require_sodium() {
  static const int status = sodium_init();
  if (status < 0) throw Error(ErrorCode::transport_failure, "libsodium cannot be used: sodium_init failed");
}

// Functions of libsodium want a pointer also to no bytes.
const unsigned char* in(std::span<const std::byte> bytes) {
  static constexpr unsigned char nothing = 0;
  return bytes.empty() ? &nothing : reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* out(std::span<std::byte> bytes) {
  static unsigned char nothing = 0;  // is never written
  return bytes.empty() ? &nothing : reinterpret_cast<unsigned char*>(bytes.data());
}

}  // namespace

Key digest_of(std::span<const std::byte> key, std::initializer_list<std::span<const std::byte>> pieces) {
  require_sodium();
  crypto_generichash_state state;
  Key digest{};
  crypto_generichash_init(&state, in(key), key.size(), digest.size());
  for (const std::span<const std::byte> piece : pieces)
    crypto_generichash_update(&state, in(piece), piece.size());
  crypto_generichash_final(&state, out(digest), digest.size());
  return digest;
}

bool are_equal(std::span<const std::byte> one, std::span<const std::byte> other) noexcept {
  return one.size() == other.size() && sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

void draw(std::span<std::byte> bytes) {
  require_sodium();
  randombytes_buf(bytes.data(), bytes.size());
}

KeyPair::KeyPair() {
  draw(secret_);
  crypto_scalarmult_base(out(public_), in(secret_));
}

KeyPair::~KeyPair() {
  sodium_memzero(secret_.data(), secret_.size());
}

std::optional<Key> KeyPair::agree(const Key& other) const {
  Key shared{};
  if (crypto_scalarmult(out(shared), in(secret_), in(other)) != 0) return std::nullopt;
  return shared;
}

Protection protection_offered(bool encrypts) {
  require_sodium();
  return {.has_aes = crypto_aead_aes256gcm_is_available() != 0 ? 1U : 0U, .encrypts = encrypts ? 1U : 0U};
}

Protection agreed(Protection one, Protection other) noexcept {
  return {.has_aes = one.has_aes & other.has_aes, .encrypts = one.encrypts | other.encrypts};
}

struct Seal::Aes {
  Aes() = default;
  Aes(const Aes&) = delete;
  Aes& operator=(const Aes&) = delete;
  ~Aes() { sodium_memzero(&state, sizeof(state)); }
  crypto_aead_aes256gcm_state state{};
};

Seal::Seal(const Key& key, Protection protection) : protection_(protection), key_(key) {
  require_sodium();
  if (protection.has_aes == 0) return;
  aes_ = std::make_unique<Aes>();
  crypto_aead_aes256gcm_beforenm(&aes_->state, in(key));
}

Seal::Seal(Seal&&) noexcept = default;
Seal& Seal::operator=(Seal&&) noexcept = default;
Seal::~Seal() {
  sodium_memzero(key_.data(), key_.size());
}

std::array<unsigned char, 12> Seal::next_nonce(std::size_t length) noexcept {
  std::array<unsigned char, 12> nonce{};
  const auto short_length = static_cast<std::uint32_t>(length);
  std::memcpy(nonce.data(), &count_, sizeof(count_));
  std::memcpy(nonce.data() + sizeof(count_), &short_length, sizeof(short_length));
  ++count_;
  return nonce;
}

/// Of the two parts of a record, `clear` is only signed, and `hidden` encrypted too. One of them is empty.
Tag Seal::seal(std::span<const std::byte> clear, std::span<std::byte> hidden) {
  const std::array<unsigned char, 12> nonce = next_nonce(clear.size() + hidden.size());
  Tag tag{};
  unsigned char* const to = out(tag);
  unsigned char* const text = out(hidden);
  if (aes_ != nullptr) {
    crypto_aead_aes256gcm_encrypt_detached_afternm(text, to, nullptr, text, hidden.size(), in(clear),
                                                   clear.size(), nullptr, nonce.data(), &aes_->state);
  } else {
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(text, to, nullptr, text, hidden.size(), in(clear),
                                                       clear.size(), nullptr, nonce.data(), in(key_));
  }
  return tag;
}

Tag Seal::sign(std::span<const std::byte> bytes) {
  return seal(bytes, {});
}

Tag Seal::encrypt(std::span<std::byte> bytes) {
  return seal({}, bytes);
}

bool Seal::open(std::span<std::byte> bytes, const Tag& tag) {
  const std::array<unsigned char, 12> nonce = next_nonce(bytes.size());
  const std::span<std::byte> clear = encrypts() ? std::span<std::byte>() : bytes;
  const std::span<std::byte> hidden = encrypts() ? bytes : std::span<std::byte>();
  unsigned char* const text = out(hidden);
  const unsigned char* const given = in(tag);
  const int status =
      aes_ != nullptr
          ? crypto_aead_aes256gcm_decrypt_detached_afternm(text, nullptr, text, hidden.size(), given,
                                                           in(clear), clear.size(), nonce.data(),
                                                           &aes_->state)
          : crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                text, nullptr, text, hidden.size(), given, in(clear), clear.size(), nonce.data(), in(key_));
  return status == 0;
}

}  // namespace tutti::tcp
