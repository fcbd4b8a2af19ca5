// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/nvrtc.hpp"

#include "tutti/error.hpp"

#include <array>
#include <cstddef>

#include <dlfcn.h>
#include <fmt/format.h>

/// NVRTC's binary interface, as far as it is needed: neither its header nor its library need be there where
/// tutti is built.
namespace tutti::backend::cuda {
namespace {

struct NvrtcProgramTag;
using NvrtcProgram = NvrtcProgramTag*;
constexpr int nvrtc_success = 0;
constexpr int nvrtc_out_of_memory = 1;
constexpr int nvrtc_invalid_option = 5;
constexpr int nvrtc_compilation_error = 6;
constexpr std::size_t longest_nvrtc_complaint = 4000;

/// Throws what is not the text's fault.
[[noreturn]] void refuse_without_nvrtc(const std::string& reason, int status) {
  throw Error(status == nvrtc_out_of_memory ? ErrorCode::out_of_memory : ErrorCode::unsupported,
              "source text cannot be compiled for GPUs: " + reason, status);
}

/// Loaded once, and never unloaded.
class Nvrtc {
 public:
  static const Nvrtc& get() {
    static const auto* const nvrtc = new Nvrtc;
    return *nvrtc;
  }

  [[nodiscard]] std::vector<char> compile(const std::string& text, const std::string& architecture) const {
    if (!is_complete_) {
      refuse_without_nvrtc(
          "NVRTC (libnvrtc.so.13 or libnvrtc.so.12), which comes with CUDA's toolkit, cannot be loaded", 0);
    }
    NvrtcProgram program = nullptr;
    require(create_(&program, text.c_str(), "source", 0, nullptr, nullptr));
    const Program owner{*this, program};
    const std::array<const char*, 5> options{architecture.c_str(), "--std=c++17", "--fmad=false",
                                             "--device-as-default-execution-space", "--disable-warnings"};
    const int status = compile_(program, static_cast<int>(options.size()), options.data());
    if (status == nvrtc_invalid_option)
      refuse_without_nvrtc(fmt::format("this NVRTC does not know {}: {}", architecture, log_of(program)),
                           status);
    if (status == nvrtc_compilation_error) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the source text does not compile: {}", log_of(program)), status);
    }
    require(status);
    std::size_t bytes = 0;
    require(code_size_(program, &bytes));
    std::vector<char> code(bytes);
    require(code_(program, code.data()));
    return code;
  }

 private:
  struct Program {
    const Nvrtc& nvrtc;
    NvrtcProgram program;
    Program(const Nvrtc& library, NvrtcProgram made) : nvrtc(library), program(made) {}
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() { nvrtc.destroy_(&program); }
  };

  Nvrtc() {
    for (const char* const name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
      library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) break;
    }
    is_complete_ = load(create_, "nvrtcCreateProgram") && load(destroy_, "nvrtcDestroyProgram") &&
                   load(compile_, "nvrtcCompileProgram") && load(log_size_, "nvrtcGetProgramLogSize") &&
                   load(log_, "nvrtcGetProgramLog") && load(code_size_, "nvrtcGetCUBINSize") &&
                   load(code_, "nvrtcGetCUBIN") && load(in_words_, "nvrtcGetErrorString");
  }
  template <class Function>
  bool load(Function& function, const char* name) const {
    if (library_ != nullptr) function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }
  void require(int status) const {
    if (status != nvrtc_success)
      refuse_without_nvrtc(fmt::format("NVRTC says \"{}\"", in_words_(status)), status);
  }
  [[nodiscard]] std::string log_of(NvrtcProgram program) const {
    std::size_t bytes = 0;
    if (log_size_(program, &bytes) != nvrtc_success || bytes < 2) return "NVRTC says nothing";
    std::string text(bytes, '\0');
    if (log_(program, text.data()) != nvrtc_success) return "NVRTC says nothing";
    text.resize(bytes - 1);  // without the end of a C string
    return text.substr(0, longest_nvrtc_complaint);
  }

  void* library_ = nullptr;
  bool is_complete_ = false;
  int (*create_)(NvrtcProgram*, const char*, const char*, int, const char* const*,
                 const char* const*) = nullptr;
  int (*destroy_)(NvrtcProgram*) = nullptr;
  int (*compile_)(NvrtcProgram, int, const char* const*) = nullptr;
  int (*log_size_)(NvrtcProgram, std::size_t*) = nullptr;
  int (*log_)(NvrtcProgram, char*) = nullptr;
  int (*code_size_)(NvrtcProgram, std::size_t*) = nullptr;
  int (*code_)(NvrtcProgram, char*) = nullptr;
  const char* (*in_words_)(int) = nullptr;
};

}  // namespace

std::vector<char> compile_with_nvrtc(const std::string& text, int major, int minor) {
  return Nvrtc::get().compile(text, fmt::format("--gpu-architecture=sm_{}{}", major, minor));
}

}  // namespace tutti::backend::cuda
