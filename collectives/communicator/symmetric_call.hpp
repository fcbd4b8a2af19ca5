// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/team_turn.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/symmetric/symmetric_allocation.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/dtype.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::collectives {

/// The call that makes symmetric memory. It takes its turn among the calls of this rank, is compared with
/// those of the others, and waits for them. What one rank cannot do fails on all, and the communicator goes
/// on.
class SymmetricCall final : public TeamTurn {
 public:
  SymmetricCall(TeamContext& context, IntList sizes, DType dtype);
  [[nodiscard]] std::shared_ptr<transport::team::SymmetricAllocation> run();

 private:
  using Allocation = transport::team::SymmetricAllocation;
  using Place = transport::team::Registrations::Place;
  /// Describes a rank's blocks to the others.
  struct Contribution {
    std::array<Place, transport::team::most_local_members> places{};  ///< by local index
    SharedMemory::Handle flags;                                       ///< of rank 0
  };

  void require_means() const;
  void post();
  /// Calls `step` on all ranks. If it throws on one, all call `undo` and throw that error.
  void do_together(const std::function<void()>& step, const std::function<void()>& undo = nullptr);
  /// Lets the others open the local blocks, and finds their places.
  void expose();
  /// Returns the addresses of all members' blocks, by local index, then member.
  [[nodiscard]] std::vector<std::vector<std::byte*>> peers(const std::vector<Contribution>& by_rank) const;
  [[nodiscard]] std::string call_in_words() const override { return to_string(signature_); }

  const LayoutPtr layout_;
  transport::team::Signature signature_;
  std::uint64_t sequence_ = 0;
  std::optional<transport::team::TeamExchange> exchange_;
  std::shared_ptr<Allocation> allocation_;
  SharedMemory flags_;
  Contribution mine_;
};

}  // namespace tutti::collectives
