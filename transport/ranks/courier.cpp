#include "transport/ranks/courier.hpp"

#include "backend/team_round.hpp"
#include "transport/ranks/team.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the thread looks without pause after something has happened, and its pauses afterwards: each is
/// twice as long as the one before.
constexpr std::chrono::microseconds patience{50};
constexpr std::chrono::microseconds patience_when_busy{2000};  ///< messages are half-way
constexpr std::chrono::microseconds first_pause{20};
constexpr std::chrono::microseconds longest_pause_in_call{100};
constexpr std::chrono::microseconds longest_pause{2000};
/// How often the others hear that the process is alive.
constexpr int beats_per_timeout = 8;
/// Small records travel together; one that makes the message longer than this is its last.
constexpr std::size_t full_message = 64 << 10U;

/// What a record of a message tells.
enum class Record : std::uint32_t { state, call, mail, progress, parcel, abort, watched };

backend::SharedFlag& flag_at(std::byte* window, std::size_t offset) {
  return *std::launder(reinterpret_cast<backend::SharedFlag*>(window + offset));
}

void raise(backend::SharedFlag& flag, std::uint32_t value) {
  if (flag.value.load(std::memory_order_relaxed) != value) backend::set_flag(flag, value);
}

}  // namespace

class Courier::Writer {
 public:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    add_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void add_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  std::vector<std::byte> bytes_;
};

class Courier::Reader {
 public:
  explicit Reader(const Network::Message& message) : rest_(message.bytes), source_(message.source) {}
  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  template <class T>
  [[nodiscard]] T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// A number below `limit`.
  template <class T>
  [[nodiscard]] T take_below(std::uint64_t limit) {
    const T value = take<T>();
    if (value >= limit) fail();
    return value;
  }
  [[nodiscard]] std::span<const std::byte> take_bytes(std::size_t count) {
    if (count > rest_.size()) fail();
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::internal, fmt::format("a message of rank {} makes no sense", source_));
  }

 private:
  std::span<const std::byte> rest_;
  int source_;
};

Courier::Courier(Team& team, std::unique_ptr<Network> network)
    : team_(team),
      network_(std::move(network)),
      progress_(team.local_count()),
      expected_(team.local_count()) {
  const auto self = static_cast<std::size_t>(team.rank());
  for (std::size_t host = 0; host < team.host_count(); ++host) {
    receivers_.push_back(team.is_here(team.carrier(self, host)) ? -1
                                                                : static_cast<int>(team.carrier(self, host)));
  }
  for (std::uint32_t member = 0; member < team.member_count(); ++member) {
    if (team.is_here(team.rank_of_member()[member])) members_here_.push_back(member);
  }
}

void Courier::start() {
  // A network may write to the socket of a process that is gone: that fails, and does not end this one.
  thread_ = backend::Thread(
      {.name = "tutti-courier", .purpose = "that carries messages between hosts"}, [this] { run(); },
      [this](const backend::Escaped& escaped) { give_up(escaped); });
}

void Courier::stop() noexcept {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void Courier::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  woken_.notify_one();
}

void Courier::expect(std::size_t member, std::uint32_t round, std::uint64_t bytes,
                     std::span<const std::uint32_t> readers) {
  Parcel parcel{static_cast<std::uint32_t>(member), round, bytes, {}};
  for (const std::uint32_t reader : readers) {
    if (!team_.is_here(team_.rank_of_member()[reader])) parcel.readers.push_back(reader);
  }
  const bool has_readers = !parcel.readers.empty();
  {
    const std::lock_guard lock(mutex_);
    if (has_readers) expected_[member - team_.first_local()].push_back(std::move(parcel));
    is_woken_ = true;
  }
  woken_.notify_one();
}

bool Courier::has_carried(Mailbox::Kind kind) const noexcept {
  return mail_[kind].written.load() ==
         team_.mailbox(static_cast<std::size_t>(team_.rank()), kind).written.load();
}

void Courier::give_up(const backend::Escaped& escaped) noexcept {
  team_.fail("has lost the other hosts", escaped);
  is_broken_ = true;
  has_delivered_ = true;
}

void Courier::run() {
  auto latest = Clock::now();  // when something happened
  auto pause = first_pause;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    is_woken_ = false;
    lock.unlock();
    bool has_worked = false;
    bool is_busy = false;
    team_.board(static_cast<std::size_t>(team_.rank())).carried_at.store(RankBoard::now());
    while (const auto message = network_->receive()) {
      deliver(*message);
      has_worked = true;
    }
    has_worked |= send();
    is_busy = network_->is_busy();
    if (state_ == RankBoard::left && network_->is_delivered()) has_delivered_ = true;
    const auto now = Clock::now();
    if (has_worked) {
      latest = now;
      pause = first_pause;
    }
    if (now - latest < (is_busy ? patience_when_busy : patience)) {
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    const bool is_idle = !team_.has_calls_under_way();
    lock.lock();
    woken_.wait_for(lock, pause, [this] { return stops_ || is_woken_; });
    if (is_woken_) {
      latest = Clock::now();
      pause = first_pause;
    } else {
      pause = std::min(2 * pause, is_idle ? longest_pause : longest_pause_in_call);
    }
  }
}

