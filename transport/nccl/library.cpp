// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/library.hpp"

#include "settings/environment.hpp"
#include "transport/nccl/library_paths.hpp"
#include "transport/nccl/opened_library.hpp"
#include "tutti/error.hpp"

#include <optional>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

namespace tutti::transport::nccl {
namespace {

/// Older ones have never been tried.
constexpr int oldest_version = NCCL_VERSION(2, 18, 1);

std::string version_text(int code) {
  // Before 2.9 a version had one digit less; those are too old anyway, but named rightly.
  const int major_unit = code < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", code / major_unit, code % major_unit / 100, code % 100);
}

template <class Function>
bool resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// The name of a function the library lacks; nullptr if it has all.
const char* resolve_all(void* library, Functions& functions) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    if (!resolve(library, name, function)) missing = name;
  };
  find("ncclGetVersion", functions.get_version);
  find("ncclGetErrorString", functions.get_error_string);
  find("ncclGetLastError", functions.get_last_error);
  find("ncclCommInitAll", functions.comm_init_all);
  find("ncclCommDestroy", functions.comm_destroy);
  find("ncclCommAbort", functions.comm_abort);
  find("ncclCommGetAsyncError", functions.comm_get_async_error);
  find("ncclGroupStart", functions.group_start);
  find("ncclGroupEnd", functions.group_end);
  find("ncclBroadcast", functions.broadcast);
  find("ncclReduce", functions.reduce);
  find("ncclSend", functions.send);
  find("ncclRecv", functions.receive);
  find("ncclGetUniqueId", functions.get_unique_id);
  find("ncclCommInitRank", functions.comm_init_rank);
  find("ncclAllReduce", functions.all_reduce);
  find("ncclAllGather", functions.all_gather);
  find("ncclReduceScatter", functions.reduce_scatter);
  find("ncclCommInitRankConfig", functions.comm_init_rank_config);
  return missing;
}

/// Returns whether the functions are those of libtutti_nccl.so.
bool is_of_tutti(const Functions& functions) {
  return functions.get_error_string != nullptr &&
         functions.get_error_string(static_cast<ncclResult_t>(unused_result)) == mark_of_tutti;
}

/// Returns NCCL's type, for the types that `carrier_of` returns.
ncclDataType_t native_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return ncclFloat16;
    case DType::bfloat16:
      return ncclBfloat16;
    case DType::float32:
      return ncclFloat32;
    case DType::float64:
      return ncclFloat64;
    case DType::int8:
      return ncclInt8;
    case DType::uint8:
      return ncclUint8;
    case DType::int32:
      return ncclInt32;
    case DType::uint32:
      return ncclUint32;
    case DType::int64:
      return ncclInt64;
    case DType::uint64:
      return ncclUint64;
    case DType::int16:
    case DType::uint16:
    case DType::boolean:
    case DType::complex64:
    case DType::complex128:
    case DType::float8_e4m3:
    case DType::float8_e5m2:
      break;
  }
  throw Error(ErrorCode::internal, fmt::format("NCCL has no element type for {}", tutti::name_of(dtype)));
}

ncclRedOp_t native_operation(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return ncclSum;
    case ReduceKind::min:
      return ncclMin;
    case ReduceKind::max:
      return ncclMax;
    case ReduceKind::prod:
      return ncclProd;
    default:
      break;
  }
  throw Error(ErrorCode::internal, fmt::format("NCCL cannot carry a {}", tutti::name_of(kind)));
}

}  // namespace

const Library& Library::get() {
  // Never destroyed: communicators may be in use by other threads while the process exits.
  static const Library& library = *new Library();
  return library;
}

ncclResult_t enqueue(const Functions& nccl, const Call& call, const Binding& binding,
                     ncclComm_t communicator) {
  const auto at = [&](const std::optional<Place>& place) { return place ? binding.at(*place) : nullptr; };
  const std::byte* const source = at(call.source);
  std::byte* const target = at(call.target);
  const std::size_t count = call.count;
  const ncclDataType_t type = native_type(call.dtype);
  // The handle of a stream of the cuda backend is the native one.
  auto* const stream = reinterpret_cast<cudaStream_t>(binding.lanes[call.lane].handle);
  const ncclRedOp_t operation = native_operation(call.kind);
  switch (call.function) {
    case Function::broadcast:
      return nccl.broadcast(source, target, count, type, call.peer, communicator, stream);
    case Function::reduce:
      return nccl.reduce(source, target, count, type, operation, call.peer, communicator, stream);
    case Function::all_reduce:
      return nccl.all_reduce(source, target, count, type, operation, communicator, stream);
    case Function::all_gather:
      return nccl.all_gather(source, target, count, type, communicator, stream);
    case Function::reduce_scatter:
      return nccl.reduce_scatter(source, target, count, type, operation, communicator, stream);
    case Function::send:
      return nccl.send(source, count, type, call.peer, communicator, stream);
    case Function::receive:
      break;
  }
  return nccl.receive(target, count, type, call.peer, communicator, stream);
}

Library::Library() {
  const std::optional<std::string> named = Environment::get().nccl_library;
  std::string problem = load(named.value_or("libnccl.so.2"));
  if (!named && is_of_tutti(functions_)) {
    for (const std::string& path : library_paths()) {
      problem = load(path);
      if (problem.empty()) break;
    }
  }
  usable_ = problem.empty();
  if (!usable_) detail_ = fmt::format("not available: {}", problem);
}

std::string Library::load(const std::string& path) {
  const OpenedLibrary library = open_library(path);
  if (!library.problem.empty()) return library.problem;
  if (const char* missing = resolve_all(library.handle, functions_); missing != nullptr) {
    return fmt::format("{} has no function {}", path, missing);
  }
  if (is_of_tutti(functions_)) return fmt::format("{} is tutti's own, which has NCCL's interface", path);
  int version = 0;
  if (functions_.get_version(&version) != ncclSuccess)
    return fmt::format("{} does not tell its version", path);
  if (version < oldest_version) {
    return fmt::format("{} is version {}, expected {} or newer", path, version_text(version),
                       version_text(oldest_version));
  }
  detail_ = version_text(version);
  return {};
}

void Library::check(ncclResult_t result, std::string_view call, ncclComm_t communicator,
                    std::source_location where) const {
  if (result == ncclSuccess) return;
  std::string message = fmt::format("{}: {}", call, functions_.get_error_string(result));
  const char* cause = functions_.get_last_error(communicator);
  if (cause != nullptr && *cause != '\0') message += fmt::format(" ({})", cause);
  throw Error(ErrorCode::transport_failure, message, static_cast<int>(result), where);
}

}  // namespace tutti::transport::nccl
