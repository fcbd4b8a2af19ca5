// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/found_in.hpp"
#include "perf/operations/reductions.hpp"
#include "perf/peers/peer.hpp"
#include "perf/processes/failure.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>

namespace tutti::perf {
namespace {

/// What MPI takes elements of this type for when it only moves them.
MPI_Datatype moved_type(DType dtype) {
  const std::pair<std::size_t, MPI_Datatype> types[] = {
      {1, MPI_UINT8_T}, {2, MPI_UINT16_T}, {4, MPI_UINT32_T}, {8, MPI_UINT64_T}};
  return found_in(types, size_of(dtype)).value_or(MPI_C_DOUBLE_COMPLEX);
}

/// The types that MPI sums.
const std::pair<DType, MPI_Datatype> mpi_summed_types[] = {{DType::boolean, MPI_C_BOOL},
                                                           {DType::int8, MPI_INT8_T},
                                                           {DType::uint8, MPI_UINT8_T},
                                                           {DType::int16, MPI_INT16_T},
                                                           {DType::uint16, MPI_UINT16_T},
                                                           {DType::int32, MPI_INT32_T},
                                                           {DType::uint32, MPI_UINT32_T},
                                                           {DType::int64, MPI_INT64_T},
                                                           {DType::uint64, MPI_UINT64_T},
                                                           {DType::float32, MPI_FLOAT},
                                                           {DType::float64, MPI_DOUBLE},
                                                           {DType::complex64, MPI_C_FLOAT_COMPLEX},
                                                           {DType::complex128, MPI_C_DOUBLE_COMPLEX}};
/// MPI's operations for a reduction, of numbers and of bool: there, sums and maxima are logical or, products
/// and minima logical and.
struct Operations {
  MPI_Op of_numbers;
  MPI_Op of_bool;
};
const std::pair<ReduceKind, Operations> mpi_operations[] = {
    {ReduceKind::sum, {MPI_SUM, MPI_LOR}},    {ReduceKind::min, {MPI_MIN, MPI_LAND}},
    {ReduceKind::max, {MPI_MAX, MPI_LOR}},    {ReduceKind::prod, {MPI_PROD, MPI_LAND}},
    {ReduceKind::band, {MPI_BAND, MPI_LAND}}, {ReduceKind::bor, {MPI_BOR, MPI_LOR}},
    {ReduceKind::bxor, {MPI_BXOR, MPI_LXOR}}};

MPI_Datatype summed_type(DType dtype) {
  return found_in(mpi_summed_types, dtype).value();
}
MPI_Op operation_of(DType dtype, ReduceKind kind) {
  const Operations named = found_in(mpi_operations, kind).value();
  return dtype == DType::boolean ? named.of_bool : named.of_numbers;
}

int count_of(const Tensor& tensor) {
  return static_cast<int>(tensor.numel());
}

/// MPI's way of saying that the output is the input.
const void* unless_in_place(const void* input, const void* output) {
  return input == output ? MPI_IN_PLACE : input;
}

/// Every rank's chunk, in elements.
struct RankParts {
  RankParts(const Call& call, DType dtype) {
    for (const std::size_t bytes : call.part_bytes) add(static_cast<int>(bytes / size_of(dtype)));
  }
  explicit RankParts(const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes) add(static_cast<int>(size));
  }
  void add(int count) {
    starts.push_back(counts.empty() ? 0 : starts.back() + counts.back());
    counts.push_back(count);
  }
  [[nodiscard]] bool are_equal() const {
    return std::ranges::all_of(counts, [this](int count) { return count == counts.front(); });
  }
  std::vector<int> counts;
  std::vector<int> starts;
};

void require(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw Error(ErrorCode::transport_failure, fmt::format("--peer mpi: {}: {}", what, text.data()), result);
}

/// MPI knows nothing of the devices: equal buffers, but in pageable memory.
class HostMemory final : public OperandMemory {
 public:
  void start_set(std::size_t /*set*/) override {}
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype,
                            std::size_t /*local*/) override {
    return empty(sizes, {.dtype = dtype, .device = Device::host()});
  }
};