bool Courier::send() {
  if (state_ == RankBoard::left) return false;  // those who have heard of it may be gone
  // Before the calls: those whose bytes are there have been announced.
  const std::vector<Parcel> parcels = parcels_ready();
  Writer news;
  add_news(news);
  if (news.empty() && parcels.empty()) return false;
  const std::vector<std::byte> common = news.take();
  for (std::size_t host = 0; host < receivers_.size(); ++host) {
    if (receivers_[host] < 0) continue;
    Writer message;
    message.add_bytes(common);
    for (const Parcel& parcel : parcels) {
      std::vector<std::uint32_t> readers;
      for (const std::uint32_t reader : parcel.readers) {
        if (team_.host_of(team_.rank_of_member()[reader]) == host) readers.push_back(reader);
      }
      if (readers.empty()) continue;
      add_parcel(message, parcel, readers);
      if (message.size() >= full_message) network_->send(receivers_[host], message.take());
    }
    if (!message.empty()) network_->send(receivers_[host], message.take());
  }
  return true;
}

std::vector<Courier::Parcel> Courier::parcels_ready() {
  std::vector<Parcel> ready;
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  const std::lock_guard lock(mutex_);
  for (std::deque<Parcel>& queue : expected_) {
    while (!queue.empty()) {
      const Parcel& next = queue.front();
      const backend::SharedFlag& flag =
          flag_at(team_.host_window(next.readers.back()), layout.ready_offset(next.member));
      if (!backend::has_reached(flag.value.load(std::memory_order_acquire), next.round)) break;
      ready.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  return ready;
}

void Courier::add_news(Writer& news) {
  const auto self = static_cast<std::size_t>(team_.rank());
  const RankBoard& board = team_.board(self);
  // The state before the rest: what a rank that leaves has said is complete.
  const std::uint32_t state = board.state.load();
  const std::uint64_t posted = board.last_sequence.load();
  for (; sequence_ < posted; ++sequence_) {
    const RankBoard::Entry& entry = board.entries[(sequence_ + 1) % RankBoard::history];
    news.add(Record::call);
    news.add(sequence_ + 1);
    news.add(RankBoard::now() - entry.posted_at());
    news.add(std::uint32_t{entry.is_captured()});
    news.add(entry.signature());
  }
  for (const Mailbox::Kind kind : {Mailbox::all, Mailbox::part}) {
    const Mailbox& box = team_.mailbox(self, kind);
    const std::uint64_t written = box.written.load();
    const std::uint64_t read = box.read.load();
    const bool has_mail = written != mail_[kind].written.load();
    if (!has_mail && read == mail_[kind].read) continue;
    news.add(Record::mail);
    news.add(std::uint32_t{kind});
    news.add(written);
    news.add(read);
    news.add(std::uint32_t{has_mail});
    if (has_mail) news.add_bytes(box.bytes);
    mail_[kind].written = written;
    mail_[kind].read = read;
  }
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  for (std::size_t own = 0; own < progress_.size(); ++own) {
    const auto member = static_cast<std::uint32_t>(team_.first_local() + own);
    const Progress now{
        .done = team_.done_flag(member).value.load(),
        .passed = team_.passed_flag(member).value.load(),
        .finished = flag_at(team_.host_window(member), layout.finished_offset(member)).value.load()};
    if (now == progress_[own]) continue;
    news.add(Record::progress);
    news.add(member);
    news.add(now);
    progress_[own] = now;
  }
  const std::int64_t watched_at = board.watched_at.load();
  if (std::chrono::nanoseconds(watched_at - watched_at_) > team_.timeout() / beats_per_timeout) {
    news.add(Record::watched);
    watched_at_ = watched_at;
  }
  if (!abort_ && team_.abort_word().is_set()) {
    const backend::AbortReason& reason = team_.abort_word().reason();
    news.add(Record::abort);
    news.add(reason.code);
    news.add(reason.length);
    news.add_bytes(std::as_bytes(std::span(reason.text())));
    abort_ = true;
  }
  // After the reason: who has left is not taken for it.
  if (state != state_) {
    news.add(Record::state);
    news.add(state);
    state_ = state;
  }
}

void Courier::add_parcel(Writer& message, const Parcel& parcel,
                         std::span<const std::uint32_t> readers) const {
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  const std::byte* const slot =
      team_.host_window(parcel.member) + layout.slots_offset() + layout.slot_shift(parcel.round);
  message.add(Record::parcel);
  message.add(parcel.member);
  message.add(parcel.round);
  message.add(parcel.bytes);
  message.add(static_cast<std::uint32_t>(readers.size()));
  message.add_bytes(std::as_bytes(readers));
  message.add_bytes({slot, parcel.bytes});
  // The member fills the slot again when it hears, maybe through another process, that the readers have
  // finished. That it comes after this copy is to be seen in this process too: by the flag that it waits for.
  for (const std::uint32_t reader : readers) {
    flag_at(team_.host_window(parcel.member), layout.finished_offset(reader))
        .value.fetch_add(0, std::memory_order_release);
  }
}

void Courier::deliver(const Network::Message& message) {
  Reader reader(message);
  const auto rank = static_cast<std::size_t>(message.source);
  while (!reader.empty()) {
    switch (reader.take<Record>()) {
      case Record::state:
        team_.board(rank).state.store(reader.take<std::uint32_t>());
        break;
      case Record::watched:
        team_.board(rank).watched_at.store(RankBoard::now());
        break;
      case Record::call:
        deliver_call(rank, reader);
        break;
      case Record::mail:
        deliver_mail(rank, reader);
        break;
      case Record::progress:
        deliver_progress(reader);
        break;
      case Record::parcel:
        deliver_parcel(reader);
        break;
      case Record::abort: {
        const auto code = static_cast<ErrorCode>(reader.take<std::uint32_t>());
        const auto text = reader.take_bytes(reader.take<std::uint32_t>());
        team_.abort_as_elsewhere(code, {reinterpret_cast<const char*>(text.data()), text.size()});
        break;
      }
      default:
        reader.fail();
    }
  }
}

void Courier::deliver_call(std::size_t rank, Reader& message) {
  const auto sequence = message.take<std::uint64_t>();
  const auto age = message.take<std::int64_t>();
  const bool is_captured = message.take<std::uint32_t>() != 0;
  const auto signature = message.take<Signature>();
  RankBoard& board = team_.board(rank);
  board.entries[sequence % RankBoard::history].write(sequence, signature, is_captured,
                                                     RankBoard::now() - age);
  // Before others may go further ahead, to where words are written over.
  team_.compare_with_first(rank, signature, is_captured, sequence);
  board.last_sequence.store(sequence);
}

void Courier::deliver_mail(std::size_t rank, Reader& message) {
  const auto kind = static_cast<Mailbox::Kind>(message.take_below<std::uint32_t>(2));
  Mailbox& box = team_.mailbox(rank, kind);
  const auto written = message.take<std::uint64_t>();
  const auto read = message.take<std::uint64_t>();
  if (message.take<std::uint32_t>() != 0)
    std::ranges::copy(message.take_bytes(box.bytes.size()), box.bytes.begin());
  box.written.store(written);
  box.read.store(read);
}

void Courier::deliver_progress(Reader& message) {
  const auto member = message.take_below<std::uint32_t>(team_.member_count());
  const auto now = message.take<Progress>();
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  for (const std::uint32_t here : members_here_) {
    raise(flag_at(team_.host_window(here), layout.finished_offset(member)), now.finished);
    // Parcels are for some readers only. The flags of the others stay comparable, behind the parcels of the
    // last rounds, which may still be on their way.
    constexpr std::uint32_t furthest = backend::TeamWindowLayout::milestone_distance;
    backend::SharedFlag& ready = flag_at(team_.host_window(here), layout.ready_offset(member));
    if (!backend::has_reached(ready.value.load(std::memory_order_relaxed), now.finished - furthest))
      backend::set_flag(ready, now.finished - furthest / 2);
  }
  raise(team_.done_flag(member), now.done);
  raise(team_.passed_flag(member), now.passed);
}

void Courier::deliver_parcel(Reader& message) {
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  const auto member = message.take_below<std::uint32_t>(team_.member_count());
  const auto round = message.take<std::uint32_t>();
  const auto bytes = message.take_below<std::uint64_t>(layout.slot_bytes + 1);
  std::vector<std::uint32_t> readers(message.take_below<std::uint32_t>(team_.member_count()));
  for (std::uint32_t& reader : readers) reader = message.take_below<std::uint32_t>(team_.member_count());
  const auto payload = message.take_bytes(bytes);
  if (team_.abort_word().is_set()) return;  // maybe because the readers have called for something else
  std::ranges::copy(payload, team_.host_window(member) + layout.slots_offset() + layout.slot_shift(round));
  for (const std::uint32_t reader : readers)
    backend::set_flag(flag_at(team_.host_window(reader), layout.ready_offset(member)), round);
}

}  // namespace tutti::transport::ranks
