#include "support/ranks.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <ostream>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::test {
namespace {

constexpr std::size_t slot_bytes = 4096;
constexpr int most_ranks = 16;

struct Meeting {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> round;
  std::byte slots[2][most_ranks][slot_bytes];
};

class SharedExchange final : public Exchange {
 public:
  SharedExchange(Meeting& meeting, int rank, int size) : meeting_(meeting), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.size() > slot_bytes) throw std::length_error("all_gather: more than a slot holds");
    const std::uint32_t round = meeting_.round.load();
    auto& slots = meeting_.slots[round % 2];
    std::ranges::copy(mine, slots[rank_]);
    if (meeting_.arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(size_)) {
      meeting_.arrived = 0;
      ++meeting_.round;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (meeting_.round.load() == round) {
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("all_gather: a rank does not come");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    for (int rank = 0; rank < size_; ++rank) {
      std::copy_n(slots[rank], mine.size(),
                  all.subspan(static_cast<std::size_t>(rank) * mine.size()).begin());
    }
  }

 private:
  Meeting& meeting_;
  int rank_;
  int size_;
};

[[noreturn]] void run(Meeting& meeting, int rank, int size, const Ranks::Body& body) {
  try {
    SharedExchange exchange(meeting, rank, size);
    body(exchange);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
  }
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Ending& ending) {
  return stream << (ending.exited ? "exit " : "signal ") << ending.status;
}

Ranks::Ranks(int count, const Body& body) {
  shared_ = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& meeting = *new (shared_) Meeting;
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    const pid_t process = fork();
    if (process == 0) run(meeting, rank, count, body);
    processes_.push_back(process);
  }
}

Ranks::~Ranks() {
  for (const pid_t process : processes_) {
    if (process <= 0) continue;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  munmap(shared_, sizeof(Meeting));
}

std::vector<Ending> Ranks::wait(std::chrono::seconds limit) {
  std::vector<Ending> endings(processes_.size());
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    int status = 0;
    while (waitpid(processes_[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) kill(processes_[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    processes_[rank] = 0;
    const bool exited = WIFEXITED(status);
    endings[rank] = {exited, exited ? WEXITSTATUS(status) : WTERMSIG(status)};
  }
  return endings;
}

void expect_all_right(int count, const Ranks::Body& body) {
  Ranks ranks(count, body);
  const std::vector<Ending> endings = ranks.wait();
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    EXPECT_EQ(endings[rank], all_right) << "rank " << rank;
  }
}

}  // namespace tutti::test
