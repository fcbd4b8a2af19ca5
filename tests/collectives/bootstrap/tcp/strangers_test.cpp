// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "support/descriptor_limit.hpp"
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Who does not know the secret.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::as_rank;
using test::DescriptorLimit;
using test::local_rendezvous;
using test::meet;
using test::on_threads;
using test::refuses;

/// Connects as soon as somebody listens, and says it; the line is open as long as what is returned.
Descriptor say(const tcp::Rendezvous& rendezvous, const std::string& text) {
  Descriptor line = test::connected_to(rendezvous);
  EXPECT_EQ(send(line.number(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  return line;
}

TEST(TcpStrangers, AreKeptOutWhateverTheySay) {
  const tcp::Rendezvous rendezvous = local_rendezvous(2);
  std::string noise(200, '\0');
  std::minstd_rand generator(1);
  for (char& letter : noise) letter = static_cast<char>(generator());
  const std::string claim = "tutti tcp 2\n" + std::string(4 + 32, '\0') + std::string(16 + 32, '\1');
  on_threads(
      {[&] { meet(rendezvous); },
       [&] {
         const Descriptor stays = say(rendezvous, "one who stays");
         for (const std::string& text : {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), noise, claim})
           static_cast<void>(say(rendezvous, text));
         meet(as_rank(rendezvous, 1));
       }});
}

TEST(TcpStrangers, AnotherSecretIsFoundOnBothSides) {
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  rendezvous.timeout = 1s;
  on_threads({[&] {
                EXPECT_TRUE(refuses([&] { meet(rendezvous); }, ErrorCode::timeout,
                                    {"rank 1 has not come", "1 connection had another secret"}));
              },
              [&] {
                tcp::Rendezvous other = as_rank(rendezvous, 1);
                other.secret = "fedcba9876543210";
                EXPECT_TRUE(refuses([&] { meet(other); }, ErrorCode::invalid_argument,
                                    {"127.0.0.1:" + std::to_string(rendezvous.port),
                                     "another secret than rank 1", "TUTTI_SECRET"}));
              }});
}

TEST(TcpStrangers, AnotherJobIsKeptOutThoughItHasTheSecret) {
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  tcp::Rendezvous other = as_rank(rendezvous, 1);
  other.job = "another test";
  on_threads({[&] { meet(rendezvous); },
              [&] {
                EXPECT_TRUE(refuses([&] { meet(other); }, ErrorCode::invalid_argument, {"of another job"}));
                meet(as_rank(rendezvous, 1));
              }});
}

TEST(TcpStrangers, RanksThatAreThereTwiceOrOfAnotherSizeAreTold) {
  const tcp::Rendezvous rendezvous = local_rendezvous(3);
  tcp::Rendezvous of_four = as_rank(rendezvous, 1);
  of_four.size = 4;
  on_threads({[&] { meet(rendezvous); }, [&] { meet(as_rank(rendezvous, 1)); },
              [&] {
                std::this_thread::sleep_for(300ms);
                EXPECT_TRUE(refuses([&] { meet(of_four); }, ErrorCode::invalid_argument,
                                    {"rank 1 was started as one of 4 processes, rank 0 as one of 3"}));
                EXPECT_TRUE(refuses([&] { meet(as_rank(rendezvous, 1)); }, ErrorCode::invalid_argument,
                                    {"rank 1 has come already"}));
                meet(as_rank(rendezvous, 2));
              }});
}

/// Descriptors, until none is left.
std::vector<Descriptor> all_descriptors() {
  std::vector<Descriptor> taken;
  for (;;) {
    taken.emplace_back(dup(STDERR_FILENO));
    if (taken.back().is_open()) continue;
    EXPECT_EQ(errno, EMFILE);
    taken.pop_back();
    return taken;
  }
}

TEST(TcpStrangers, WhoSayNothingMakeRoomAndAreNotBlamedForTheirSecret) {
  constexpr int count = 300;  // more than rank 0 keeps
  tcp::Rendezvous rendezvous = local_rendezvous(3);
  rendezvous.timeout = 3s;
  std::vector<Descriptor> strangers;
  std::string error;
  on_threads({[&] { error = test::error_of([&] { meet(rendezvous); }); },
              [&] {
                for (int i = 0; i < count; ++i) strangers.push_back(test::connected_to(rendezvous));
                const Descriptor rank_1 = test::come(as_rank(rendezvous, 1));
                EXPECT_TRUE(rank_1.is_open());
                std::byte word{};
                recv(rank_1.number(), &word, 1, 0);  // that rank 0 has waited long enough
              }});
  EXPECT_TRUE(test::mentions(error, {"rank 2 has not come", "300 connections said nothing"}));
  EXPECT_EQ(error.find("secret"), std::string::npos) << error;
}

TEST(TcpStrangers, MakeRoomWhereNoDescriptorIsLeft) {
  const DescriptorLimit limit(256);
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  rendezvous.timeout = 10s;
  on_threads({[&] { meet(rendezvous); },
              [&] {
                const Descriptor stranger = test::connected_to(rendezvous);
                std::byte greeting{};
                EXPECT_EQ(recv(stranger.number(), &greeting, 1, 0), 1);  // it has been accepted
                std::vector<Descriptor> others = all_descriptors();
                others.pop_back();  // for rank 1's end
                meet(as_rank(rendezvous, 1));
              }});
}

TEST(TcpStrangers, WhoDoesNotAnswerAsRank0IsNotTold) {
  const test::Listener other;
  tcp::Rendezvous rendezvous = as_rank(local_rendezvous(2), 1);
  rendezvous.port = other.port();
  on_threads({[&] {
                EXPECT_TRUE(refuses([&] { meet(rendezvous); }, ErrorCode::peer_unavailable,
                                    {"does not answer as rank 0", std::to_string(other.port())}));
              },
              [&] {
                const Descriptor line(accept(other.socket_of().number(), nullptr, nullptr));
                const std::string greeting =
                    "220 mail.example.org ESMTP, and much more than forty-eight bytes\r\n";
                EXPECT_GT(send(line.number(), greeting.data(), greeting.size(), MSG_NOSIGNAL), 0);
                std::vector<char> heard(200);
                EXPECT_EQ(recv(line.number(), heard.data(), heard.size(), 0), 48);  // the hello, and no proof
                EXPECT_LE(recv(line.number(), heard.data(), heard.size(), 0), 0);
              }});
}

}  // namespace
}  // namespace tutti
