// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::team {

/// Who is in a team: its ranks, their members, and the hosts they are on. All ranks know the same, but for
/// which of it is local.
///
/// Members are devices: those of rank 0 in its order, then those of rank 1, and so on. *Local* members are
/// those of this rank; a local index counts them from 0. The value does not change.
class Membership {
 public:
  /// What a rank brings in.
  struct Rank {
    std::string host;  ///< ranks of one host give the same name
    std::size_t member_count = 0;
  };
  struct Host {
    std::string name;
    std::vector<std::size_t> ranks;
  };

  /// `ranks` are all, in order; `devices` are those of rank `rank`, as many as it has members.
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
  /// By local index.
  [[nodiscard]] const std::vector<int>& devices() const noexcept { return devices_; }

  /// In order of their first ranks.
  [[nodiscard]] const std::vector<Host>& hosts() const noexcept { return hosts_; }
  [[nodiscard]] bool spans_hosts() const noexcept { return hosts_.size() > 1; }
  [[nodiscard]] std::size_t host_of(std::size_t rank) const noexcept { return host_of_rank_[rank]; }
  [[nodiscard]] std::size_t this_host() const noexcept { return host_of_rank_[rank_]; }
  [[nodiscard]] bool is_on_this_host(std::size_t rank) const noexcept {
    return host_of_rank_[rank] == host_of_rank_[rank_];
  }
  /// The first rank of this host, which makes what its ranks share.
  [[nodiscard]] std::size_t first_on_this_host() const noexcept { return hosts_[this_host()].ranks.front(); }
  /// The rank on `host` that receives what `rank`, of another host, sends there.
  [[nodiscard]] std::size_t receiver(std::size_t rank, std::size_t host) const noexcept {
    return hosts_[host].ranks[rank % hosts_[host].ranks.size()];
  }
  /// Where ranks are, and that `network` copies between the hosts, in a line; empty if there is one host.
  [[nodiscard]] std::string hosts_in_words(std::string_view network) const;

 private:
  std::size_t rank_;
  std::vector<int> devices_;
  std::vector<std::size_t> first_members_;  ///< by rank, and how many members there are
  std::vector<std::size_t> rank_of_member_;
  std::vector<Host> hosts_;
  std::vector<std::size_t> host_of_rank_;
};

}  // namespace tutti::transport::team
