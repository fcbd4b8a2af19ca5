// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/call.hpp"
#include "tutti/communicator.hpp"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::nccl_api {

/// The ranks of a communicator that one thread has made together: local members of one `Communicator`. A call
/// needs the calls of all of them, which come in one group or from several threads.
class Clique {
 public:
  explicit Clique(Communicator communicator);

  [[nodiscard]] Communicator& communicator() noexcept { return communicator_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(devices_.size()); }
  [[nodiscard]] int first_rank() const noexcept { return first_rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] Device device(int local) const noexcept { return devices_[static_cast<std::size_t>(local)]; }

  /// Queues one call of a clique of one.
  void carry_out(const Call& call);
  /// Queues what some of the members have called, once the calls of the others are there. Throws a `Refusal`
  /// if they do not come in time; the communicator has ended then.
  void carry_out(std::span<Batch> batches);
  /// Wakes threads that wait for calls of others, after the communicator has ended.
  void wake();

 private:
  using Queue = std::deque<Batch*>;
  using Lock = std::unique_lock<std::mutex>;

  void carry_out_collectives(std::span<Batch> batches);
  void carry_out_messages(std::span<Batch> batches);
  [[nodiscard]] bool have_all_called() const noexcept;
  [[nodiscard]] bool are_messages_paired() const;
  void issue_next(Lock& lock);
  void issue_messages(Lock& lock);
  void issue(Lock& lock, std::span<Batch* const> batches, const std::function<void()>& work);
  void await(Lock& lock, std::span<Batch> batches, const std::function<void()>& progress);
  void withdraw(std::span<Batch> batches);
  [[nodiscard]] int missing_rank() const noexcept;

  Communicator communicator_;
  std::vector<Device> devices_;
  int first_rank_;
  int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_issuing_ = false;         ///< under the mutex, as all below
  std::vector<Queue> collectives_;  ///< of each member
  std::vector<Batch*> messages_;
};

}  // namespace tutti::nccl_api

/// A rank of a communicator.
struct ncclComm {
  static constexpr std::uint64_t live = 0x7475747469636f6d;

  std::uint64_t mark = live;  ///< tells whether the pointer is one
  std::shared_ptr<tutti::nccl_api::Clique> clique{};
  int local = 0;  ///< place in the clique
  int rank = 0;
  int ranks = 1;
  tutti::Device device{};
  bool is_finalized = false;
  /// Those of `ncclRedOpCreatePreMulSum`, from the number `ncclNumOps` on.
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

/// Throws a `Refusal` unless `comm` is a communicator that has been made.
void require_communicator(const char* function, ncclComm_t comm);

}  // namespace tutti::nccl_api
