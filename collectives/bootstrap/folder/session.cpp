// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/folder/session.hpp"

#include "base/patience.hpp"
#include "base/ranks_in_words.hpp"
#include "tutti/error.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::shared_folder {
namespace {

constexpr std::size_t least_secret = 16;
constexpr std::string_view job_place = "job";

[[noreturn]] void refuse_argument(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "shared_folder::Exchange: " + what);
}

const Rendezvous& checked(const Rendezvous& given) {
  if (given.size < 1) refuse_argument(fmt::format("size is {}, expected 1 or more", given.size));
  if (given.rank < 0 || given.rank >= given.size)
    refuse_argument(fmt::format("rank is {}, expected 0 to {}", given.rank, given.size - 1));
  if (given.folder.empty()) refuse_argument("folder is empty, expected the path of a folder");
  if (!given.secret.empty() && given.secret.size() < least_secret) {
    refuse_argument(fmt::format("secret has {} byte(s), expected {} or more, or none", given.secret.size(),
                                least_secret));
  }
  if (given.timeout <= std::chrono::milliseconds(0))
    refuse_argument(fmt::format("timeout is {} ms, expected more than 0", given.timeout.count()));
  return given;
}

tcp::Key key_of(const Rendezvous& rendezvous) {
  // Secrets have any length; keys of the digest may not be longer than it.
  const tcp::Key short_secret = tcp::digest_of({}, {bytes_of(rendezvous.secret)});
  return tcp::digest_of(short_secret, {bytes_of("tutti folder 2 "), bytes_of(rendezvous.job)});
}

/// The name of the job's folder, which says nothing about its secret.
std::string folder_name(const tcp::Key& key) {
  const tcp::Key digest = tcp::digest_of(key, {bytes_of("name")});
  std::string name = "tutti-";
  for (std::size_t i = 0; i < 12; ++i) name += fmt::format("{:02x}", std::to_integer<unsigned>(digest[i]));
  return name;
}

/// Returns who has written a file of this name, if it is a hello.
std::optional<Session::Visitor> visitor_of(std::string_view name) {
  constexpr std::string_view prefix = "hello-";
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  Session::Visitor visitor;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), visitor.rank);
  if (error != std::errc() || end == name.data() + name.size() || *end != '-') return std::nullopt;
  visitor.number = std::string(end + 1, name.data() + name.size());
  return visitor;
}

/// The ranks, from 1 on, whose numbers are empty.
std::vector<int> missing_of(const std::vector<std::string>& numbers) {
  std::vector<int> missing;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i].empty()) missing.push_back(static_cast<int>(i) + 1);
  }
  return missing;
}

/// The names of the sessions that this process has begun as rank 0, and has not seen end: other ranks may
/// still be in one, and a communicator may use its network. Only files that other processes have left are
/// removed before all ranks have gone.
class OwnSessions {
 public:
  /// Never destroyed: a session may live longer than objects of static storage.
  [[nodiscard]] static OwnSessions& get() {
    static OwnSessions& only = *new OwnSessions;
    return only;
  }
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.insert(name);
  }
  void drop(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.erase(name);
  }
  [[nodiscard]] bool has(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return names_.contains(name);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> names_;
};

/// Returns whether an operation has failed because others have removed the folder.
bool is_gone(const Error& error) {
  return error.native_code() == ENOENT || error.native_code() == ESTALE;
}

bool is_of_meetings(std::string_view name) {
  return name.starts_with("hello-") || name.starts_with("welcome-") || name.starts_with("refusal-");
}

}  // namespace

Session::Session(const Rendezvous& rendezvous)
    : shared_(Box::open_shared(checked(rendezvous).folder)),
      job_name_(folder_name(key_of(rendezvous))),
      job_(shared_.inner(job_name_)),
      job_key_(key_of(rendezvous)),
      rank_(rendezvous.rank),
      size_(rendezvous.size) {}

std::shared_ptr<Session> Session::meet(const Rendezvous& rendezvous) {
  std::shared_ptr<Session> session(new Session(rendezvous));
  const auto timeout = std::min(rendezvous.timeout, longest_limit);
  rendezvous.rank == 0 ? session->host(timeout) : session->visit(timeout);
  session->has_met_ = true;
  return session;
}

Session::~Session() {
  if (has_met_) depart();
  shared_.remove_empty(job_name_);
}

