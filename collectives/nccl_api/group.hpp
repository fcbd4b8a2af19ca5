// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/call.hpp"
#include "collectives/nccl_api/join_request.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace tutti::nccl_api {

/// A call that NCCL is to make for a communicator that it carries.
struct Forwarded {
  const char* function = "";
  ncclComm_t comm = nullptr;  ///< null if the call makes the first one of a rank
  std::function<ncclResult_t()> call{};
  std::function<void()> finish{};  ///< called once NCCL's group has ended; may be empty
};

/// Keeps the calls that a thread has made since its outermost `ncclGroupStart`.
class Group {
 public:
  [[nodiscard]] static Group& of_thread();

  void start() noexcept { ++depth_; }
  [[nodiscard]] bool is_open() const noexcept { return depth_ > 0; }
  /// Carries everything out if it is the outermost end. Throws a `Refusal` if no group was started.
  void end();
  /// Ends an inner group without carrying it out.
  void abandon() noexcept;
  /// Has the outermost end drop everything, after a call of the group has failed.
  void fail(ncclResult_t result) noexcept {
    if (depth_ > 0) failure_ = result;
  }

  /// Queue what is called in a group, and carry it out at once outside one.
  void add(const Call& call);
  void add(const Joining& joining);
  void add(const Splitting& splitting);
  void add(Growing growing);
  void add(Forwarded forwarded);
  /// Drops what is queued for a communicator that is aborted.
  void drop(ncclComm_t comm) noexcept;
  /// Has the outermost end destroy the communicator, after all calls.
  void add_leaving(ncclComm_t comm) { leaving_.push_back(comm); }

 private:
  void carry_out();
  /// Owns the handle until the calls have been made, whatever other threads do with it.
  void keep(ncclComm_t comm);
  /// Throws a `Refusal` if another thread has taken a communicator away of which there are calls.
  void require_kept() const;
  void carry_out_calls();
  void forward_calls();
  void leave();
  void clear() noexcept;

  int depth_ = 0;
  ncclResult_t failure_ = ncclSuccess;
  std::vector<Call> calls_;
  std::vector<Joining> joinings_;
  std::vector<Splitting> splittings_;
  std::vector<Growing> growings_;
  std::vector<Forwarded> forwarded_;
  std::vector<ncclComm_t> leaving_;
  std::vector<std::shared_ptr<ncclComm>> kept_;
};

/// Makes the calls of a scope a group. `end` carries it out; without it, the calls stay in the group around,
/// which has failed.
class GroupGuard {
 public:
  GroupGuard() noexcept { Group::of_thread().start(); }
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;
  ~GroupGuard() {
    if (!has_ended_) Group::of_thread().abandon();
  }
  void end() {
    has_ended_ = true;
    Group::of_thread().end();
  }

 private:
  bool has_ended_ = false;
};

}  // namespace tutti::nccl_api
