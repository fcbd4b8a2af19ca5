// SPDX-License-Identifier: Apache-2.0
#include "staging.hpp"

#include "interrupts.hpp"
#include "shared_object.hpp"
#include "tutti/error.hpp"
#include "tutti/virtual_devices.hpp"
#include "work.hpp"

#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti::python {
namespace {

/// Queues a copy between host memory and a virtual device; the work owns a share in `owner`, which has the
/// host memory.
void queue_copy(const Tensor& device, void* host, nb::handle owner, bool to_device) {
  const std::size_t bytes = device.nbytes();
  if (bytes == 0) return;
  using virtual_devices::Access;
  const Access access{device.data(), bytes, to_device ? Access::Use::write : Access::Use::read};
  const auto kept = shared_object(owner);
  const Stream stream = current_stream(device.device());
  device.record_stream(stream);
  virtual_devices::launch(stream, to_device ? "copy from host" : "copy to host", std::span(&access, 1),
                          [=](std::span<void* const> addresses) {
                            static_cast<void>(kept);
                            if (to_device) {
                              std::memcpy(addresses[0], host, bytes);
                            } else {
                              std::memcpy(host, addresses[0], bytes);
                            }
                          });
}

bool may_queue(const Operand& host) {
  return Work::current() != nullptr && host.tensor.is_contiguous() && backend_kind() == BackendKind::host;
}

}  // namespace

bool use_in_place(Operand& host, Device device) {
  if (!may_queue(host) || host.tensor.is_read_only() || host.tensor.nbytes() == 0) return false;
  nb::object share = share_in_memory(host.object);
  try {
    host.range = std::make_shared<virtual_devices::ManagedRange>(host.tensor.data(), host.tensor.nbytes());
  } catch (const Error&) {
    return false;
  }
  host.object = std::move(share);
  host.tensor = Tensor(TensorView(host.tensor.data(), host.tensor.layout(), device));
  return true;
}

void keep_in_place(const std::vector<Operand>& operands) noexcept try {
  struct Kept {
    std::shared_ptr<void> memory;
    std::shared_ptr<virtual_devices::ManagedRange> range;  // which ends first
  };
  const auto kept = std::make_shared<std::vector<Kept>>();
  Device device;
  for (const Operand& operand : operands) {
    if (operand.range == nullptr) continue;
    kept->push_back({shared_object(operand.object), operand.range});
    device = operand.tensor.device();
  }
  if (kept->empty()) return;
  virtual_devices::launch(current_stream(device), "let go of host memory", {},
                          [kept](std::span<void* const>) { kept->clear(); });
} catch (const std::exception&) {
  // Nobody knows when work on them is over: they are kept for good.
  new std::vector<Operand>(operands);
}

void copy_in(const Operand& host, const Tensor& device) {
  if (may_queue(host)) return queue_copy(device, host.tensor.data(), host.object, true);
  const nb::gil_scoped_release release;
  device.copy_(host.tensor);
}

void wait_for_stream_of(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  wait_interruptibly([stream] { stream.synchronize(); });
}

void copy_out(const Tensor& device, const Operand& host) {
  if (may_queue(host) && !host.tensor.is_read_only()) {
    return queue_copy(device, host.tensor.data(), host.object, false);
  }
  wait_for_stream_of(device);
  const nb::gil_scoped_release release;
  host.tensor.copy_(device);
}

}  // namespace tutti::python
