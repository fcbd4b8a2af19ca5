// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/nccl_api.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// A small library with NCCL's names, which stands for NCCL in tests: it computes with floats in host memory,
/// for up to four ranks of any processes, which share a file. It counts calls, and fails where FAKE_NCCL_FAIL
/// says. It has fewer functions than NCCL, as old versions do.
namespace fake_nccl {

inline constexpr int most_ranks = 4;
inline constexpr std::size_t slot_count = 8;
inline constexpr std::size_t slot_bytes = 4096;

/// Holds what ranks share, in a file that has zeros at first.
struct Shared {
  struct Rank {
    std::atomic<unsigned> posted;
    std::atomic<unsigned> consumed;
    std::array<std::array<std::byte, slot_bytes>, slot_count> slots;
  };
  struct Mail {
    std::atomic<unsigned> sent;
    std::atomic<unsigned> received;
    std::array<std::byte, slot_bytes> bytes;
  };
  std::atomic<int> arrived;
  std::atomic<int> is_aborted;
  std::array<Rank, most_ranks> ranks;
  std::array<std::array<Mail, most_ranks>, most_ranks> mail;
};

/// Counts a call. Returns success unless the function is to fail.
ncclResult_t count(const char* function);
/// Remembers the sentence for `ncclGetLastError`, and fails the thread's group. Returns `result`.
ncclResult_t fail(ncclResult_t result, const std::string& sentence);

/// A step of a call: at first all steps of a group give what others need, then all take.
struct Step {
  std::function<ncclResult_t()> give;
  std::function<ncclResult_t()> take;
};

/// Adds a step to the thread's group, or does it at once if there is none.
ncclResult_t add(Step step);
/// Returns a step that needs no others.
inline Step alone(std::function<ncclResult_t()> work) {
  return {.give = [] { return ncclSuccess; }, .take = std::move(work)};
}

/// Waits until the condition holds, at most ten seconds, or until a rank has aborted.
ncclResult_t wait(const ncclComm& comm, const std::function<bool()>& condition);

/// Reads what a rank has given.
using Given = std::function<const float*(int rank)>;
/// Computes a rank's result of what all have given.
using Compute = std::function<void(const Given&)>;

/// Makes a collective of `bytes` from each rank, at `in` unless that is nullptr.
ncclResult_t collective(const char* function, ncclComm_t comm, const void* in, std::size_t bytes,
                        ncclRedOp_t op, Compute compute);

}  // namespace fake_nccl

/// One rank of a communicator.
struct ncclComm {
  std::string path;
  fake_nccl::Shared* shared = nullptr;
  int rank = 0;
  int ranks = 1;
  int parts = 0;
  unsigned calls = 0;
  std::array<unsigned, fake_nccl::most_ranks> sent{};
  std::array<unsigned, fake_nccl::most_ranks> received{};
  std::vector<float> factors{};
};
