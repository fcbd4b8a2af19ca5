// SPDX-License-Identifier: Apache-2.0
#include "peer.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "usage_error.hpp"

#include <cstddef>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

namespace tutti::perf {
namespace {

/// The functions of libnccl, found at run time: the program starts where NCCL is not installed.
struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetErrorString) error_string = nullptr;
  decltype(&::ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&::ncclCommInitRank) init_rank = nullptr;
  decltype(&::ncclCommDestroy) destroy = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclAllReduce) all_reduce = nullptr;
  decltype(&::ncclAllGather) all_gather = nullptr;
  decltype(&::ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;

  NcclLibrary() {
    // The one that tutti itself would load.
    const char* const chosen = std::getenv("TUTTI_NCCL_LIBRARY");
    const char* const name = chosen != nullptr && *chosen != '\0' ? chosen : "libnccl.so.2";
    // Never closed: NCCL's threads may outlive this object.
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw UsageError(fmt::format("--peer nccl: {}", dlerror()));
    load(library, "ncclGetVersion", get_version);
    load(library, "ncclGetErrorString", error_string);
    load(library, "ncclGetUniqueId", get_unique_id);
    load(library, "ncclCommInitRank", init_rank);
    load(library, "ncclCommDestroy", destroy);
    load(library, "ncclGroupStart", group_start);
    load(library, "ncclGroupEnd", group_end);
    load(library, "ncclBroadcast", broadcast);
    load(library, "ncclReduce", reduce);
    load(library, "ncclAllReduce", all_reduce);
    load(library, "ncclAllGather", all_gather);
    load(library, "ncclReduceScatter", reduce_scatter);
    load(library, "ncclSend", send);
    load(library, "ncclRecv", receive);
  }

 private:
  template <class Function>
  static void load(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) throw UsageError(fmt::format("--peer nccl: libnccl.so.2 has no {}", name));
  }
};

void require(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::device_failure, fmt::format("--peer nccl: {}: {}", what, cudaGetErrorString(result)),
              static_cast<int>(result));
}

/// What NCCL sums: the type, and how many of them make an element.
struct SummedType {
  ncclDataType_t type;
  std::size_t per_element;
};

std::optional<SummedType> summed_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return SummedType{ncclFloat16, 1};
    case DType::bfloat16:
      return SummedType{ncclBfloat16, 1};
    case DType::float32:
      return SummedType{ncclFloat32, 1};
    case DType::float64:
      return SummedType{ncclFloat64, 1};
    case DType::int8:
      return SummedType{ncclInt8, 1};
    case DType::uint8:
      return SummedType{ncclUint8, 1};
    case DType::int32:
      return SummedType{ncclInt32, 1};
    case DType::int64:
      return SummedType{ncclInt64, 1};
    case DType::complex64:
      return SummedType{ncclFloat32, 2};
    case DType::complex128:
      return SummedType{ncclFloat64, 2};
    default:
      return std::nullopt;
  }
}

/// Nothing where NCCL has none, or one that is made for each communicator.
std::optional<ncclRedOp_t> operation_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return ncclSum;
    case ReduceKind::avg:
      return ncclAvg;
    case ReduceKind::min:
      return ncclMin;
    case ReduceKind::max:
      return ncclMax;
    case ReduceKind::prod:
      return ncclProd;
    default:
      return std::nullopt;
  }
}

/// A tensor as NCCL sums it.
struct Summand {
  explicit Summand(const Tensor& tensor) : data(tensor.data()) {
    const SummedType summed = summed_type(tensor.dtype()).value();
    type = summed.type;
    count = static_cast<std::size_t>(tensor.numel()) * summed.per_element;
  }

  const void* data;
  ncclDataType_t type;
  std::size_t count;
};

std::byte* bytes_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data());
}

/// An instantiated graph per device, launched together.
class RecordedGraphs {
 public:
  explicit RecordedGraphs(const std::vector<Stream>& streams)
      : streams_(streams), graphs_(streams.size(), nullptr) {}
  RecordedGraphs(const RecordedGraphs&) = delete;
  RecordedGraphs& operator=(const RecordedGraphs&) = delete;
  ~RecordedGraphs() {
    for (cudaGraphExec_t graph : graphs_) {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    }
  }

