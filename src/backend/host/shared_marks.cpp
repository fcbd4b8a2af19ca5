// SPDX-License-Identifier: Apache-2.0
#include "backend/host/shared_marks.hpp"

#include "tutti/error.hpp"

#include <cstring>
#include <string>
#include <type_traits>

#include <fmt/format.h>

namespace tutti::backend::host {
namespace {

/// What a handle says.
struct SharedEvent {
  static constexpr std::uint64_t expected_mark = 0x746e657665747574;  // what GPUs hand out does not begin so

  std::uint64_t mark = expected_mark;
  SharedMemory::Handle memory;
  std::int64_t device = -1;
};
static_assert(sizeof(SharedEvent) <= sizeof(SharedEventHandle) &&
              std::has_unique_object_representations_v<SharedEvent>);

/// The memory that a handle of another process's event names.
SharedMemory opened_marks(int device, const SharedEventHandle& handle, std::size_t bytes) {
  const auto refuse = [device](ErrorCode code, const std::string& reason) {
    throw Error(code, fmt::format("device {} cannot open another process's event: {}", device, reason));
  };
  SharedEvent event;
  std::memcpy(&event, handle.bytes.data(), sizeof event);
  const bool is_complete = event.mark == SharedEvent::expected_mark && event.memory.process > 0 &&
                           event.memory.descriptor >= 0 && event.memory.bytes == bytes;
  if (!is_complete) {
    refuse(ErrorCode::invalid_argument, "what was given is not the handle of a virtual device's event");
  }
  if (event.device != device) {
    refuse(ErrorCode::invalid_argument, fmt::format("it is an event of device {}", event.device));
  }
  if (SharedMemory::is_own(event.memory))
    refuse(ErrorCode::invalid_argument, "the event is this process's own");
  return SharedMemory(event.memory);
}

}  // namespace

SharedMarks::SharedMarks(int device) : device_(device), memory_(sizeof(Words)) {}

SharedMarks::SharedMarks(int device, const SharedEventHandle& handle)
    : device_(device), memory_(opened_marks(device, handle, sizeof(Words))) {}

SharedEventHandle SharedMarks::share() {
  const SharedEvent event{.memory = memory_.share(), .device = device_};
  SharedEventHandle handle;
  std::memcpy(handle.bytes.data(), &event, sizeof event);
  return handle;
}

bool SharedMarks::reached(std::uint32_t number) const noexcept {
  return has_reached(place_of(number).value.load(std::memory_order_acquire), number);
}

bool SharedMarks::wait(std::uint32_t number, int milliseconds) const noexcept {
  static const AbortWord never;
  return wait_for_flag(place_of(number), number, never, milliseconds);
}

void SharedMarkTask::run() {
  constexpr int turn = 1000;  // milliseconds
  while (!marks_->wait(awaited_, turn)) {
  }
  if (own_) marks_->set(*own_);
}

}  // namespace tutti::backend::host
