// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/peer.hpp"
#include "perf/processes/failure.hpp"

namespace tutti::perf {

std::unique_ptr<Peer> make_nccl_peer(const Session&, std::optional<int>) {
  throw UsageError(
      "--peer nccl: this tutti-perf was built without NCCL (nccl.h and a CUDA toolkit are needed)");
}

}  // namespace tutti::perf