void Session::arrive(std::string_view number) const {
  box_->reserve(key_, name_, spare_name(rank_));
  put(here_name(rank_), bytes_of(number));
}

void Session::depart() const noexcept {
  for (const std::string& name : refusals_) job_.remove(name);
  try {
    box_->remove(here_name(rank_));
    const std::vector<std::string> names = box_->names();
    if (std::ranges::any_of(names, [](const auto& name) { return name.starts_with("here-"); })) return;
    OwnSessions::get().drop(name_);
    job_.remove_inner(name_);
  } catch (const std::exception&) {
    // The folder is gone already, or its files stay until the job's next meeting.
  }
}

void Session::fail(ErrorCode code, const std::string& what) const {
  throw Error(code, fmt::format("shared_folder::Exchange: {} (in {})", what, job_.path()));
}

void Session::enter(const std::string& number) {
  name_ = "session-" + number;
  key_ = tcp::digest_of(job_key_, {bytes_of("session"), bytes_of(number)});
}

void Session::clear(const std::vector<std::string>& met) noexcept {
  job_.remove_parts();  // all that meet have met
  try {
    for (const Visitor& visitor : invited_) {
      if (std::ranges::find(met, visitor.number) == met.end())
        refuse(visitor, fmt::format("rank {} is there already", visitor.rank));
    }
    for (const std::string& name : job_.names()) {
      if (is_of_meetings(name) && !refusals_.contains(name)) job_.remove(name);
    }
  } catch (const std::exception&) {
    // What stays does no harm: nobody answers to it.
  }
}

void Session::host(std::chrono::milliseconds timeout) {
  const std::vector<std::string> old = job_.names();
  enter(draw_name());
  for (const std::string& name : old) {
    if (name.starts_with("session-") && !OwnSessions::get().has(name)) job_.remove_inner(name);
  }
  OwnSessions::get().add(name_);
  try {
    unless_removed([&] { box_ = job_.inner(name_); });
    if (!box_) box_ = job_.inner(name_);
    arrive("");
    clear(await_all(timeout));
  } catch (const Error& error) {
    if (box_) {
      stop(error);
      depart();
    }
    OwnSessions::get().drop(name_);
    throw;
  }
}

std::vector<std::string> Session::await_all(std::chrono::milliseconds timeout) {
  Wait wait(timeout);
  std::vector<std::string> numbers = arrivals();
  for (std::vector<int> missing = missing_of(numbers); !missing.empty(); missing = missing_of(numbers)) {
    if (wait.is_over()) {
      fail(ErrorCode::timeout, fmt::format("{} of {} {} not arrived within {} ms", ranks_in_words(missing),
                                           size_, missing.size() == 1 ? "has" : "have", timeout.count()));
    }
    for (const std::string& name : job_.names()) answer(name);
    require_going_on();
    wait.pause();
    numbers = arrivals();
  }
  put("go", bytes_of(fmt::format("{}", fmt::join(numbers, " "))));
  return numbers;
}

void Session::unless_removed(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (!is_gone(error)) throw;
    job_ = shared_.inner(job_name_);
  }
}

void Session::answer(const std::string& hello) {
  const std::optional<Visitor> visitor = visitor_of(hello);
  if (!visitor) return;
  const std::string end = fmt::format("-{}-{}", visitor->rank, visitor->number);
  if (job_.has("welcome" + end) || job_.has("refusal" + end)) return;
  const std::optional<Bytes> claim = job_.get(job_key_, job_place, hello);
  if (!claim) return;  // of another secret
  int size = 0;
  if (claim->size() == sizeof(size)) std::memcpy(&size, claim->data(), sizeof(size));
  if (size == size_ && visitor->rank > 0 && visitor->rank < size_) {
    job_.put(job_key_, job_place, "welcome" + end, bytes_of(name_));
    invited_.push_back(*visitor);
  } else {
    refuse(*visitor, fmt::format("rank {} was started as one of {}, and rank 0 as one of {}", visitor->rank,
                                 size, size_));
  }
}

void Session::refuse(const Visitor& visitor, const std::string& reason) {
  const std::string name = fmt::format("refusal-{}-{}", visitor.rank, visitor.number);
  job_.put(job_key_, job_place, name, bytes_of(reason));
  refusals_.insert(name);
}

