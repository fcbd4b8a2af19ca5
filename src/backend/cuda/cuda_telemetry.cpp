// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_backend.hpp"
#include "backend/cuda/nvml.hpp"
#include "tutti/error.hpp"

#include <limits>
#include <string>
#include <string_view>

#include <fmt/format.h>

/// The values that NVML reads of GPUs.
namespace tutti::backend::cuda {
namespace {

struct NvmlUtilization {
  unsigned gpu;
  unsigned memory;
};
struct NvmlProcess {
  unsigned id;
  unsigned long long memory_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
constexpr unsigned long long unknown_memory = std::numeric_limits<unsigned long long>::max();
constexpr int sensor_of_chip = 0;
constexpr int clock_of_multiprocessors = 1;
constexpr int clock_of_memory = 2;

/// Bits of what NVML calls reasons of clock events, and throttle reasons before.
constexpr unsigned long long power_cap = 0x4;
constexpr unsigned long long hardware_slowdown = 0x8;
constexpr unsigned long long thermal_slowdown = 0x20;
constexpr unsigned long long hardware_thermal_slowdown = 0x40;
constexpr unsigned long long power_brake = 0x80;

/// Lives as long as the process: a session takes milliseconds to begin.
class NvmlReader {
 public:
  static const NvmlReader& get() {
    static const auto* const reader = new NvmlReader;
    return *reader;
  }

  [[nodiscard]] int read(const std::string& bus_id, int device, Gauge gauge) const {
    const Question question{name_of(gauge), device};
    const NvmlDevice handle = find(bus_id, question);
    NvmlUtilization shares{};
    unsigned value = 0;
    switch (gauge) {
      case Gauge::utilization:
        ask(question, utilization_, handle, &shares);
        return static_cast<int>(shares.gpu);
      case Gauge::memory_usage:
        ask(question, utilization_, handle, &shares);
        return static_cast<int>(shares.memory);
      case Gauge::temperature:
        ask(question, temperature_, handle, sensor_of_chip, &value);
        break;
      case Gauge::power_draw:
        ask(question, power_, handle, &value);
        break;
      case Gauge::clock_rate:
        ask(question, clock_, handle, clock_of_multiprocessors, &value);
        break;
      case Gauge::memory_clock_rate:
        ask(question, clock_, handle, clock_of_memory, &value);
        break;
    }
    return static_cast<int>(value);
  }

  [[nodiscard]] ThrottleReasons throttle_reasons(const std::string& bus_id, int device) const {
    const Question question{"throttle_reasons", device};
    unsigned long long reasons = 0;
    ask(question, reasons_, find(bus_id, question), &reasons);
    return {.power = (reasons & (power_cap | power_brake)) != 0,
            .thermal = (reasons & (thermal_slowdown | hardware_thermal_slowdown)) != 0,
            .hardware = (reasons & (hardware_slowdown | hardware_thermal_slowdown | power_brake)) != 0};
  }

  [[nodiscard]] std::vector<GpuProcess> processes(const std::string& bus_id, int device) const {
    const Question question{"list_gpu_processes", device};
    const NvmlDevice handle = find(bus_id, question);
    std::vector<NvmlProcess> found(16);
    for (;;) {
      if (processes_ == nullptr) refuse(question, nvml_function_not_found);
      auto count = static_cast<unsigned>(found.size());
      const int status = processes_(handle, &count, found.data());
      if (status != nvml_insufficient_size) {
        if (status != nvml_success) refuse(question, status);
        found.resize(count);
        break;
      }
      found.resize(count + 16);  // some may come meanwhile
    }
    std::vector<GpuProcess> result;
    for (const NvmlProcess& process : found) {
      GpuProcess& added =
          result.emplace_back(GpuProcess{.id = static_cast<int>(process.id), .memory_bytes = {}});
      if (process.memory_bytes != unknown_memory) added.memory_bytes = process.memory_bytes;
    }
    return result;
  }

 private:
  struct Question {
    std::string_view function;
    int device;
  };

  NvmlReader() {
    const DriverLibrary& nvml = session_.driver_library();
    nvml.load(in_words_, "nvmlErrorString");
    nvml.load(utilization_, "nvmlDeviceGetUtilizationRates");
    nvml.load(temperature_, "nvmlDeviceGetTemperature");
    nvml.load(power_, "nvmlDeviceGetPowerUsage");
    nvml.load(clock_, "nvmlDeviceGetClockInfo");
    // Two names of one form each.
    if (!nvml.load(reasons_, "nvmlDeviceGetCurrentClocksEventReasons"))
      nvml.load(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons");
    if (!nvml.load(processes_, "nvmlDeviceGetComputeRunningProcesses_v3"))
      nvml.load(processes_, "nvmlDeviceGetComputeRunningProcesses_v2");
  }

  template <class Function, class... Arguments>
  void ask(const Question& question, Function function, Arguments... arguments) const {
    const int status = function == nullptr ? nvml_function_not_found : function(arguments...);
    if (status != nvml_success) refuse(question, status);
  }

  [[nodiscard]] NvmlDevice find(const std::string& bus_id, const Question& question) const {
    NvmlDevice handle = nullptr;
    if (const int status = session_.find(bus_id, handle); status != nvml_success) refuse(question, status);
    return handle;
  }

  [[noreturn]] void refuse(const Question& question, int status) const {
    std::string reason = "this driver's NVML lacks the function";
    if (status == nvml_library_not_found) {
      reason = "NVML (libnvidia-ml.so.1), which comes with NVIDIA's driver, cannot be loaded";
    } else if (status != nvml_function_not_found) {
      reason =
          fmt::format("NVML says \"{}\"", in_words_ == nullptr ? std::to_string(status) : in_words_(status));
    }
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: device {} cannot be queried: {}", question.function, question.device, reason),
        status);
  }

  NvmlSession session_;
  const char* (*in_words_)(int) = nullptr;
  int (*utilization_)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*temperature_)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power_)(NvmlDevice, unsigned*) = nullptr;
  int (*clock_)(NvmlDevice, int, unsigned*) = nullptr;
  int (*reasons_)(NvmlDevice, unsigned long long*) = nullptr;
  int (*processes_)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
};

}  // namespace

int CudaBackend::read_gauge(int device, Gauge gauge) {
  return NvmlReader::get().read(properties(device).pci_bus_id, device, gauge);
}

ThrottleReasons CudaBackend::throttle_reasons(int device) {
  return NvmlReader::get().throttle_reasons(properties(device).pci_bus_id, device);
}

std::vector<GpuProcess> CudaBackend::processes_on(int device) {
  return NvmlReader::get().processes(properties(device).pci_bus_id, device);
}

}  // namespace tutti::backend::cuda
