// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/mpi_calls.hpp"
#include "perf/peers/peer.hpp"
#include "perf/processes/usage_error.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include <mpi.h>

namespace tutti::perf {
namespace {

/// MPI knows nothing of the devices: equal buffers, but in pageable memory.
class HostMemory final : public OperandMemory {
 public:
  void start_set(std::size_t /*set*/) override {}
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype,
                            std::size_t /*local*/) override {
    return empty(sizes, {.dtype = dtype, .device = Device::host()});
  }
};

class MpiPeer final : public Peer {
 public:
  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] std::string name_and_version() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data(), static_cast<std::size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
  }
  [[nodiscard]] OperandMemory* memory(std::size_t /*mode*/, const Operation& /*operation*/,
                                      const Case& /*what*/, std::size_t /*sets*/) override {
    return &memory_;
  }
  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    return MpiCalls::refusal(operation, call);
  }
  void enqueue(std::size_t /*mode*/, const Operation& operation, const Call& call) override {
    calls_.make(operation, call);
  }
  [[nodiscard]] std::function<void()> record(std::size_t /*mode*/, const Operation&,
                                             const std::vector<const Call*>&) override {
    throw Error(ErrorCode::unsupported, "--peer mpi: MPI's collectives cannot be recorded");
  }

 private:
  HostMemory memory_;
  MpiCalls calls_;
};

}  // namespace

std::unique_ptr<Peer> make_mpi_peer(const Session& session) {
  if (session.topology().backend != BackendKind::host) {
    throw UsageError(
        "--peer mpi: MPI's collectives are measured on host memory, beside virtual devices only "
        "(--backend host); on GPUs the peer is nccl");
  }
  if (session.job().devices_per_rank != 1) {
    throw UsageError("--peer mpi: an MPI process takes part once: one device per rank (-g 1)");
  }
  return std::make_unique<MpiPeer>();
}

}  // namespace tutti::perf
