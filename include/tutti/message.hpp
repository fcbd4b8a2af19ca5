// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include <cstdint>
#include <utility>

namespace tutti {

/// One side of a message between two members of a `Communicator`, for `Communicator::batch_send_recv`. The
/// tensor's device determines the local member whose side it is. A value type.
class Message {
 public:
  enum class Kind : std::uint8_t { send, recv };

  /// Makes the sending side: `tensor` goes to member `to`.
  [[nodiscard]] static Message send(Tensor tensor, int to) { return {Kind::send, std::move(tensor), to}; }
  /// Makes the receiving side: `out` receives what member `from` sends.
  [[nodiscard]] static Message recv(Tensor out, int from) { return {Kind::recv, std::move(out), from}; }

  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  [[nodiscard]] const Tensor& tensor() const noexcept { return tensor_; }
  /// Returns the other member.
  [[nodiscard]] int peer() const noexcept { return peer_; }

 private:
  Message(Kind kind, Tensor tensor, int peer) : kind_(kind), tensor_(std::move(tensor)), peer_(peer) {}

  Kind kind_;
  Tensor tensor_;
  int peer_;
};

}  // namespace tutti