std::vector<std::string> Session::arrivals() const {
  std::vector<std::string> numbers;
  for (int rank = 1; rank < size_; ++rank) numbers.push_back(text_of(get(here_name(rank)).value_or(Bytes())));
  return numbers;
}

void Session::visit(std::chrono::milliseconds timeout) {
  Wait wait(timeout);
  for (;;) {
    const std::string number = draw_name();
    try {
      if (has_met_as(number, wait)) return;
    } catch (...) {
      forget(number);
      throw;
    }
    forget(number);
  }
}

bool Session::has_met_as(const std::string& number, Wait& wait) {
  constexpr std::size_t prefix = std::string_view("session-").size();
  enter(wait_for_welcome(wait, number).substr(prefix));
  box_ = job_.existing(name_);
  if (!box_) return false;
  std::optional<Bytes> met = get("go");
  try {
    if (!met) {
      arrive(number);
      met = wait_for_go(wait, number);
    }
  } catch (const Error& error) {
    if (is_gone(error)) return false;
    withdraw(number, error);
    throw;
  }
  if (!met) return false;
  if (text_of(*met).find(number) == std::string::npos)
    fail(ErrorCode::invalid_argument, fmt::format("rank {} is there already", rank_));
  return true;
}

void Session::withdraw(const std::string& number, const Error& error) const noexcept {
  try {
    // Another process is there as this rank, or has met as it, before this one wrote its number over.
    const std::string there = text_of(get(here_name(rank_)).value_or(Bytes()));
    if (!there.empty() && there != number) return;
    const std::optional<Bytes> met = get("go");
    if (met && text_of(*met).find(number) == std::string::npos) return;
  } catch (const std::exception&) {
    // As far as anybody knows, this one is.
  }
  if (error.code() == ErrorCode::transport_failure) stop(error);
  leave();
  depart();
}

void Session::forget(const std::string& number) const noexcept {
  for (const char* const kind : {"hello", "welcome", "refusal"})
    job_.remove(fmt::format("{}-{}-{}", kind, rank_, number));
}

std::string Session::wait_for_welcome(Wait& wait, const std::string& number) {
  const std::string end = fmt::format("-{}-{}", rank_, number);
  for (;;) {
    if (const auto welcome = job_.get(job_key_, job_place, "welcome" + end)) {
      const std::string name = text_of(*welcome);
      if (name.starts_with("session-") && name.find('/') == std::string::npos) return name;
    }
    if (const auto refusal = job_.get(job_key_, job_place, "refusal" + end)) {
      fail(ErrorCode::invalid_argument, text_of(*refusal));
    }
    // Those who leave an earlier meeting may remove it, too.
    unless_removed([&] {
      if (!job_.has("hello" + end))
        job_.put(job_key_, job_place, "hello" + end, std::as_bytes(std::span(&size_, 1)));
    });
    if (wait.is_over()) {
      fail(ErrorCode::timeout, "rank 0 has not answered in time: it has not arrived, or has another secret");
    }
    wait.pause();
  }
}

std::optional<Bytes> Session::wait_for_go(Wait& wait, const std::string& number) const {
  for (;;) {
    if (std::optional<Bytes> numbers = get("go")) return numbers;
    require_going_on();
    if (wait.is_over()) fail(ErrorCode::timeout, "rank 0 has arrived, but others have not in time");
    if (!job_.has(name_)) return std::nullopt;
    // Another process that was there as this rank may have withdrawn.
    if (!box_->has(here_name(rank_))) arrive(number);
    wait.pause();
  }
}

void Session::stop(const Error& error) const noexcept {
  try {
    const auto code = static_cast<std::byte>(error.code());
    Bytes bytes{code};
    const std::span<const std::byte> text = bytes_of(error.what());
    bytes.insert(bytes.end(), text.begin(), text.end());
    box_->put_by(spare_name(rank_), key_, name_, "stop", bytes);
  } catch (const std::exception&) {
    leave();  // which the others see, though not why
  }
}

void Session::require_going_on() const {
  const std::optional<Bytes> told = get("stop");
  if (!told || told->empty()) return;
  const auto code = static_cast<ErrorCode>(std::to_integer<int>(told->front()));
  throw Error(code, text_of({told->begin() + 1, told->end()}));
}

}  // namespace tutti::shared_folder
