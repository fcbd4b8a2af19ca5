// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/host_backend.hpp"
#include "settings/environment.hpp"
#include "tutti/error.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::backend {

/// Gives each test a virtual machine of its own, with short ways to fill it with data.
class HostMachine : public testing::Test {
 protected:
  static constexpr std::size_t memory_bytes = std::size_t{64} << 20;

  explicit HostMachine(std::string_view topology = "island", int device_count = 4) {
    boot(topology, device_count);
  }

  void boot(std::string_view topology, int device_count = 4) {
    auto description = virtual_devices::VirtualMachine::from_topology(topology, device_count);
    description.memory_bytes = memory_bytes;
    host_ = make_host_backend(description, Environment::read().virtual_seed);
  }

  Backend& machine() { return *host_.backend; }
  VirtualMachineControl& control() { return *host_.control; }
  void shut_down() { host_ = {}; }

  template <class T>
  T* allocate(int device, std::size_t count) {
    void* address = machine().allocate_device(device, count * sizeof(T));
    EXPECT_NE(address, nullptr);
    return static_cast<T*>(address);
  }

  template <class T>
  T* upload(int device, const std::vector<T>& values) {
    T* address = allocate<T>(device, values.size());
    copy(machine().default_stream(device), address, values.data(), values.size() * sizeof(T));
    machine().synchronize_device(device);
    return address;
  }

  template <class T>
  std::vector<T> download(int device, const T* address, std::size_t count) {
    std::vector<T> values(count);
    copy(machine().default_stream(device), values.data(), address, count * sizeof(T));
    machine().synchronize_device(device);
    return values;
  }

  void copy(StreamRef stream, void* target, const void* source, std::size_t bytes) {
    machine().copy(stream, {.target = static_cast<std::byte*>(target),
                            .source = static_cast<const std::byte*>(source),
                            .row_bytes = bytes});
  }

  void launch(StreamRef stream, std::string_view name,
              std::initializer_list<virtual_devices::Access> accesses,
              std::function<void(std::span<void* const>)> kernel) {
    control().launch(stream, name, std::span(accesses.begin(), accesses.size()), std::move(kernel));
  }

 private:
  HostBackend host_;
};

/// Keeps a stream busy until `open`.
class Gate {
 public:
  ~Gate() { open(); }
  void block(Backend& machine, StreamRef stream) {
    // With its own references: the gate may be gone before the worker has noticed that it is open.
    struct Blocked {
      std::shared_future<void> opened;
      std::promise<void> is_reached{};
    };
    const auto wait = [](void* argument) {
      const std::unique_ptr<Blocked> blocked(static_cast<Blocked*>(argument));
      blocked->is_reached.set_value();
      blocked->opened.wait();
    };
    auto* const blocked = new Blocked{.opened = opened_};
    is_reached_ = blocked->is_reached.get_future();
    machine.launch_host_function(stream, wait, blocked);
  }
  /// Waits until the stream that was blocked last has come to the gate.
  void wait_until_reached() { is_reached_.wait(); }
  void open() {
    if (!std::exchange(is_open_, true)) promise_.set_value();
  }

 private:
  bool is_open_ = false;
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
  std::future<void> is_reached_;
};

/// Returns the message of the `Error` that `call` throws with `code`; fails an expectation if it does not.
template <class Call>
std::string error_message(ErrorCode code, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

template <class T>
std::byte* bytes_of(T* address) {
  return reinterpret_cast<std::byte*>(address);
}

}  // namespace tutti::backend
