// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <type_traits>

#include <sys/mman.h>

namespace tutti::test {

/// Holds an object that this process shares with those that it forks later.
template <class T>
class SharedObject {
  static_assert(std::is_trivially_destructible_v<T>, "other processes may still use it");

 public:
  SharedObject() : object_(new(memory()) T{}) {}
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  ~SharedObject() { munmap(object_, sizeof(T)); }

  [[nodiscard]] T& operator*() const noexcept { return *object_; }
  [[nodiscard]] T* operator->() const noexcept { return object_; }

 private:
  [[nodiscard]] static void* memory() {
    void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return memory;
  }

  T* object_;
};

}  // namespace tutti::test
