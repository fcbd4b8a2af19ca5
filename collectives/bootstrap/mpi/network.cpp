// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/network.hpp"

#include "collectives/bootstrap/mpi/checks.hpp"
#include "collectives/bootstrap/mpi/tags.hpp"
#include "collectives/bootstrap/mpi/waiting.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::mpi {
namespace {

std::vector<int> gather(tutti::Exchange& exchange, int mine) {
  std::vector<int> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// A communicator of MPI's that networks share, each with a tag of its own.
class Line {
 public:
  /// The communicator is the line's from now on; `rank` is this process's in it, of `size`.
  Line(MPI_Comm comm, int rank, int size);
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line();

  /// A lock that is held while MPI is called. Throws if MPI has been finalised.
  [[nodiscard]] std::unique_lock<std::mutex> open() {
    std::unique_lock lock(mutex_);
    if (is_closed_) {
      throw Error(ErrorCode::transport_failure,
                  "MPI was finalised before a communicator of ranks on several hosts was destroyed");
    }
    return lock;
  }
  [[nodiscard]] bool is_closed() {
    const std::lock_guard lock(mutex_);
    return is_closed_;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  /// Keeps the communicator from being freed: messages remain that nobody receives.
  void abandon() noexcept { is_abandoned_ = true; }
  [[nodiscard]] MPI_Comm comm() const noexcept { return comm_; }
  [[nodiscard]] Tags& tags() noexcept { return tags_; }

 private:
  MPI_Comm comm_;
  std::mutex mutex_;
  bool is_closed_ = false;  ///< guarded by `mutex_`
  std::atomic<bool> is_abandoned_ = false;
  Tags tags_;
};

/// All lines of the process, closed by MPI_Finalize: it deletes the attributes of MPI_COMM_SELF first.
class Lines {
 public:
  static Lines& get() {
    static auto* const lines = new Lines;
    return *lines;
  }
  void add(Line* line) {
    const std::lock_guard lock(mutex_);
    if (!is_watching_) {
      int key = MPI_KEYVAL_INVALID;
      check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, close_all, &key, nullptr),
            "MPI_Comm_create_keyval");
      check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
      is_watching_ = true;
    }
    lines_.push_back(line);
  }
  void remove(Line* line) {
    const std::lock_guard lock(mutex_);
    std::erase(lines_, line);
  }

 private:
  static int close_all(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* /*state*/) {
    Lines& lines = get();
    const std::lock_guard lock(lines.mutex_);
    for (Line* const line : lines.lines_) line->close();
    return MPI_SUCCESS;
  }

  std::mutex mutex_;
  bool is_watching_ = false;
  std::vector<Line*> lines_;
};

int largest_tag(MPI_Comm comm) {
  int found = 0;
  int* largest = nullptr;
  check(MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&largest), &found), "MPI_Comm_get_attr");
  constexpr int every_mpi_has = 32767;
  return found != 0 ? *largest : every_mpi_has;
}

Line::Line(MPI_Comm comm, int rank, int size) : comm_(comm), tags_(rank, size, largest_tag(comm)) {
  Lines::get().add(this);
}

Line::~Line() {
  Lines::get().remove(this);
  const std::lock_guard lock(mutex_);
  if (!is_closed_ && !is_abandoned_) MPI_Comm_free(&comm_);
}

class MessageNetwork final : public tutti::Network {
 public:
  /// `ranks`: the numbers that this network's ranks have on the line.
  MessageNetwork(std::shared_ptr<Line> line, int tag, std::vector<int> ranks)
      : line_(std::move(line)), tag_(tag), ranks_(std::move(ranks)) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const auto at = static_cast<std::size_t>(ranks_[i]);
      if (numbers_.size() <= at) numbers_.resize(at + 1, -1);
      numbers_[at] = static_cast<int>(i);
    }
  }
  MessageNetwork(const MessageNetwork&) = delete;
  MessageNetwork& operator=(const MessageNetwork&) = delete;
  ~MessageNetwork() override;

  [[nodiscard]] std::string name() const override { return "MPI"; }
  void send(int target, std::vector<std::byte> bytes) override;
  [[nodiscard]] std::optional<Message> receive() override;
  [[nodiscard]] bool is_delivered() override;
  [[nodiscard]] bool is_busy() override { return !sends_.empty() || !arrivals_.empty(); }
  [[nodiscard]] std::unique_ptr<tutti::Network> part(std::span<const int> ranks,
                                                     tutti::Exchange& exchange) override;

 private:
  /// A message under way. MPI has the address of its bytes, which moving it does not change.
  struct Transfer {
    MPI_Request request = MPI_REQUEST_NULL;
    int source = 0;
    std::vector<std::byte> bytes;
    bool is_complete = false;
  };
  static constexpr std::size_t most_at_once = 32;  ///< messages that are being received

  /// Chooses a tag of the line's that none of the exchange's ranks has for another network. Collective.
  [[nodiscard]] int agree_on_tag(tutti::Exchange& exchange);
  /// -1 if the rank of the line is none of this network's.
  [[nodiscard]] int number_of(int source) const noexcept {
    return static_cast<std::size_t>(source) < numbers_.size() ? numbers_[static_cast<std::size_t>(source)]
                                                              : -1;
  }
  /// `line_` is open.
  void accept();
  static void advance(Transfer& transfer, const char* call);
  void advance_sends();

  std::shared_ptr<Line> line_;
  int tag_;
  std::vector<int> ranks_;
  std::vector<int> numbers_;  ///< by rank of the line; -1 for others
  std::deque<Transfer> sends_;
  std::deque<Transfer> arrivals_;  ///< in the order in which they were sent, per source
};

