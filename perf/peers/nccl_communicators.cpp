// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_communicators.hpp"

#include "perf/peers/nccl_defects.hpp"
#include "tutti/device.hpp"

#include <algorithm>

namespace tutti::perf {

void NcclCommunicators::make() {
  const Members& members = session_.members();
  ncclUniqueId id{};
  if (session_.processes().rank() == 0) nccl_.check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
  session_.processes().broadcast(std::as_writable_bytes(std::span(&id, 1)));
  std::vector<ncclComm_t> made(session_.streams().size(), nullptr);
  nccl_.check(nccl_.group_start(), "ncclGroupStart");
  for (std::size_t local = 0; local < made.size(); ++local) {
    const DeviceGuard guard(session_.streams()[local].device());
    nccl_.check(nccl_.init_rank(&made[local], members.count, id, members.number_of(local)),
                "ncclCommInitRank");
  }
  nccl_.check(nccl_.group_end(), "ncclGroupEnd");
  communicators_ = std::move(made);
}

void NcclCommunicators::end() noexcept {
  for (const Premultiplied& made : premultiplied_)
    static_cast<void>(nccl_.destroy_operation(made.operation, communicators_[made.local]));
  premultiplied_.clear();
  for (ncclComm_t communicator : communicators_) static_cast<void>(nccl_.destroy(communicator));
  communicators_.clear();
  sends_ = false;
}

void NcclCommunicators::abandon() noexcept {
  premultiplied_.clear();
  for (ncclComm_t communicator : communicators_) static_cast<void>(nccl_.abort(communicator));
  communicators_.clear();
  sends_ = false;
}

bool NcclCommunicators::can_make(NcclCallKind kind) const {
  return kind == NcclCallKind::messages || !sends_ || !loses_addresses_after_messages(nccl_.version());
}

void NcclCommunicators::expect(NcclCallKind kind) noexcept {
  sends_ = sends_ || kind == NcclCallKind::messages;
}

ncclRedOp_t NcclCommunicators::premultiplied_sum(std::size_t local, ncclDataType_t type,
                                                 std::span<const std::byte> factor) {
  const auto known = std::ranges::find_if(
      premultiplied_, [&](const Premultiplied& made) { return made.local == local && made.type == type; });
  if (known != premultiplied_.end()) return known->operation;
  std::vector<std::byte> element(factor.begin(), factor.end());  // NCCL takes it from what may change
  ncclRedOp_t operation = ncclSum;
  nccl_.check(nccl_.create_premul_sum(&operation, element.data(), type, ncclScalarHostImmediate,
                                      communicators_[local]),
              "ncclRedOpCreatePreMulSum");
  premultiplied_.push_back({local, type, operation});
  return operation;
}

}  // namespace tutti::perf
