#include "backend/cuda/stream_signals.hpp"

#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/handles.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <cuda.h>

namespace tutti::backend::cuda {
namespace {

#if CUDART_VERSION >= 12000
/// The driver's functions; nullptr where it has none.
struct Driver {
  using BatchMemOp = CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  using WriteValue = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);

  BatchMemOp* batch = driver_function<BatchMemOp*>("cuStreamBatchMemOp");
  WriteValue* write = driver_function<WriteValue*>("cuStreamWriteValue32");

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }
};

/// The driver's codes are the runtime's.
cudaError_t runtime_error(CUresult result) {
  return static_cast<cudaError_t>(result);
}
#endif

}  // namespace

StreamSignals::StreamSignals(int device_count) {
  for (int device = 0; device < device_count; ++device) devices_.push_back(std::make_unique<PerDevice>());
}

StreamSignals::~StreamSignals() {
  for (const auto& device : devices_) forget(cudaFreeHost(device->words));
}

StreamSignals::Source* StreamSignals::source_of(PerDevice& device, std::uint64_t id) {
  if (const auto known = device.sources.find(id); known != device.sources.end()) return &known->second;
  if (device.sources.size() == most_streams) return nullptr;
  if (device.words == nullptr) {
    const RelaxedCapture relaxed;
    constexpr std::size_t bytes = most_streams * sizeof(Word);
    void* words = nullptr;
    const cudaError_t status = cudaHostAlloc(&words, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (forget(status) != cudaSuccess) return nullptr;
    std::memset(words, 0, bytes);
    device.words = static_cast<Word*>(words);
  }
  Word* const word = device.words + device.sources.size();
  return &device.sources.emplace(id, Source{.word = word, .sent = 0}).first->second;
}

#if CUDART_VERSION >= 12000

Signal StreamSignals::send(StreamRef stream, std::uint64_t id) {
  const Driver& driver = Driver::get();
  if (driver.batch == nullptr || driver.write == nullptr) return {};
  PerDevice& device = *devices_[static_cast<std::size_t>(stream.device)];
  const std::lock_guard lock(device.mutex);
  Source* const source = source_of(device, id);
  if (source == nullptr) return {};
  const auto address = reinterpret_cast<CUdeviceptr>(&source->word->sent);
  const CUresult result =
      driver.write(native(stream), address, source->sent + 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result == CUDA_ERROR_NOT_SUPPORTED) return {};
  check(runtime_error(result), "cuStreamWriteValue32", stream.device);
  ++source->sent;
  return {&source->word->sent, source->sent};
}

void StreamSignals::wait(StreamRef stream, std::span<const Signal> signals) {
  constexpr std::size_t most_at_once = 16;
  while (!signals.empty()) {
    std::array<CUstreamBatchMemOpParams, most_at_once> waits{};
    const std::size_t count = std::min(signals.size(), most_at_once);
    for (std::size_t i = 0; i < count; ++i) {
      waits[i].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      waits[i].waitValue.address = reinterpret_cast<CUdeviceptr>(signals[i].word);
      waits[i].waitValue.value = signals[i].value;
      waits[i].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;  // as differences go, so that it may wrap around
    }
    const CUresult result =
        Driver::get().batch(native(stream), static_cast<unsigned>(count), waits.data(), 0);
    check(runtime_error(result), "cuStreamBatchMemOp", stream.device);
    signals = signals.subspan(count);
  }
}

#else

Signal StreamSignals::send(StreamRef /*stream*/, std::uint64_t /*id*/) {
  return {};
}

void StreamSignals::wait(StreamRef /*stream*/, std::span<const Signal> /*signals*/) {}

#endif

}  // namespace tutti::backend::cuda