MessageNetwork::~MessageNetwork() {
  std::erase_if(sends_, [](const Transfer& transfer) { return transfer.is_complete; });
  if (sends_.empty()) line_->tags().release(tag_);
  if (sends_.empty() && arrivals_.empty()) return;
  // MPI goes on reading and writing there.
  line_->abandon();
  for (std::deque<Transfer>* const transfers : {&sends_, &arrivals_}) {
    for (Transfer& transfer : *transfers) leave_to_mpi(std::move(transfer.bytes));
  }
}

void MessageNetwork::advance(Transfer& transfer, const char* call) {
  int is_complete = transfer.is_complete ? 1 : 0;
  if (is_complete == 0) check(MPI_Test(&transfer.request, &is_complete, MPI_STATUS_IGNORE), call);
  transfer.is_complete = is_complete != 0;
}

void MessageNetwork::advance_sends() {
  for (Transfer& transfer : sends_) advance(transfer, "MPI_Issend");
  std::erase_if(sends_, [](const Transfer& transfer) { return transfer.is_complete; });
}

void MessageNetwork::send(int target, std::vector<std::byte> bytes) {
  if (bytes.size() > INT_MAX) {
    throw Error(ErrorCode::internal, fmt::format("a message of {} bytes is too long for MPI", bytes.size()));
  }
  const auto lock = line_->open();
  Transfer& transfer = sends_.emplace_back();
  transfer.bytes = std::move(bytes);
  check(MPI_Issend(transfer.bytes.data(), static_cast<int>(transfer.bytes.size()), MPI_BYTE,
                   ranks_[static_cast<std::size_t>(target)], tag_, line_->comm(), &transfer.request),
        "MPI_Issend");
}

void MessageNetwork::accept() {
  while (arrivals_.size() < most_at_once) {
    int has_come = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, tag_, line_->comm(), &has_come, &handle, &status), "MPI_Improbe");
    if (has_come == 0) return;
    int count = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    Transfer& transfer = arrivals_.emplace_back();
    transfer.source = status.MPI_SOURCE;
    transfer.bytes.resize(static_cast<std::size_t>(count));
    check(MPI_Imrecv(transfer.bytes.data(), count, MPI_BYTE, &handle, &transfer.request), "MPI_Imrecv");
  }
}

std::optional<tutti::Network::Message> MessageNetwork::receive() {
  const auto lock = line_->open();
  advance_sends();
  accept();
  std::vector<int> behind;  // sources whose first message is not complete
  for (auto arrival = arrivals_.begin(); arrival != arrivals_.end();) {
    advance(*arrival, "MPI_Imrecv");
    const bool is_behind = std::ranges::find(behind, arrival->source) != behind.end();
    if (!arrival->is_complete) behind.push_back(arrival->source);
    if (!arrival->is_complete || is_behind) {
      ++arrival;
      continue;
    }
    Message message{number_of(arrival->source), std::move(arrival->bytes)};
    arrival = arrivals_.erase(arrival);
    // Another rank may have sent it for a network that had the tag before.
    if (message.source >= 0) return message;
  }
  return std::nullopt;
}

bool MessageNetwork::is_delivered() {
  const auto lock = line_->open();
  advance_sends();
  return sends_.empty();
}

std::unique_ptr<tutti::Network> MessageNetwork::part(std::span<const int> ranks, tutti::Exchange& exchange) {
  const int tag = agree_on_tag(exchange);
  std::vector<int> on_line;
  for (const int rank : ranks) on_line.push_back(ranks_[static_cast<std::size_t>(rank)]);
  return std::make_unique<MessageNetwork>(line_, tag, std::move(on_line));
}

int MessageNetwork::agree_on_tag(tutti::Exchange& exchange) {
  constexpr int no_tag = -1;
  const bool proposes = exchange.rank() == 0;
  TakenTags taken(line_->tags());  // refused ones too, so that none is proposed again
  for (;;) {
    const int proposed = proposes ? taken.propose().value_or(no_tag) : no_tag;
    const int tag = gather(exchange, proposed).front();
    if (tag == no_tag) break;
    const bool is_taken = proposes || taken.take(tag);
    if (std::ranges::count(gather(exchange, is_taken ? 1 : 0), 0) == 0) {
      taken.keep_last();
      return tag;
    }
  }
  throw Error(ErrorCode::unsupported,
              "MPI has no tag left for a communicator made by split: all are in use, or belonged to "
              "communicators that ended before all their messages had arrived");
}

/// Returns whether all ranks may call MPI from any thread at any time.
bool may_all_call(tutti::Exchange& exchange) {
  int mine = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&mine), "MPI_Query_thread");
  return std::ranges::min(gather(exchange, mine)) == MPI_THREAD_MULTIPLE;
}

/// Makes a network beside MPI, which introduces the processes only.
std::unique_ptr<tutti::Network> network_over_tcp(tutti::Exchange& exchange,
                                                 std::chrono::milliseconds timeout) {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string encrypts = variable("TUTTI_ENCRYPT");
  return tcp::make_network(exchange, {.address = {},
                                      .secret = variable("TUTTI_SECRET"),
                                      .encrypts = !encrypts.empty() && encrypts != "0",  // in doubt it does
                                      .timeout = timeout});
}

}  // namespace

std::unique_ptr<tutti::Network> make_network(MPI_Comm comm, tutti::Exchange& exchange,
                                             std::chrono::milliseconds timeout) {
  if (!may_all_call(exchange)) return network_over_tcp(exchange, timeout);
  MPI_Comm copy = duplicate(comm, timeout);
  std::vector<int> ranks(static_cast<std::size_t>(exchange.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto line = std::make_shared<Line>(copy, exchange.rank(), exchange.size());
  return std::make_unique<MessageNetwork>(std::move(line), 0, std::move(ranks));
}

}  // namespace tutti::mpi