/// Makes the calls of MPI that do what an operation does, one for each tensor, as a program without tutti
/// would write it: between all ranks, in a communicator of its own. They block.
class MpiPeer final : public Peer {
 public:
  MpiPeer() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  ~MpiPeer() override { MPI_Comm_free(&comm_); }

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] std::string name_and_version() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string version(text.data(), static_cast<std::size_t>(length));
    return version.substr(0, version.find_first_of(",\n"));
  }
  [[nodiscard]] std::vector<PeerMode> modes() const override { return {{"", "", "", "host"}}; }
  [[nodiscard]] OperandMemory* memory(std::size_t /*mode*/, const Operation& /*operation*/,
                                      const Case& /*what*/, std::size_t /*sets*/) override {
    return &memory_;
  }
  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    if (call.dim != 0) return "MPI gets contiguous memory only";
    if (call.count > std::numeric_limits<int>::max()) return "MPI counts elements with an int";
    if (call.count != 0 && !call.input_sizes.empty() && call.inputs[0][0].data() == call.outputs[0][0].data())
      return "MPI exchanges in place only if each member sends and receives equal parts";
    if (!operation.sums()) return "";
    if (!found_in(mpi_operations, call.reduce_kind))
      return fmt::format("MPI has no {}", name_of_reduction(call.reduce_kind));
    for (const Buffer& input : call.input_buffers) {
      const DType dtype = input.tensor.dtype();
      if (!found_in(mpi_summed_types, dtype))
        return fmt::format("MPI has no {} of {}", name_of_reduction(call.reduce_kind), name_of(dtype));
    }
    return "";
  }
  void enqueue(std::size_t /*mode*/, const Operation& operation, const Call& call) override {
    if (!operation.moves_tensors()) return require(MPI_Barrier(comm_), "MPI_Barrier");
    if (call.count == 0) return;
    if (operation.goes_around()) return pass_on(call.inputs[0][0], call.outputs[0][0]);
    for (std::size_t tensor = 0; tensor < call.tensors; ++tensor)
      make_one(*operation.collective(), call, tensor);
  }

 private:
  [[nodiscard]] bool is_root(const Call& call) const { return rank_ == call.root; }
  void make_one(Collective collective, const Call& call, std::size_t tensor) const {
    switch (collective) {
      case Collective::broadcast: {
        const Tensor& copy = call.outputs[0][tensor];
        if (copy.numel() == 0) return;
        // MPI has it in place only; out of place its users copy.
        if (is_root(call) && call.inputs[0][tensor].data() != copy.data()) copy.copy_(call.inputs[0][tensor]);
        require(MPI_Bcast(copy.data(), count_of(copy), moved_type(copy.dtype()), call.root, comm_),
                "MPI_Bcast");
        return;
      }
      case Collective::reduce: {
        const Tensor& input = call.inputs[0][tensor];
        if (input.numel() == 0) return;
        void* const output = is_root(call) ? call.outputs.back()[tensor].data() : nullptr;
        require(MPI_Reduce(unless_in_place(input.data(), output), output, count_of(input),
                           summed_type(input.dtype()), operation_of(input.dtype(), call.reduce_kind),
                           call.root, comm_),
                "MPI_Reduce");
        return;
      }
      case Collective::all_reduce: {
        const Tensor& input = call.inputs[0][tensor];
        if (input.numel() == 0) return;
        void* const output = call.outputs[0][tensor].data();
        require(
            MPI_Allreduce(unless_in_place(input.data(), output), output, count_of(input),
                          summed_type(input.dtype()), operation_of(input.dtype(), call.reduce_kind), comm_),
            "MPI_Allreduce");
        return;
      }
      case Collective::all_gather:
        return all_gather(call, call.inputs[0][tensor], call.outputs[0][tensor]);
      case Collective::reduce_scatter:
        return reduce_scatter(call, call.inputs[0][tensor], call.outputs[0][tensor]);
      case Collective::all_to_all:
        return all_to_all(call, call.inputs[0][tensor], call.outputs[0][tensor]);
      case Collective::scatter:
        return scatter(call);
      case Collective::gather:
        return gather(call);
      default:
        break;
    }
    throw Error(ErrorCode::internal, "--peer mpi: not a collective");
  }

  /// To the next rank, from the one before.
  void pass_on(const Tensor& input, const Tensor& out) const {
    const MPI_Datatype type = moved_type(input.dtype());
    require(MPI_Sendrecv(input.data(), count_of(input), type, (rank_ + 1) % size_, 0, out.data(),
                         count_of(out), type, (rank_ + size_ - 1) % size_, 0, comm_, MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
  }

  void reduce_scatter(const Call& call, const Tensor& whole, const Tensor& part) const {
    if (whole.numel() == 0) return;
    const bool is_in_place = part.data() == place_of_own(call, whole, part);
    const void* const source = is_in_place ? MPI_IN_PLACE : whole.data();
    void* const target = is_in_place ? whole.data() : part.data();
    const MPI_Datatype type = summed_type(part.dtype());
    const MPI_Op operation = operation_of(part.dtype(), call.reduce_kind);
    if (call.sizes.empty()) {
      require(MPI_Reduce_scatter_block(source, target, count_of(part), type, operation, comm_),
              "MPI_Reduce_scatter_block");
    } else {
      require(MPI_Reduce_scatter(source, target, RankParts(call.sizes).counts.data(), type, operation, comm_),
              "MPI_Reduce_scatter");
    }
    // In place, MPI leaves the part at the beginning of the whole.
    if (is_in_place) std::memmove(part.data(), whole.data(), part.nbytes());
  }

  void all_gather(const Call& call, const Tensor& part, const Tensor& whole) const {
    if (whole.numel() == 0) return;
    const void* const source = unless_in_place(part.data(), place_of_own(call, whole, part));
    const MPI_Datatype type = moved_type(part.dtype());
    if (call.sizes.empty()) {
      require(MPI_Allgather(source, count_of(part), type, whole.data(), count_of(part), type, comm_),
              "MPI_Allgather");
    } else {
      const RankParts parts(call.sizes);
      require(MPI_Allgatherv(source, count_of(part), type, whole.data(), parts.counts.data(),
                             parts.starts.data(), type, comm_),
              "MPI_Allgatherv");
    }
  }

  void all_to_all(const Call& call, const Tensor& input, const Tensor& out) const {
    if (input.numel() == 0) return;
    const MPI_Datatype type = moved_type(input.dtype());
    if (call.input_sizes.empty()) {
      const int count = count_of(input) / size_;
      require(MPI_Alltoall(unless_in_place(input.data(), out.data()), count, type, out.data(), count, type,
                           comm_),
              "MPI_Alltoall");
    } else {
      const RankParts sent(call.input_sizes[0]);
      const RankParts received(call.out_sizes[0]);
      require(MPI_Alltoallv(input.data(), sent.counts.data(), sent.starts.data(), type, out.data(),
                            received.counts.data(), received.starts.data(), type, comm_),
              "MPI_Alltoallv");
    }
  }

  /// Where this rank's part belongs in a whole.
  [[nodiscard]] const std::byte* place_of_own(const Call& call, const Tensor& whole,
                                              const Tensor& part) const {
    const auto rank = static_cast<std::size_t>(rank_);
    const std::size_t start =
        call.sizes.empty()
            ? rank * part.nbytes()
            : static_cast<std::size_t>(RankParts(call.sizes).starts[rank]) * size_of(part.dtype());
    return static_cast<const std::byte*>(whole.data()) + start;
  }

  // Between the root's whole tensor and every rank's chunk of it.
  void scatter(const Call& call) const {
    const Tensor& part = call.outputs[0][0];
    const MPI_Datatype type = moved_type(part.dtype());
    const void* const whole = is_root(call) ? call.inputs[0][0].data() : nullptr;
    const RankParts parts(call, part.dtype());
    if (parts.are_equal()) {
      require(MPI_Scatter(whole, count_of(part), type, part.data(), count_of(part), type, call.root, comm_),
              "MPI_Scatter");
    } else {
      require(MPI_Scatterv(whole, parts.counts.data(), parts.starts.data(), type, part.data(), count_of(part),
                           type, call.root, comm_),
              "MPI_Scatterv");
    }
  }
  void gather(const Call& call) const {
    const Tensor& part = call.inputs[0][0];
    const MPI_Datatype type = moved_type(part.dtype());
    void* const whole = is_root(call) ? call.outputs[0][0].data() : nullptr;
    const RankParts parts(call, part.dtype());
    if (parts.are_equal()) {
      require(MPI_Gather(part.data(), count_of(part), type, whole, count_of(part), type, call.root, comm_),
              "MPI_Gather");
    } else {
      require(MPI_Gatherv(part.data(), count_of(part), type, whole, parts.counts.data(), parts.starts.data(),
                          type, call.root, comm_),
              "MPI_Gatherv");
    }
  }

  HostMemory memory_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
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
