// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"
#include "storage/storage.hpp"
#include "transport/team/symmetric/release_flags.hpp"

#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::transport::team {

using SymmetricBlocks = std::vector<detail::IntrusivePtr<Storage>>;

/// Keeps the blocks of symmetric memory that this rank has released until all others have, too. A part of the
/// runtime, which what is released late may outlive. Thread-safe.
class ReleasedBlocks final : public Reclaimer, public std::enable_shared_from_this<ReleasedBlocks> {
 public:
  explicit ReleasedBlocks(Runtime& runtime);
  /// Leaves blocks that others still use allocated for ever.
  virtual ~ReleasedBlocks();

  /// Makes it one of the runtime's reclaimers.
  void join();
  struct Released {
    std::shared_ptr<const ReleaseFlags> flags;
    SymmetricBlocks blocks;
  };
  /// Takes over a list that its owner makes beforehand, so that this allocates nothing.
  void add(std::list<Released>&& released) noexcept;
  /// Frees blocks that nobody uses; returns true if there were any.
  bool reclaim() override;

 private:
  const std::shared_ptr<Reclaimers> reclaimers_;
  std::mutex mutex_;  ///< guards those below
  bool is_reclaimer_ = false;
  std::list<Released> kept_;
};

}  // namespace tutti::transport::team
