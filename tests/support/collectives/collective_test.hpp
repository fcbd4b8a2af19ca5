// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/environment.hpp"
#include "support/values/host_array.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/collectives.hpp"
#include "tutti/error.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Returns every transport that can be requested in this process; NCCL only if there may be GPUs.
[[nodiscard]] std::vector<TransportKind> transports_under_test();

/// Returns why NCCL cannot be used here; empty if it can. Checks once.
[[nodiscard]] const std::string& reason_against_nccl();

/// Returns whether P2P is right to say, in `refusal`, that no two of a call's devices have access to each
/// other: there are at least two such devices, and if it names two, they are such devices.
[[nodiscard]] bool is_right_refusal_by_p2p(const std::string& refusal);

/// Runs `call(options)` with the transport bound. NCCL carries neither every element type nor every device
/// list, and P2P needs peer access between some of the call's devices: if they refuse for that reason, and
/// only then, the call runs again with the automatic choice, which must carry everything.
template <class Call>
void carry(TransportKind transport, Call&& call, CollectiveOptions options = {}) {
  options.transport = transport;
  try {
    call(options);
    return;
  } catch (const Error& error) {
    const bool may_refuse = transport == TransportKind::nccl ||
                            (transport == TransportKind::p2p && is_right_refusal_by_p2p(error.what()));
    if (error.code() != ErrorCode::unsupported || !may_refuse) throw;
  }
  options.transport = TransportKind::automatic;
  call(options);
}

/// Runs a contract suite once per transport.
class CollectiveTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override;
  /// Checks that all devices are idle and no queued work has failed.
  void TearDown() override;

  template <class Call>
  void carry(Call&& call, const CollectiveOptions& options = {}) {
    test::carry(GetParam(), std::forward<Call>(call), options);
  }
};

struct TransportName {
  std::string operator()(const testing::TestParamInfo<TransportKind>& info) const {
    return std::string(name_of(info.param));
  }
};

/// Instantiates a suite derived from CollectiveTest for every transport.
#define TUTTI_FOR_EVERY_TRANSPORT(suite)                                                                 \
  INSTANTIATE_TEST_SUITE_P(Transports, suite, testing::ValuesIn(::tutti::test::transports_under_test()), \
                           ::tutti::test::TransportName{})

/// Returns sizes in bytes around the places where implementations change their behaviour: vector widths,
/// pages, chunks, thresholds.
[[nodiscard]] std::vector<std::int64_t> telling_sizes();

/// Returns the devices in another order than by index, so that position and index cannot be confused.
[[nodiscard]] std::vector<Device> shuffled(std::vector<Device> devices);

}  // namespace tutti::test