  void record(const std::function<void()>& enqueue) {
    const std::vector<CapturedGraph> captured = capture(enqueue);
    // Not before all captures have ended: while a stream captures, nothing is instantiated.
    for_each_device([&](std::size_t device) {
      require(cudaGraphInstantiate(&graphs_[device], captured[device].get(), 0), "cudaGraphInstantiate");
    });
  }

  void launch() const {
    for_each_device([this](std::size_t device) {
      require(cudaGraphLaunch(graphs_[device], stream(device)), "cudaGraphLaunch");
    });
  }

 private:
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
  };
  using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

  /// One per device. Whatever fails, no stream goes on capturing.
  [[nodiscard]] std::vector<CapturedGraph> capture(const std::function<void()>& enqueue) const {
    for_each_device([this](std::size_t device) {
      require(cudaStreamBeginCapture(stream(device), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
    });
    std::exception_ptr failure;
    try {
      enqueue();
    } catch (...) {
      failure = std::current_exception();
    }
    std::vector<CapturedGraph> graphs;
    cudaError_t result = cudaSuccess;
    for_each_device([&](std::size_t device) {
      cudaGraph_t graph = nullptr;
      const cudaError_t ended = cudaStreamEndCapture(stream(device), &graph);
      if (result == cudaSuccess) result = ended;
      graphs.emplace_back(graph);
    });
    if (failure) std::rethrow_exception(failure);
    require(result, "cudaStreamEndCapture");
    return graphs;
  }

  [[nodiscard]] cudaStream_t stream(std::size_t device) const { return to_cuda(streams_[device]); }
  template <class Work>
  void for_each_device(Work&& work) const {
    for (std::size_t device = 0; device < streams_.size(); ++device) {
      const DeviceGuard guard(streams_[device].device());
      work(device);
    }
  }

  std::vector<Stream> streams_;
  std::vector<cudaGraphExec_t> graphs_;
};

class NcclPeer final : public Peer {
 public:
  explicit NcclPeer(const Session& session)
      : members_(session.members()), streams_(session.streams()), communicators_(streams_.size(), nullptr) {
    ncclUniqueId id{};
    if (session.processes().rank() == 0) check(nccl_.get_unique_id(&id), "ncclGetUniqueId");
    session.processes().broadcast(std::as_writable_bytes(std::span(&id, 1)));
    check(nccl_.group_start(), "ncclGroupStart");
    for (std::size_t own = 0; own < streams_.size(); ++own) {
      const DeviceGuard guard(streams_[own].device());
      check(nccl_.init_rank(&communicators_[own], members_.count, id, members_.number_of(own)),
            "ncclCommInitRank");
    }
    check(nccl_.group_end(), "ncclGroupEnd");
  }
  ~NcclPeer() override {
    for (ncclComm_t communicator : communicators_) nccl_.destroy(communicator);
  }

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] std::string describe() const override {
    int version = 0;
    check(nccl_.get_version(&version), "ncclGetVersion");
    return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    if (call.dim != 0) return "NCCL sends contiguous memory only";
    const bool is_exchange = !operation.is_copy() && operation.traits().travels_as == Collective::all_to_all;
    if (is_exchange && call.count != 0 && call.inputs[0][0].data() == call.outputs[0][0].data())
      return "NCCL exchanges nothing in place";
    if (!operation.sums()) return "";
    if (!operation_of(call.reduce_kind))
      return fmt::format("NCCL has no {} of its own", name_of(call.reduce_kind));
    const bool is_plain_sum = call.reduce_kind == ReduceKind::sum || call.reduce_kind == ReduceKind::avg;
    for (const Buffer& input : call.input_buffers) {  // every rank has one
      const DType dtype = input.tensor.dtype();
      const std::optional<SummedType> type = summed_type(dtype);
      if (!type || (type->per_element != 1 && !is_plain_sum))
        return fmt::format("NCCL has no {} of {}", name_of(call.reduce_kind), name_of(dtype));
    }
    return "";
  }

  void enqueue(const Operation& operation, const Call& call) override {
    check(nccl_.group_start(), "ncclGroupStart");
    for (std::size_t tensor = 0; tensor < call.tensors; ++tensor) {
      for (std::size_t own = 0; own < streams_.size(); ++own) {
        const Part part{call, operation.is_coalesced(), own, tensor};
        if (operation.is_copy()) {
          enqueue_copy(part);
        } else {
          enqueue_one(operation.traits().travels_as, part);
        }
      }
    }
    check(nccl_.group_end(), "ncclGroupEnd");
  }

  [[nodiscard]] std::function<void()> record(const Operation& operation,
                                             const std::vector<const Call*>& calls) override {
    const auto graphs = std::make_shared<RecordedGraphs>(streams_);
    graphs->record([&] {
      for (const Call* call : calls) enqueue(operation, *call);
    });
    return [graphs] { graphs->launch(); };
  }

 private:
  void check(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess) return;
    throw Error(ErrorCode::transport_failure,
                fmt::format("--peer nccl: {}: {}", what, nccl_.error_string(result)),
                static_cast<int>(result));
  }
  [[nodiscard]] cudaStream_t stream(std::size_t device) const { return to_cuda(streams_[device]); }
  void send(const std::byte* data, std::size_t bytes, std::size_t from, int to) const {
    if (bytes == 0) return;
    check(nccl_.send(data, bytes, ncclUint8, to, communicators_[from], stream(from)), "ncclSend");
  }
  void receive(std::byte* data, std::size_t bytes, std::size_t at, int from) const {
    if (bytes == 0) return;
    check(nccl_.receive(data, bytes, ncclUint8, from, communicators_[at], stream(at)), "ncclRecv");
  }

  /// One own member's part in one tensor of a call.
  struct Part {
    const Call& call;
    bool coalesced;
    std::size_t own;
    std::size_t tensor;

    /// The member's tensor, where every member has one.
    [[nodiscard]] const Tensor& each(const Lists& lists) const {
      return coalesced ? lists[own][tensor] : lists[0][own];
    }
    /// The root's, where it alone has one.
    [[nodiscard]] const Tensor& root(const Lists& lists) const {
      return lists.back()[coalesced ? tensor : 0];
    }
  };

  void enqueue_one(Collective collective, const Part& part) const {
    const Call& call = part.call;
    const bool is_root = members_.number_of(part.own) == call.root;
    ncclComm_t const communicator = communicators_[part.own];
    cudaStream_t const stream = this->stream(part.own);
    switch (collective) {
      case Collective::broadcast: {
        const Tensor& copy = part.each(call.outputs);
        const void* const source = is_root ? part.root(call.inputs).data() : copy.data();
        check(nccl_.broadcast(source, copy.data(), copy.nbytes(), ncclUint8, call.root, communicator, stream),
              "ncclBroadcast");
        return;
      }
      case Collective::reduce_add: {
        const Summand summand(part.each(call.inputs));
        const ncclRedOp_t operation = operation_of(call.reduce_kind).value();
        void* const sum = is_root ? part.root(call.outputs).data() : nullptr;
        check(nccl_.reduce(summand.data, sum, summand.count, summand.type, operation, call.root, communicator,
                           stream),
              "ncclReduce");
        return;
      }
      case Collective::all_reduce_add: {
        const Summand summand(part.each(call.inputs));
        const ncclRedOp_t operation = operation_of(call.reduce_kind).value();
        check(nccl_.all_reduce(summand.data, part.each(call.outputs).data(), summand.count, summand.type,
                               operation, communicator, stream),
              "ncclAllReduce");
        return;
      }
      case Collective::all_to_all:
        return exchange(part);
      case Collective::all_gather: {
        if (!call.sizes.empty()) return gather_unequal(part);
        const Tensor& input = part.each(call.inputs);
        check(nccl_.all_gather(input.data(), part.each(call.outputs).data(), input.nbytes(), ncclUint8,
                               communicator, stream),
              "ncclAllGather");
        return;
      }
      case Collective::reduce_scatter_add: {
        if (!call.sizes.empty()) return reduce_unequal(part);
        const Summand summand(part.each(call.inputs));
        const ncclRedOp_t operation = operation_of(call.reduce_kind).value();
        check(nccl_.reduce_scatter(summand.data, part.each(call.outputs).data(),
                                   summand.count / static_cast<std::size_t>(members_.count), summand.type,
                                   operation, communicator, stream),
              "ncclReduceScatter");
        return;
      }
      case Collective::scatter:
        return scatter(part, is_root);
      case Collective::gather:
        return gather(part, is_root);
      default:
        throw Error(ErrorCode::internal, "--peer nccl: not a collective");
    }
  }

  void enqueue_copy(const Part& part) const {
    const Call& call = part.call;
    const int member = members_.number_of(part.own);
    if (member == call.root) send(bytes_of(call.inputs[0][0]), call.bytes, part.own, call.partner);
    if (member == call.partner) receive(bytes_of(call.outputs[0][0]), call.bytes, part.own, call.root);
  }

  /// A part of the input to every member, and one of the output from it.
  void exchange(const Part& part) const {
    const Call& call = part.call;
    const Tensor& input = part.each(call.inputs);
    const Tensor& out = part.each(call.outputs);
    std::size_t sent = 0;
    std::size_t received = 0;
    for (std::size_t member = 0; member < static_cast<std::size_t>(members_.count); ++member) {
      const auto bytes_of_part = [&](const std::vector<std::vector<std::int64_t>>& sizes) {
        if (sizes.empty()) return input.nbytes() / static_cast<std::size_t>(members_.count);
        return static_cast<std::size_t>(sizes[part.own][member]) * size_of(input.dtype());
      };
      const std::size_t to = bytes_of_part(call.input_sizes);
      const std::size_t from = bytes_of_part(call.out_sizes);
      send(bytes_of(input) + sent, to, part.own, static_cast<int>(member));
      receive(bytes_of(out) + received, from, part.own, static_cast<int>(member));
      sent += to;
      received += from;
    }
  }

  /// NCCL has no call for parts of unequal lengths: one for each part.
  void gather_unequal(const Part& part) const {
    const Tensor& input = part.each(part.call.inputs);
    std::byte* place = bytes_of(part.each(part.call.outputs));
    for (int member = 0; member < members_.count; ++member) {
      const std::size_t bytes = static_cast<std::size_t>(part.call.sizes[static_cast<std::size_t>(member)]) *
                                size_of(input.dtype());
      const bool is_own = members_.number_of(part.own) == member;
      if (bytes != 0) {
        check(nccl_.broadcast(is_own ? bytes_of(input) : place, place, bytes, ncclUint8, member,
                              communicators_[part.own], stream(part.own)),
              "ncclBroadcast");
      }
      place += bytes;
    }
  }
  void reduce_unequal(const Part& part) const {
    const Tensor& input = part.each(part.call.inputs);
    const Tensor& out = part.each(part.call.outputs);
    const SummedType summed = summed_type(input.dtype()).value();
    const std::byte* place = bytes_of(input);
    for (int member = 0; member < members_.count; ++member) {
      const auto elements = static_cast<std::size_t>(part.call.sizes[static_cast<std::size_t>(member)]);
      const bool is_own = members_.number_of(part.own) == member;
      if (elements != 0) {
        check(nccl_.reduce(place, is_own ? out.data() : nullptr, elements * summed.per_element, summed.type,
                           operation_of(part.call.reduce_kind).value(), member, communicators_[part.own],
                           stream(part.own)),
              "ncclReduce");
      }
      place += elements * size_of(input.dtype());
    }
  }

  /// Between the root's whole tensor and every member's chunk of it.
  void scatter(const Part& part, bool is_root) const {
    const Call& call = part.call;
    const std::byte* chunk = is_root ? bytes_of(call.inputs[0][0]) : nullptr;
    for (std::size_t member = 0; is_root && member < call.part_bytes.size(); ++member) {
      send(chunk, call.part_bytes[member], part.own, static_cast<int>(member));
      chunk += call.part_bytes[member];
    }
    const Tensor& own = part.each(call.outputs);
    receive(bytes_of(own), own.nbytes(), part.own, call.root);
  }
  void gather(const Part& part, bool is_root) const {
    const Call& call = part.call;
    const Tensor& own = part.each(call.inputs);
    send(bytes_of(own), own.nbytes(), part.own, call.root);
    std::byte* chunk = is_root ? bytes_of(call.outputs[0][0]) : nullptr;
    for (std::size_t member = 0; is_root && member < call.part_bytes.size(); ++member) {
      receive(chunk, call.part_bytes[member], part.own, static_cast<int>(member));
      chunk += call.part_bytes[member];
    }
  }

  NcclLibrary nccl_;
  Members members_;
  std::vector<Stream> streams_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace

std::unique_ptr<Peer> make_nccl_peer(const Session& session) {
  if (session.topology().backend != BackendKind::cuda)
    throw UsageError("--peer nccl: NCCL needs GPUs; these devices are virtual");
  return std::make_unique<NcclPeer>(session);
}

}  // namespace tutti::perf
