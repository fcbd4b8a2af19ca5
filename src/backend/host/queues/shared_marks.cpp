// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/shared_marks.hpp"

#include "backend/sealed_words.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>

namespace tutti::backend::host {
namespace {

/// The words of a handle.
struct SharedEvent {
  static constexpr std::uint64_t mark = 0x746e657665747574;

  std::uint64_t checksum = 0;
  SharedMemory::Handle memory;
  std::int64_t device = -1;
};
static_assert(sizeof(SharedEvent) <= sizeof(SharedEventHandle));

/// Returns where the marks of another process's event are. Throws Error(invalid_argument) if the handle is
/// not of one.
SharedMemory::Handle memory_of(int device, const SharedEventHandle& handle, std::size_t bytes) {
  const auto refuse = [device](const std::string& reason) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("device {} cannot open another process's event: {}", device, reason));
  };
  const std::optional<SharedEvent> event = unsealed<SharedEvent>(handle.bytes);
  if (!event) refuse("the handle is not one of a virtual device's event, or was changed");
  const SharedMemory::Handle& memory = event->memory;
  if (memory.process <= 0 || memory.descriptor < 0 || memory.bytes != bytes)
    refuse("the handle names memory that cannot be a virtual device's event");
  if (event->device != device) refuse(fmt::format("it is an event of device {}", event->device));
  if (SharedMemory::is_own(memory)) refuse("the event is this process's own");
  return memory;
}

}  // namespace

SharedMarks::SharedMarks(int device) : device_(device), memory_(sizeof(Words)) {
  words().processes.store(process_);
}

SharedMarks::SharedMarks(int device, const SharedEventHandle& handle)
    : SharedMarks(device, memory_of(device, handle, sizeof(Words))) {}

SharedMarks::SharedMarks(int device, const SharedMemory::Handle& handle) : device_(device), memory_(handle) {
  process_ = words().processes.fetch_add(1) + 1;
  enter(handle);
}

void SharedMarks::enter(const SharedMemory::Handle& handle) {
  UnsharedDescriptor file(SharedMemory::open_file(handle));
  struct flock own {};
  own.l_type = F_WRLCK;
  own.l_whence = SEEK_SET;
  own.l_start = process_;
  own.l_len = 1;
  if (!file.is_open() || fcntl(file.number(), F_OFD_SETLK, &own) != 0) {
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("device {} cannot share an event: its memory cannot be locked: {}", device_,
                            std::strerror(errno)),
                errno);
  }
  lock_ = std::move(file);
}

SharedEventHandle SharedMarks::share() {
  const SharedEvent event{.memory = memory_.share(Audience::same_user), .device = device_};
  {
    const std::lock_guard lock(mutex_);
    if (!lock_.is_open()) enter(event.memory);
  }
  SharedEventHandle handle;
  seal(event, handle.bytes);
  return handle;
}

SharedMarks::Begun SharedMarks::begin(const std::shared_ptr<Progress>& stream) {
  OwnLane& own = lane_for(stream);
  Begun begun;
  begun.mark = {own.lane, words().lanes[own.lane].begun.fetch_add(1) + 1};
  if (own.stream != stream) {
    const Mark before{own.lane, begun.mark.number - 1};
    if (!reached(before)) begun.after = before;
    own.stream = stream;
  }
  words().latest.store((std::uint64_t{own.lane} + 1) << 32U | begun.mark.number);
  let_go_but(own);
  return begun;
}

SharedMarks::OwnLane& SharedMarks::lane_for(const std::shared_ptr<Progress>& stream) {
  for (OwnLane& own : own_) {
    if (own.stream == stream) return own;
  }
  for (OwnLane& own : own_) {
    if (is_idle(own.lane)) return own;
  }
  own_.reserve(own_.size() + 1);
  if (const std::optional<std::uint32_t> taken = take_lane())
    return own_.emplace_back(OwnLane{*taken, stream});
  if (!own_.empty()) return own_.front();
  throw Error(ErrorCode::unsupported,
              fmt::format("an event of device {} is recorded by {} other processes, expected fewer", device_,
                          lane_count));
}

std::optional<std::uint32_t> SharedMarks::take_lane() noexcept {
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) {
    std::uint32_t holder = words().lanes[lane].holder.load();
    if (holder != 0 && !settle(lane)) continue;
    if (words().lanes[lane].holder.compare_exchange_strong(holder, process_)) return lane;
  }
  return std::nullopt;
}

void SharedMarks::let_go_but(const OwnLane& used) noexcept {
  const std::uint32_t kept = used.lane;
  std::erase_if(own_, [&](const OwnLane& own) {
    if (own.lane == kept || !is_idle(own.lane)) return false;
    words().lanes[own.lane].holder.store(0);
    return true;
  });
}

std::optional<SharedMarks::Mark> SharedMarks::latest() const noexcept {
  const std::uint64_t word = words().latest.load();
  if (word == 0) return std::nullopt;
  return Mark{static_cast<std::uint32_t>(word >> 32U) - 1, static_cast<std::uint32_t>(word)};
}

bool SharedMarks::is_idle(std::uint32_t lane) const noexcept {
  return has_reached(words().lanes[lane].passed.value.load(), words().lanes[lane].begun.load());
}

bool SharedMarks::has_ended(std::uint32_t process) const noexcept {
  if (process == process_ || !lock_.is_open()) return false;
  struct flock found {};
  found.l_type = F_WRLCK;
  found.l_whence = SEEK_SET;
  found.l_start = process;
  found.l_len = 1;
  return fcntl(lock_.number(), F_OFD_GETLK, &found) == 0 && found.l_type == F_UNLCK;
}

bool SharedMarks::settle(std::uint32_t index) const noexcept {
  Lane& lane = words().lanes[index];
  // A process that takes the lane over settles it first. Marks that it begins then are not meant here: so the
  // number comes before the holder.
  const std::uint32_t begun = lane.begun.load();
  const std::uint32_t holder = lane.holder.load();
  if (holder == 0 || !has_ended(holder) || lane.holder.load() != holder) return false;
  std::uint32_t passed = lane.passed.value.load();
  while (!has_reached(passed, begun)) {
    if (lane.passed.value.compare_exchange_weak(passed, begun)) break;  // who sleeps looks again by itself
  }
  return true;
}

bool SharedMarks::reached(const Mark& mark) const noexcept {
  const std::atomic<std::uint32_t>& passed = words().lanes[mark.lane].passed.value;
  if (has_reached(passed.load(std::memory_order_acquire), mark.number)) return true;
  return settle(mark.lane) && has_reached(passed.load(std::memory_order_acquire), mark.number);
}

bool SharedMarks::wait(const Mark& mark, int milliseconds) const noexcept {
  static const AbortWord never;
  return wait_for_flag(words().lanes[mark.lane].passed, mark.number, never, milliseconds) || reached(mark);
}

void SharedMarkTask::run() {
  constexpr int look_again = 100;  // milliseconds
  while (awaited_ && !marks_->wait(*awaited_, look_again)) {
  }
  if (own_) marks_->set(*own_);
}

}  // namespace tutti::backend::host
