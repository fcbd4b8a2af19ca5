#include "peer.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "usage_error.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

namespace tutti::perf {
namespace {

/// The functions of libnccl, found at run time: the program starts where NCCL is not installed.
struct NcclLibrary {
  decltype(&::ncclGetVersion) get_version = nullptr;
  decltype(&::ncclGetErrorString) error_string = nullptr;
  decltype(&::ncclCommInitAll) init_all = nullptr;
  decltype(&::ncclCommDestroy) destroy = nullptr;
  decltype(&::ncclGroupStart) group_start = nullptr;
  decltype(&::ncclGroupEnd) group_end = nullptr;
  decltype(&::ncclBroadcast) broadcast = nullptr;
  decltype(&::ncclReduce) reduce = nullptr;
  decltype(&::ncclSend) send = nullptr;
  decltype(&::ncclRecv) receive = nullptr;

  NcclLibrary() {
    // Never closed: NCCL's threads may outlive this object.
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw UsageError(fmt::format("--peer nccl: {}", dlerror()));
    load(library, "ncclGetVersion", get_version);
    load(library, "ncclGetErrorString", error_string);
    load(library, "ncclCommInitAll", init_all);
    load(library, "ncclCommDestroy", destroy);
    load(library, "ncclGroupStart", group_start);
    load(library, "ncclGroupEnd", group_end);
    load(library, "ncclBroadcast", broadcast);
    load(library, "ncclReduce", reduce);
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
    for_each_device([this](std::size_t device) {
      require(cudaStreamBeginCapture(stream(device), cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
    });
    enqueue();
    for_each_device([this](std::size_t device) {
      cudaGraph_t graph = nullptr;
      require(cudaStreamEndCapture(stream(device), &graph), "cudaStreamEndCapture");
      const cudaError_t result = cudaGraphInstantiate(&graphs_[device], graph, 0);
      cudaGraphDestroy(graph);
      require(result, "cudaGraphInstantiate");
    });
  }

  void launch() const {
    for_each_device([this](std::size_t device) {
      require(cudaGraphLaunch(graphs_[device], stream(device)), "cudaGraphLaunch");
    });
  }

 private:
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
  explicit NcclPeer(const std::vector<Stream>& streams)
      : streams_(streams), communicators_(streams.size(), nullptr) {
    std::vector<int> devices;
    for (const Stream& stream : streams) devices.push_back(stream.device());
    check(nccl_.init_all(communicators_.data(), static_cast<int>(devices.size()), devices.data()),
          "ncclCommInitAll");
  }
  ~NcclPeer() override {
    for (ncclComm_t communicator : communicators_) nccl_.destroy(communicator);
  }

  [[nodiscard]] std::string describe() const override {
    int version = 0;
    check(nccl_.get_version(&version), "ncclGetVersion");
    return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  [[nodiscard]] std::string refusal(const Operation& operation, const Call& call) const override {
    if (call.dim != 0) return "NCCL sends contiguous memory only";
    for (const Buffer& output : call.output_buffers) {
      if (operation.sums() && !summed_type(output.tensor.dtype())) {
        return fmt::format("NCCL has no sum of {}", name_of(output.tensor.dtype()));
      }
    }
    return "";
  }

  void enqueue(const Operation& operation, const Call& call) override {
    check(nccl_.group_start(), "ncclGroupStart");
    if (operation.is_coalesced()) {
      for (std::size_t tensor = 0; tensor < call.inputs.front().size(); ++tensor) {
        enqueue_one(operation.kind(), call, [&](const auto& lists, std::size_t device) -> const Tensor& {
          return lists[lists.size() == 1 ? 0 : device][tensor];
        });
      }
    } else {
      enqueue_one(operation.kind(), call, [](const auto& lists, std::size_t device) -> const Tensor& {
        return lists[0][lists[0].size() == 1 ? 0 : device];
      });
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

  /// One tensor's part of a group; `tensor_of(lists, device)` is the argument that belongs to a device.
  template <class TensorOf>
  void enqueue_one(OperationKind kind, const Call& call, TensorOf&& tensor_of) const {
    const std::size_t count = streams_.size();
    const auto root = static_cast<std::size_t>(call.root);
    switch (kind) {
      case OperationKind::broadcast:
        for (std::size_t device = 0; device < count; ++device) {
          const Tensor& source = tensor_of(call.inputs, root);
          check(nccl_.broadcast(source.data(), tensor_of(call.outputs, device).data(), source.nbytes(),
                                ncclUint8, call.root, communicators_[device], stream(device)),
                "ncclBroadcast");
        }
        return;
      case OperationKind::reduce:
        for (std::size_t device = 0; device < count; ++device) {
          const Tensor& input = tensor_of(call.inputs, device);
          const SummedType summed = summed_type(input.dtype()).value();
          check(nccl_.reduce(input.data(), tensor_of(call.outputs, root).data(),
                             static_cast<std::size_t>(input.numel()) * summed.per_element, summed.type,
                             ncclSum, call.root, communicators_[device], stream(device)),
                "ncclReduce");
        }
        return;
      case OperationKind::scatter:
        scatter(call);
        return;
      case OperationKind::gather:
        gather(call);
        return;
      case OperationKind::copy:
        send(bytes_of(call.inputs[0][0]), call.bytes, root, call.partner);
        receive(bytes_of(call.outputs[0][0]), call.bytes, static_cast<std::size_t>(call.partner), call.root);
        return;
    }
  }

  /// Between the root's whole tensor and every device's chunk of it; a chunk that is in its place stays
  /// there.
  void scatter(const Call& call) const {
    std::byte* part = bytes_of(call.inputs[0][0]);
    for (std::size_t device = 0; device < streams_.size(); ++device) {
      const Tensor& chunk = call.outputs[0][device];
      send(part, chunk.nbytes(), static_cast<std::size_t>(call.root), static_cast<int>(device));
      receive(bytes_of(chunk), chunk.nbytes(), device, call.root);
      part += chunk.nbytes();
    }
  }
  void gather(const Call& call) const {
    std::byte* part = bytes_of(call.outputs[0][0]);
    for (std::size_t device = 0; device < streams_.size(); ++device) {
      const Tensor& chunk = call.inputs[0][device];
      send(bytes_of(chunk), chunk.nbytes(), device, call.root);
      receive(part, chunk.nbytes(), static_cast<std::size_t>(call.root), static_cast<int>(device));
      part += chunk.nbytes();
    }
  }

  NcclLibrary nccl_;
  std::vector<Stream> streams_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace

std::unique_ptr<Peer> make_nccl_peer(const std::vector<Stream>& streams) {
  if (backend_kind() != BackendKind::cuda)
    throw UsageError("--peer nccl: NCCL needs GPUs; these devices are virtual");
  return std::make_unique<NcclPeer>(streams);
}

}  // namespace tutti::perf
