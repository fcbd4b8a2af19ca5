// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interrupts.hpp"
#include "tutti/communicator.hpp"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// A communicator whose functions give up the GIL, and whose waits Ctrl-C ends.
class PythonCommunicator {
 public:
  explicit PythonCommunicator(Communicator communicator)
      : communicator_(std::make_shared<Communicator>(std::move(communicator))) {}
  PythonCommunicator(const PythonCommunicator&) = delete;
  PythonCommunicator& operator=(const PythonCommunicator&) = delete;
  ~PythonCommunicator() { close(); }

  /// Waits for other ranks as the destructor of `Communicator` says; if other threads are in calls, the last
  /// of these does.
  void close();

  [[nodiscard]] bool is_open() const noexcept { return communicator_ != nullptr; }
  /// Throws Error(invalid_argument) once it is closed.
  [[nodiscard]] Communicator& get() const;

  /// Calls `function` with the communicator, without the GIL.
  template <class Function>
  auto call(Function&& function) const {
    static_cast<void>(get());
    std::shared_ptr<Communicator> shared = communicator_;
    const nb::gil_scoped_release release;
    const std::shared_ptr<Communicator> kept = std::move(shared);  // it may go without the GIL only
    const AbortOnInterrupt interruptible(*kept);
    return function(*kept);
  }

 private:
  std::shared_ptr<Communicator> communicator_;
};

std::unique_ptr<PythonCommunicator> made(Communicator communicator);

std::chrono::milliseconds milliseconds_of(double seconds);

/// Adds parts of the class `Communicator`, each from a source of its own.
using CommunicatorClass = nb::class_<PythonCommunicator>;
void bind_makers(CommunicatorClass& communicators);
void bind_meeting_points(nb::module_& module);
void bind_rooted_calls(CommunicatorClass& communicators);
void bind_rootless_calls(CommunicatorClass& communicators);
void bind_messages(CommunicatorClass& communicators);
void bind_symmetric(CommunicatorClass& communicators);

}  // namespace tutti::python
