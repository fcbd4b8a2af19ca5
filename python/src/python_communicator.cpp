// SPDX-License-Identifier: Apache-2.0
#include "python_communicator.hpp"

#include "tutti/error.hpp"

#include <cstdint>

namespace tutti::python {

void PythonCommunicator::close() {
  if (communicator_ == nullptr) return;
  std::shared_ptr<Communicator> last = std::move(communicator_);
  const nb::gil_scoped_release release;
  const AbortOnInterrupt interruptible(*last);
  last.reset();
}

Communicator& PythonCommunicator::get() const {
  if (!is_open()) {
    throw Error(ErrorCode::invalid_argument, "the communicator has been closed, expected one that has not");
  }
  return *communicator_;
}

std::unique_ptr<PythonCommunicator> made(Communicator communicator) {
  return std::make_unique<PythonCommunicator>(std::move(communicator));
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace tutti::python
