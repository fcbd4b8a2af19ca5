// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"

#include "support/environment.hpp"
#include "support/timing.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::test {
namespace {

constexpr std::size_t slot_bytes = 4096;
constexpr int most_ranks = 16;

struct alignas(64) Meeting {
  std::atomic<std::uint32_t> arrived;
  std::atomic<std::uint32_t> round;
  std::byte slots[2][most_ranks][slot_bytes];
};

/// Bytes from one rank to another. Each side has a thread at a time.
struct Pipe {
  static constexpr std::uint64_t capacity = 256 << 10U;

  std::atomic<std::uint64_t> written;
  std::atomic<std::uint64_t> read;
  std::byte bytes[capacity];
};

/// One process's end of all pipes: frames with the number of the network they belong to.
class PostOffice {
 public:
  PostOffice(Pipe* pipes, int rank, int size)
      : pipes_(pipes),
        rank_(rank),
        size_(size),
        unsent_(static_cast<std::size_t>(size)),
        unparsed_(static_cast<std::size_t>(size)) {}

  void send(std::uint32_t number, int target, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte>& to = unsent_[static_cast<std::size_t>(target)];
    const Frame frame{number, static_cast<std::uint32_t>(bytes.size())};
    const auto head = std::as_bytes(std::span(&frame, 1));
    to.insert(to.end(), head.begin(), head.end());
    to.insert(to.end(), bytes.begin(), bytes.end());
    pump();
  }
  std::optional<Network::Message> receive(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    pump();
    auto& waiting = arrived_[number];
    if (waiting.empty()) return std::nullopt;
    Network::Message message = std::move(waiting.front());
    waiting.pop_front();
    return message;
  }
  bool is_delivered() {
    const std::lock_guard lock(mutex_);
    pump();
    for (int target = 0; target < size_; ++target) {
      const Pipe& pipe = this->pipe(rank_, target);
      if (!unsent_[static_cast<std::size_t>(target)].empty() || pipe.read.load() != pipe.written.load())
        return false;
    }
    return true;
  }
  /// Different from those of all other processes.
  std::uint32_t new_number() { return ++numbers_ * most_ranks + static_cast<std::uint32_t>(rank_); }

 private:
  struct Frame {
    std::uint32_t number = 0;
    std::uint32_t bytes = 0;
  };

  [[nodiscard]] Pipe& pipe(int from, int to) const { return pipes_[from * size_ + to]; }
  void pump() {
    for (int other = 0; other < size_; ++other) {
      push(pipe(rank_, other), unsent_[static_cast<std::size_t>(other)]);
      pull(pipe(other, rank_), other);
    }
  }
  static void push(Pipe& pipe, std::vector<std::byte>& bytes) {
    if (bytes.empty()) return;
    const std::uint64_t start = pipe.written.load();
    const std::uint64_t count =
        std::min<std::uint64_t>(bytes.size(), pipe.read.load() + Pipe::capacity - start);
    const std::uint64_t first = std::min(count, Pipe::capacity - start % Pipe::capacity);
    std::memcpy(pipe.bytes + start % Pipe::capacity, bytes.data(), first);
    std::memcpy(pipe.bytes, bytes.data() + first, count - first);
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    pipe.written.store(start + count);
  }
  void pull(Pipe& pipe, int from) {
    std::vector<std::byte>& bytes = unparsed_[static_cast<std::size_t>(from)];
    const std::uint64_t end = pipe.written.load();
    const std::uint64_t start = pipe.read.load();
    const std::uint64_t first = std::min(end - start, Pipe::capacity - start % Pipe::capacity);
    bytes.insert(bytes.end(), pipe.bytes + start % Pipe::capacity,
                 pipe.bytes + start % Pipe::capacity + first);
    bytes.insert(bytes.end(), pipe.bytes, pipe.bytes + (end - start - first));
    pipe.read.store(end);
    std::size_t parsed = 0;
    for (Frame frame; bytes.size() - parsed >= sizeof(frame); parsed += sizeof(frame) + frame.bytes) {
      std::memcpy(&frame, bytes.data() + parsed, sizeof(frame));
      if (bytes.size() - parsed < sizeof(frame) + frame.bytes) break;
      const std::byte* const body = bytes.data() + parsed + sizeof(frame);
      arrived_[frame.number].push_back({from, {body, body + frame.bytes}});
    }
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(parsed));
  }

  Pipe* pipes_;
  int rank_;
  int size_;
  std::atomic<std::uint32_t> numbers_ = 0;
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> unsent_;    ///< by target
  std::vector<std::vector<std::byte>> unparsed_;  ///< by source
  std::map<std::uint32_t, std::deque<Network::Message>> arrived_;
};

class PipeNetwork final : public Network {
 public:
  PipeNetwork(PostOffice& office, std::uint32_t number, std::vector<int> ranks)
      : office_(office), number_(number), ranks_(std::move(ranks)) {}

