// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::team {

/// Describes who is in a team: its ranks, their members, and the hosts they are on. It is the same on all
/// ranks, except for what is local.
///
/// Members are devices: those of rank 0 in its order, then those of rank 1, and so on. *Local* members are
/// those of this rank; a local index counts them from 0. Immutable.
class Membership {
 public:
  /// A rank's contribution.
  struct Rank {
    std::string host;  ///< the same for all ranks of one host
    std::size_t member_count = 0;
    std::uint64_t process = 0;  ///< the same for all ranks of one process; 0: of a process of its own
  };
  struct Host {
    std::string name;
    std::vector<std::size_t> ranks;
  };

  /// `ranks` are all ranks, in order; `devices` are those of rank `rank`, one for each of its members.
  Membership(std::size_t rank, std::span<const Rank> ranks, std::vector<int> devices);

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t rank_count() const noexcept { return host_of_rank_.size(); }
  [[nodiscard]] std::size_t member_count() const noexcept { return rank_of_member_.size(); }
  [[nodiscard]] const std::vector<std::size_t>& rank_of_member() const noexcept { return rank_of_member_; }
  [[nodiscard]] std::size_t first_member(std::size_t rank) const noexcept { return first_members_[rank]; }
  [[nodiscard]] std::size_t member_count(std::size_t rank) const noexcept {
    return first_members_[rank + 1] - first_members_[rank];
  }
  [[nodiscard]] std::size_t most_members_of_a_rank() const noexcept;

  [[nodiscard]] std::size_t first_local() const noexcept { return first_members_[rank_]; }
  [[nodiscard]] std::size_t local_count() const noexcept { return devices_.size(); }
  [[nodiscard]] bool is_local(std::size_t member) const noexcept { return rank_of_member_[member] == rank_; }
  /// Returns this rank's devices, by local index.
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }

  /// Returns true if the rank is another one of this process, and one of this host. Such ranks use each
  /// other's memory by its own address.
  [[nodiscard]] bool shares_process(std::size_t rank) const noexcept { return shares_process_[rank]; }
  [[nodiscard]] const std::vector<bool>& shares_process() const noexcept { return shares_process_; }
  /// Returns true if there are other ranks of this process.
  [[nodiscard]] bool shares_process_with_any() const noexcept;
  /// Returns true if all ranks are of this process.
  [[nodiscard]] bool is_in_one_process() const noexcept;

  /// Returns the hosts in order of their first ranks.
  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] bool spans_hosts() const noexcept { return hosts_.size() > 1; }
  [[nodiscard]] std::size_t host_of(std::size_t rank) const noexcept { return host_of_rank_[rank]; }
  [[nodiscard]] std::size_t this_host() const noexcept { return host_of_rank_[rank_]; }
  [[nodiscard]] bool is_on_this_host(std::size_t rank) const noexcept {
    return host_of_rank_[rank] == host_of_rank_[rank_];
  }
  /// Returns the first rank of this host, which creates what its ranks share.
  [[nodiscard]] std::size_t first_on_this_host() const noexcept { return hosts_[this_host()].ranks.front(); }
  /// Returns the rank on `host` that receives what `rank`, of another host, sends there.
  [[nodiscard]] std::size_t receiver(std::size_t rank, std::size_t host) const noexcept {
    return hosts_[host].ranks[rank % hosts_[host].ranks.size()];
  }
  /// Describes in a line where ranks are, and that `network` copies between the hosts; empty if there is one
  /// host.
  [[nodiscard]] std::string hosts_in_words(std::string_view network) const;

 private:
  std::size_t rank_;
  std::vector<int> devices_;
  std::vector<std::size_t> first_members_;  ///< by rank, and how many members there are
  std::vector<std::size_t> rank_of_member_;
  std::vector<Host> hosts_;
  std::vector<std::size_t> host_of_rank_;
  std::vector<bool> shares_process_;  ///< by rank
};

}  // namespace tutti::transport::team
