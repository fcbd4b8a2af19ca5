// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/cuda_error.hpp"
#include "backend/cuda/current_device.hpp"
#include "backend/cuda/driver_function.hpp"
#include "backend/cuda/handles.hpp"
#include "backend/cuda/nvrtc.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

/// Kernels that NVRTC compiles. The driver keeps them for all devices of one kind as a library, which is
/// never unloaded: graphs use them.
namespace tutti::backend::cuda {
namespace {

struct DriverLibraryTag;
struct DriverKernelTag;
using LibraryHandle = DriverLibraryTag*;
using KernelHandle = DriverKernelTag*;
constexpr unsigned code_block = 256;          ///< threads, as the texts say
constexpr std::size_t code_blocks_each = 16;  ///< blocks for each multiprocessor at most

/// The driver's errors have the numbers of the runtime's.
[[noreturn]] void refuse_code(const char* call, int status, int device) {
  throw_error(static_cast<cudaError_t>(status), call, device);
}

/// A function of the driver's. Throws Error(unsupported) if it has none of that name.
template <class Function>
Function driver_code_function(const char* name) {
  if (void* const function = driver_function(name)) return reinterpret_cast<Function>(function);
  throw Error(
      ErrorCode::unsupported,
      fmt::format("source text cannot be run: the driver has no {}, expected CUDA 12.0 or newer", name));
}

class CudaCode final : public CompiledCode {
 public:
  explicit CudaCode(KernelHandle code_kernel) : kernel(code_kernel) {}

  const KernelHandle kernel;
};

/// The kernel on the current device, which is `device`. Loads it there, if it is not: a launch would do so as
/// well, but not during a capture.
void* function_of(KernelHandle kernel, int device) {
  using GetFunction = int (*)(void**, KernelHandle);
  static const auto get_function = driver_code_function<GetFunction>("cuKernelGetFunction");
  const RelaxedCapture relaxed;
  void* function = nullptr;
  if (const int status = get_function(&function, kernel); status != 0)
    refuse_code("cuKernelGetFunction", status, device);
  return function;
}

}  // namespace

std::string CudaBackend::code_target(int device) {
  return fmt::format("sm_{}{}", properties(device).major, properties(device).minor);
}

std::shared_ptr<const CompiledCode> CudaBackend::compile(int device, const CodeText& code) {
  const std::vector<char> image =
      compile_with_nvrtc(code.text, properties(device).major, properties(device).minor);
  prepare(device);
  const CurrentDevice current(device);
  const RelaxedCapture relaxed;
  using LoadData = int (*)(LibraryHandle*, const void*, void*, void*, unsigned, void*, void*, unsigned);
  using GetKernel = int (*)(KernelHandle*, LibraryHandle, const char*);
  LibraryHandle library = nullptr;
  KernelHandle kernel = nullptr;
  const auto load = driver_code_function<LoadData>("cuLibraryLoadData");
  if (const int status = load(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0); status != 0)
    refuse_code("cuLibraryLoadData", status, device);
  const auto get_kernel = driver_code_function<GetKernel>("cuLibraryGetKernel");
  if (const int status = get_kernel(&kernel, library, code.entry.c_str()); status != 0)
    refuse_code("cuLibraryGetKernel", status, device);
  return std::make_shared<const CudaCode>(kernel);
}

void CudaBackend::load(int device, const CompiledCode& code) {
  prepare(device);
  const CurrentDevice current(device);
  void* const function = function_of(static_cast<const CudaCode&>(code).kernel, device);
  // Drivers that know it may put loading off until then.
  using LoadFunction = int (*)(void*);
  static const auto load_function = reinterpret_cast<LoadFunction>(driver_function("cuFuncLoad"));
  if (load_function == nullptr) return;
  const RelaxedCapture relaxed;
  if (const int status = load_function(function); status != 0) refuse_code("cuFuncLoad", status, device);
}

void CudaBackend::run_code(StreamRef stream, const std::shared_ptr<const CompiledCode>& code,
                           const CodeRun& run) {
  if (run.count == 0) return;
  const CurrentDevice current(stream.device);
  const LaunchSite where = site(stream, "a compiled kernel");
  const KernelHandle kernel = static_cast<const CudaCode&>(*code).kernel;
  void* const function = function_of(kernel, stream.device);
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         cudaStream_t, void**, void**);
  static const auto launch = driver_code_function<Launch>("cuLaunchKernel");
  const std::size_t needed = (run.count + code_block - 1) / code_block;
  const auto blocks = static_cast<unsigned>(
      std::min(needed, static_cast<std::size_t>(where.multiprocessors) * code_blocks_each));
  std::vector<std::uint64_t> words(run.parameters.begin(), run.parameters.end());
  void* arguments[] = {words.data()};
  if (const int status =
          launch(function, blocks, 1, 1, code_block, 1, 1, 0, where.stream, arguments, nullptr);
      status != 0)
    refuse_code("cuLaunchKernel", status, stream.device);
  end_launch(stream);
}

}  // namespace tutti::backend::cuda
