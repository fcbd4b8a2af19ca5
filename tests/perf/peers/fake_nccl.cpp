// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/fake_nccl.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

/// A library that tutti-perf loads as NCCL. Built with FAKE_NCCL_OLD it is one that cannot register memory.
namespace {

constexpr int success = 0;
constexpr int system_error = 2;
constexpr int invalid_usage = 5;

struct UniqueId {
  char bytes[128];
};

FakeNccl state;

int never_called() {
  return system_error;
}

#ifndef FAKE_NCCL_OLD
int tell(std::vector<FakeNccl::Told>& all, const FakeNccl::Told& told, void** handle) {
  ++state.registrations;
  // It would take new memory for what it has known at that address.
  if (std::ranges::count(state.ever_told, told.communicator) != 0) return invalid_usage;
  state.ever_told.push_back(told.communicator);
  if (state.open_groups == 0) ++state.registrations_outside_groups;
  all.push_back(told);
  *handle = told.memory;
  return success;
}

int forget(std::vector<FakeNccl::Told>& all, void* communicator, void* handle) {
  const auto forgotten = std::erase_if(all, [&](const FakeNccl::Told& told) {
    return told.communicator == communicator && told.memory == handle;
  });
  return forgotten == 1 ? success : invalid_usage;
}
#endif

}  // namespace

// The names are NCCL's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

FakeNccl* fake_nccl() {
  return &state;
}

int ncclGetVersion(int* version) {
#ifdef FAKE_NCCL_OLD
  *version = 21801;
#else
  *version = state.version;
#endif
  return success;
}
const char* ncclGetErrorString(int result) {
  return result == success ? "no error" : "an error on purpose";
}
int ncclGroupStart() {
  ++state.open_groups;
  return success;
}
int ncclGroupEnd() {
  --state.open_groups;
  return success;
}

int ncclGetUniqueId(void*) {
  return success;
}
int ncclCommInitRank(void** communicator, int, UniqueId, int) {
  *communicator = &state.names[state.communicators_made++ % std::size(state.names)];
  state.communicators.push_back(*communicator);
  return success;
}
int ncclCommDestroy(void* communicator) {
  return std::erase(state.communicators, communicator) == 1 ? success : invalid_usage;
}
int ncclCommAbort(void* communicator) {
  ++state.aborts;
  return ncclCommDestroy(communicator);
}
int ncclBroadcast() {
  return never_called();
}
int ncclReduce() {
  return never_called();
}
int ncclAllReduce() {
  return never_called();
}
int ncclAllGather() {
  return never_called();
}
int ncclReduceScatter() {
  return never_called();
}
int ncclSend() {
  return never_called();
}
int ncclRecv() {
  return never_called();
}
int ncclRedOpCreatePreMulSum() {
  return never_called();
}
int ncclRedOpDestroy() {
  return never_called();
}

#ifndef FAKE_NCCL_OLD
int ncclMemAlloc(void** memory, std::size_t bytes) {
  if (state.allocations_left == 0) return system_error;
  --state.allocations_left;
  *memory = std::malloc(bytes);
  state.memory.push_back(*memory);
  return success;
}
int ncclMemFree(void* memory) {
  if (!state.communicators.empty()) ++state.frees_under_communicators;
  if (std::erase(state.memory, memory) != 1) return invalid_usage;
  std::free(memory);
  return success;
}
int ncclCommRegister(void* communicator, void* memory, std::size_t bytes, void** handle) {
  if (!state.registers_buffers) return success;
  return tell(state.buffers, {communicator, memory, bytes, 0}, handle);
}
int ncclCommDeregister(void* communicator, void* handle) {
  return forget(state.buffers, communicator, handle);
}
int ncclCommWindowRegister(void* communicator, void* memory, std::size_t bytes, void** window, int flags) {
  if (state.refuses_windows) return invalid_usage;
  if (!state.has_windows) return success;
  return tell(state.windows, {communicator, memory, bytes, flags}, window);
}
int ncclCommWindowDeregister(void* communicator, void* window) {
  return forget(state.windows, communicator, window);
}
#endif
}
// NOLINTEND(readability-identifier-naming)
