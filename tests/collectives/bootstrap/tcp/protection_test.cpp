// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/cipher.hpp"
#include "collectives/bootstrap/tcp/frame.hpp"
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "os/descriptor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

/// What keys and the handshake do for the bytes that follow.
namespace tutti::tcp {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<Protection> all_protections() {
  std::vector<Protection> all{{.has_aes = 0, .encrypts = 0}, {.has_aes = 0, .encrypts = 1}};
  if (protection_offered(false).has_aes == 0) return all;
  all.push_back({.has_aes = 1, .encrypts = 0});
  all.push_back({.has_aes = 1, .encrypts = 1});
  return all;
}

/// Two ends of a connection within the process, which wait for nothing.
std::array<Descriptor, 2> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = std::byte(i * 7 + i / 251);
  return bytes;
}

/// Sends what `writer` has through `change` to `reader`, until it has a frame or refuses one.
template <class Change>
Progress deliver(FrameWriter& writer, FrameReader& reader, const Change& change) {
  std::array<Descriptor, 2> first = connection();
  std::array<Descriptor, 2> second = connection();
  std::size_t place = 0;
  for (;;) {
    EXPECT_NE(writer.flush(first[0]), Progress::closed);
    std::array<std::byte, 5000> piece{};
    const ssize_t count = recv(first[1].number(), piece.data(), piece.size(), 0);
    for (ssize_t i = 0; i < count; ++i) change(piece[static_cast<std::size_t>(i)], place++);
    if (count > 0) {
      EXPECT_EQ(::send(second[0].number(), piece.data(), static_cast<std::size_t>(count), 0), count);
    }
    Progress progress = reader.receive_header(second[1]);
    if (progress == Progress::complete) progress = reader.receive_body(second[1]);
    if (progress != Progress::halfway || (count <= 0 && writer.is_empty())) return progress;
  }
}

TEST(TcpProtection, DeliversFramesOfAllLengths) {
  for (const Protection protection : all_protections()) {
    const Key key = digest_of({}, {bytes_of("a key")});
    FrameWriter writer{Seal(key, protection)};
    FrameReader reader{Seal(key, protection)};
    for (const std::size_t length : {0UL, 1UL, 100UL, piece_bytes, piece_bytes + 1, 5 * piece_bytes + 17}) {
      const std::vector<std::byte> body = some_bytes(length);
      writer.add({.number = length}, body);
      ASSERT_EQ(deliver(writer, reader, [](std::byte&, std::size_t) {}), Progress::complete);
      EXPECT_EQ(reader.header().number, length);
      EXPECT_EQ(reader.take_body(), body);
    }
  }
}

TEST(TcpProtection, RefusesWhatHasBeenChangedAnywhere) {
  for (const Protection protection : all_protections()) {
    const Key key = digest_of({}, {bytes_of("a key")});
    const std::size_t length = piece_bytes + 100;
    const std::vector<std::byte> body = some_bytes(length);
    const std::size_t all = sizeof(Header) + length + 3 * sizeof(Tag);
    for (const std::size_t where :
         {0UL, sizeof(Header) - 1, sizeof(Header) + 3, sizeof(Header) + 20, all - 117, all - 1}) {
      FrameWriter writer{Seal(key, protection)};
      FrameReader reader{Seal(key, protection)};
      writer.add({}, body);
      EXPECT_EQ(deliver(writer, reader,
                        [&](std::byte& byte, std::size_t place) {
                          if (place == where) byte ^= std::byte{4};
                        }),
                Progress::closed)
          << where;
      EXPECT_TRUE(reader.is_forged());
    }
  }
}

TEST(TcpProtection, RefusesRecordsThatAreRepeatedOrOfAnotherKey) {
  for (const Protection protection : all_protections()) {
    const Key key = digest_of({}, {bytes_of("a key")});
    const Key other = digest_of({}, {bytes_of("another key")});
    std::vector<std::byte> record = some_bytes(50);
    Seal out(key, protection);
    const Tag tag = protection.encrypts != 0 ? out.encrypt(record) : out.sign(record);
    std::vector<std::byte> copy = record;
    Seal in(key, protection);
    EXPECT_TRUE(in.open(copy, tag));
    EXPECT_EQ(copy, some_bytes(50));
    copy = record;
    EXPECT_FALSE(in.open(copy, tag));
    copy = record;
    EXPECT_FALSE(Seal(other, protection).open(copy, tag));
  }
}

TEST(TcpProtection, HidesWhatIsEncrypted) {
  const std::string secret(1000, 's');
  for (const Protection protection : all_protections()) {
    const Key key = digest_of({}, {bytes_of("a key")});
    FrameWriter writer{Seal(key, protection)};
    std::array<Descriptor, 2> ends = connection();
    writer.add({}, bytes_of(secret));
    ASSERT_EQ(writer.flush(ends[0]), Progress::complete);
    std::string wire(5000, '\0');
    const ssize_t count = recv(ends[1].number(), wire.data(), wire.size(), 0);
    ASSERT_EQ(count, static_cast<ssize_t>(sizeof(Header) + secret.size() + 2 * sizeof(Tag)));
    EXPECT_EQ(wire.find("ssss") == std::string::npos, protection.encrypts != 0);
  }
}

TEST(TcpProtection, KeyPairsAgreeOnWhatOthersDoNot) {
  const KeyPair one;
  const KeyPair other;
  const KeyPair third;
  EXPECT_EQ(one.agree(other.public_key()), other.agree(one.public_key()));
  EXPECT_NE(one.agree(other.public_key()), one.agree(third.public_key()));
  EXPECT_FALSE(one.agree(Key{}));  // a point of small order
}

TEST(TcpProtection, DigestsDependOnTheKeyAndAllPieces) {
  const Key key = digest_of({}, {bytes_of("a key")});
  const Key digest = digest_of(key, {bytes_of("one"), bytes_of("two")});
  EXPECT_TRUE(are_equal(digest, digest_of(key, {bytes_of("one"), bytes_of("two")})));
  EXPECT_FALSE(are_equal(digest, digest_of(key, {bytes_of("one"), bytes_of("tw0")})));
  EXPECT_FALSE(are_equal(digest, digest_of({}, {bytes_of("one"), bytes_of("two")})));
}

TEST(TcpProtection, OneRankThatAsksForEncryptionIsEnough) {
  const Protection asks{.has_aes = 0, .encrypts = 1};
  const Protection has_aes{.has_aes = 1, .encrypts = 0};
  for (const Protection chosen : {agreed(asks, has_aes), agreed(has_aes, asks)}) {
    EXPECT_EQ(chosen.encrypts, 1U);
    EXPECT_EQ(chosen.has_aes, 0U);
  }
  test::on_ranks(test::local_rendezvous(3), [](Rendezvous rendezvous) {
    rendezvous.encrypts = rendezvous.rank == 1;
    Exchange exchange(rendezvous);
    const std::vector<std::byte> mine(300'000, std::byte(rendezvous.rank));
    std::vector<std::byte> all(3 * mine.size());
    exchange.all_gather(mine, all);
    for (std::size_t i = 0; i < all.size(); i += 1009) ASSERT_EQ(all[i], std::byte(i / mine.size()));
  });
}

}  // namespace
}  // namespace tutti::tcp