  [[nodiscard]] std::string name() const override { return "pipes"; }
  void send(int target, std::vector<std::byte> bytes) override {
    office_.send(number_, ranks_[static_cast<std::size_t>(target)], bytes);
  }
  [[nodiscard]] std::optional<Message> receive() override {
    std::optional<Message> message = office_.receive(number_);
    if (message)
      message->source = static_cast<int>(std::ranges::find(ranks_, message->source) - ranks_.begin());
    return message;
  }
  [[nodiscard]] bool is_delivered() override { return office_.is_delivered(); }
  [[nodiscard]] bool is_busy() override { return !office_.is_delivered(); }
  [[nodiscard]] std::unique_ptr<Network> part(std::span<const int> ranks, Exchange& exchange) override {
    std::vector<int> mine;
    for (const int rank : ranks) mine.push_back(ranks_[static_cast<std::size_t>(rank)]);
    return make(office_, std::move(mine), exchange);
  }
  /// All `ranks` take the number that the first of them chooses.
  static std::unique_ptr<Network> make(PostOffice& office, std::vector<int> ranks, Exchange& exchange) {
    const std::uint32_t mine = office.new_number();
    std::vector<std::uint32_t> numbers(ranks.size());
    exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(numbers)));
    return std::make_unique<PipeNetwork>(office, numbers.front(), std::move(ranks));
  }

 private:
  PostOffice& office_;
  std::uint32_t number_;
  std::vector<int> ranks_;
};

class SharedExchange final : public Exchange {
 public:
  SharedExchange(Meeting& meeting, PostOffice& office, int rank, int size)
      : meeting_(meeting), office_(office), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void limit_waits(std::chrono::milliseconds timeout) override { limit_ = timeout; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (mine.size() > slot_bytes) throw std::length_error("all_gather: more than a slot holds");
    const std::uint32_t round = meeting_.round.load();
    auto& slots = meeting_.slots[round % 2];
    std::ranges::copy(mine, slots[rank_]);
    if (meeting_.arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(size_)) {
      meeting_.arrived = 0;
      ++meeting_.round;
    }
    const auto deadline = std::chrono::steady_clock::now() + hang_limit();
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
  [[nodiscard]] std::unique_ptr<Network> network() override {
    if (is_over_tcp()) return tcp::make_network(*this, {.address = {}, .secret = {}, .timeout = limit_});
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return PipeNetwork::make(office_, std::move(ranks), *this);
  }

 private:
  Meeting& meeting_;
  PostOffice& office_;
  int rank_;
  int size_;
  std::chrono::milliseconds limit_{60'000};
};

[[noreturn]] void run(Meeting& meeting, Pipe* pipes, int rank, int size, const Ranks::Body& body) {
  try {
    PostOffice office(pipes, rank, size);
    SharedExchange exchange(meeting, office, rank, size);
    body(exchange);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
  }
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace

bool is_over_tcp() {
  const char* const network = std::getenv("TUTTI_TEST_NETWORK");
  return network != nullptr && std::string_view(network) == "tcp";
}

std::ostream& operator<<(std::ostream& stream, const Ending& ending) {
  return stream << (ending.exited ? "exit " : "signal ") << ending.status;
}

Ranks::Ranks(int count, const Body& body)
    : shared_bytes_(sizeof(Meeting) + static_cast<std::size_t>(count * count) * sizeof(Pipe)) {
  shared_ = mmap(nullptr, shared_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto& meeting = *new (shared_) Meeting;
  // Pages of zeros are pipes that nothing has been written to.
  auto* const pipes = reinterpret_cast<Pipe*>(static_cast<std::byte*>(shared_) + sizeof(Meeting));
  std::fflush(nullptr);
  for (int rank = 0; rank < count; ++rank) {
    const pid_t process = fork();
    if (process == 0) run(meeting, pipes, rank, count, body);
    processes_.push_back(process);
  }
}

Ranks::~Ranks() {
  for (const pid_t process : processes_) {
    if (process <= 0) continue;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }
  munmap(shared_, shared_bytes_);
}

void Ranks::await_stop(int rank) const {
  EXPECT_TRUE(becomes_true([this, rank] {
    siginfo_t stopped{};
    const int failure =
        waitid(P_PID, static_cast<id_t>(process(rank)), &stopped, WSTOPPED | WEXITED | WNOWAIT | WNOHANG);
    return failure == 0 && stopped.si_code == CLD_STOPPED;
  }));
}

void Ranks::resume_after(std::chrono::milliseconds time, int rank) const {
  await_stop(rank);
  std::this_thread::sleep_for(time);
  kill(process(rank), SIGCONT);
}

void Ranks::resume_after_others(std::chrono::milliseconds limit, int rank) const {
  await_stop(rank);
  const Stopwatch watch;
  const auto has_ended = [](pid_t process) {
    siginfo_t ended{};
    const int failure = waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOWAIT | WNOHANG);
    return failure == 0 && ended.si_pid == process;
  };
  while (watch.elapsed() < limit &&
         !std::ranges::all_of(processes_, [&](pid_t it) { return it == process(rank) || has_ended(it); }))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(process(rank), SIGCONT);
}

std::vector<Ending> Ranks::wait(std::chrono::seconds limit) {
  std::vector<Ending> endings(processes_.size());
  const auto deadline = std::chrono::steady_clock::now() + process_limit(limit);
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

void expect_all_right(int count, const Ranks::Body& body, std::chrono::seconds limit) {
  Ranks ranks(count, body);
  const std::vector<Ending> endings = ranks.wait(limit);
  for (std::size_t rank = 0; rank < endings.size(); ++rank) {
    EXPECT_EQ(endings[rank], all_right) << "rank " << rank;
  }
}

}  // namespace tutti::test
