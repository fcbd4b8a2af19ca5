// SPDX-License-Identifier: Apache-2.0
#include "ranks/lifetime/threads_without_memory.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string_view>

#include <pthread.h>

namespace {

std::atomic<const char*> without_memory = nullptr;

bool is_without_memory() {
  const char* const names = without_memory.load();
  if (names == nullptr) return false;
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return std::string_view(name.data()).starts_with(names);
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = is_without_memory() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return is_without_memory() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace tutti::test::ranks {

ThreadsWithoutMemory::ThreadsWithoutMemory(const char* names) {
  without_memory = names;
}

ThreadsWithoutMemory::~ThreadsWithoutMemory() {
  without_memory = nullptr;
}

}  // namespace tutti::test::ranks
