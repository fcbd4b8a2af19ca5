// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

/// Records the calls to a fake NCCL, which moves nothing, and holds its answers.
struct FakeNccl {
  struct Told {
    void* communicator;
    void* memory;
    std::size_t bytes;
    int flags;
  };
  std::vector<Told> buffers;  ///< registered, and not yet deregistered
  std::vector<Told> windows;
  std::vector<void*> memory;
  std::vector<void*> communicators;  ///< made, and not yet ended
  char names[64] = {};               ///< theirs, one after another
  std::size_t communicators_made = 0;
  std::vector<void*> ever_told;  ///< communicators, of some memory
  int aborts = 0;
  int frees_under_communicators = 0;  ///< of memory that NCCL may know still
  int open_groups = 0;
  int registrations = 0;  ///< in all
  int registrations_outside_groups = 0;
  int allocations_left = 1000;  ///< before there is no memory
  int version = 22803;          ///< of one that is not old
  bool registers_buffers = true;
  bool has_windows = true;  ///< between these devices
  bool refuses_windows = false;
};
