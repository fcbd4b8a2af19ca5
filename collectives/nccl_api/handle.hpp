// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/call.hpp"
#include "tutti/device.hpp"
#include "tutti/nccl_api.h"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tutti::nccl_api {

class Clique;

}  // namespace tutti::nccl_api

/// A rank of a communicator, which either tutti carries or NCCL.
struct ncclComm : std::enable_shared_from_this<ncclComm> {
  static constexpr std::uint64_t live = 0x7475747469636f6d;

  std::atomic<std::uint64_t> mark{live};              ///< tells whether the pointer is one
  std::shared_ptr<ncclComm> self{};                   ///< the program's share in the handle
  std::atomic<bool> is_given_back{false};             ///< the program has no share any more
  std::shared_ptr<tutti::nccl_api::Clique> clique{};  ///< empty if NCCL carries it
  ncclComm* nccl = nullptr;                           ///< NCCL's handle, which only NCCL looks into
  int local = 0;                                      ///< place in the clique
  int rank = 0;
  int ranks = 1;
  tutti::Device device{};
  bool is_finalized = false;
  /// The factors of `ncclRedOpCreatePreMulSum`: the first is operation `ncclNumOps`, and so on.
  std::vector<std::shared_ptr<const tutti::nccl_api::Factor>> factors{};

  /// Returns the stream behind a handle.
  [[nodiscard]] const tutti::Stream& stream(cudaStream_t handle);
  /// Returns a flat tensor over the program's memory.
  [[nodiscard]] tutti::Tensor tensor(const void* data, tutti::DType dtype, std::size_t count);

 private:
  struct KnownStream {
    cudaStream_t handle;
    tutti::Stream stream;
  };
  struct KnownLayout {
    std::size_t count = 0;
    tutti::DType dtype{};
    tutti::LayoutPtr layout{};
  };
  std::vector<KnownStream> streams_{};  ///< used lately
  std::size_t oldest_stream_ = 0;
  std::array<KnownLayout, 16> layouts_{};  ///< by a hash of count and type
};

namespace tutti::nccl_api {

/// Makes the program an owner of the handle. Groups that queue calls of it are others.
[[nodiscard]] ncclComm_t give_out(std::shared_ptr<ncclComm> handle) noexcept;
/// Takes the handle from the program.
[[nodiscard]] std::shared_ptr<ncclComm> take_back(ncclComm_t comm) noexcept;

/// Throws a `Refusal` unless `comm` is a communicator that has been made.
void require_communicator(const char* function, ncclComm_t comm);

}  // namespace tutti::nccl_api
