// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "allocator/pinned_allocator.hpp"
#include "device/runtime.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport {

/// A pair of devices of which `device` accesses the memory of `peer`.
struct DevicePair {
  int device = -1;
  int peer = -1;
};

/// Tests that bytes arrive intact between devices with peer access: some machines report peer access and lose
/// or damage data.
///
/// For every pair, the device writes a pattern of the pair's own into the peer's memory by kernel and another
/// one by copy engine, and reads one of the peer's by kernel. Each device's memory is then copied to the host
/// by that device, and every byte is checked. One upload, kernel and download per device; all devices work at
/// once. With very many pairs, on virtual devices, the patterns are shorter, and what does not fit into a
/// bounded amount of memory at once is tested in rounds.
class SelfTest {
 public:
  /// Allocates the memory. `streams` has one stream per device of the runtime, used by nobody else; peer
  /// access of `pairs` must be enabled. Throws OutOfMemoryError.
  SelfTest(Runtime& runtime, std::span<const backend::StreamRef> streams, std::span<const DevicePair> pairs);
  SelfTest(const SelfTest&) = delete;
  SelfTest& operator=(const SelfTest&) = delete;
  ~SelfTest();

  /// Returns a description of the fault of each pair, in the order given; empty if all bytes arrived. Waits
  /// for the streams.
  ///
  /// Throws the backend's errors while work is enqueued. Asynchronous failures that were pending before, or
  /// of devices all of whose bytes arrived, belong to other work and are passed on.
  [[nodiscard]] std::vector<std::string> run();

 private:
  /// One device taking part, with a block of its memory and a copy of it on the host: the pattern, then
  /// slots.
  struct Participant {
    backend::StreamRef stream;
    Block* block = nullptr;
    std::byte* device_memory = nullptr;
    std::byte* host_memory = nullptr;
    std::size_t bytes = 0;
    std::exception_ptr failure;   ///< the first its stream reported
    std::string failure_message;  ///< in words
    bool failed_the_test = false;
  };
  enum class Way : std::uint8_t { kernel_write, engine_write, kernel_read };
  /// A pattern that is written into a slot in one round.
  struct Transfer {
    std::size_t pair;  ///< index into `pairs_`
    Way way;
    std::size_t actor;  ///< index into `participants_`, as are the next two
    std::size_t source;
    std::size_t source_offset;
    std::size_t target;
    std::size_t target_offset;
  };

  [[nodiscard]] std::size_t participant_of(int device) const;
  void add_participants();
  void order_pairs();
  [[nodiscard]] std::size_t round_count() const noexcept;
  void lay_out_round(std::size_t round);
  void allocate();
  void release() noexcept;
  void write_patterns();
  void upload();
  void run_kernels();
  void run_copies();
  void download();
  void synchronize() noexcept;
  void check(std::vector<std::string>& findings);
  [[nodiscard]] std::string in_words(const Transfer& transfer) const;

  Runtime& runtime_;
  std::span<const backend::StreamRef> streams_;
  std::span<const DevicePair> pairs_;
  std::vector<Participant> participants_;  ///< by device
  std::vector<std::size_t> order_;         ///< indices into `pairs_`, one round after another
  std::vector<Transfer> transfers_;        ///< of the current round
  std::size_t slot_bytes_ = 0;
  std::size_t pattern_bytes_ = 0;
  PinnedBlock* pinned_ = nullptr;
  bool has_work_queued_ = false;
};

}  // namespace tutti::transport
