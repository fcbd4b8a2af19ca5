// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/local_news.hpp"

#include "support/timing.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;

TEST(LocalNews, WakeWhoListens) {
  LocalNews news;
  news.listen();
  news.begin_to_look();
  std::thread announcer([&] {
    std::this_thread::sleep_for(5ms);
    news.announce();
  });
  EXPECT_LT(test::time_of([&] { EXPECT_TRUE(news.wait_for(60s)); }), test::at_once);
  announcer.join();
}

TEST(LocalNews, OfTheTimeWhileTheListenerLooksAreNotMissed) {
  LocalNews news;
  news.listen();
  news.begin_to_look();
  news.announce();
  EXPECT_TRUE(news.wait_for(0us));
  EXPECT_TRUE(news.wait_for(0us)) << "until it looks again";
}

TEST(LocalNews, AreOldWhenTheListenerLooksAgain) {
  LocalNews news;
  news.listen();
  news.announce();
  news.begin_to_look();
  EXPECT_FALSE(news.wait_for(1ms));
}

TEST(LocalNews, AreNotKeptWhereNobodyListens) {
  LocalNews news;
  news.announce();
  EXPECT_FALSE(news.wait_for(1ms));
}

}  // namespace
}  // namespace tutti::transport::team
