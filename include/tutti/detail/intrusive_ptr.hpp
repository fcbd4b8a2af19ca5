// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace tutti::detail {

/// Base of objects that count their owners themselves, so that a handle is one pointer and thousands of
/// handles to one object cost one atomic addition.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  void add_references(std::uint32_t count) const noexcept {
    if (!is_permanent_) references_.fetch_add(count, std::memory_order_relaxed);
  }
  void drop_reference() const noexcept {
    if (!is_permanent_ && references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Stops counting owners, so that the last one does not delete the object. Call it before the object is
  /// shared.
  void make_permanent() noexcept { is_permanent_ = true; }

 private:
  mutable std::atomic<std::uint32_t> references_{1};  // the creator's
  bool is_permanent_ = false;
};

/// Owns one reference to a `RefCounted`.
template <class T>
class IntrusivePtr {
 public:
  constexpr IntrusivePtr() noexcept = default;
  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) object_->add_references(1);
  }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() {
    if (object_ != nullptr) object_->drop_reference();
  }

  /// Takes over a reference that the caller holds: the creator's, or one added with `add_references`.
  [[nodiscard]] static IntrusivePtr adopt(T* object) noexcept {
    IntrusivePtr result;
    result.object_ = object;
    return result;
  }

  /// Adds a reference to `object`, which has owners already.
  [[nodiscard]] static IntrusivePtr share(T* object) noexcept {
    object->add_references(1);
    return adopt(object);
  }

  [[nodiscard]] T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) noexcept {
    return a.object_ == b.object_;
  }

 private:
  T* object_ = nullptr;
};

}  // namespace tutti::detail
