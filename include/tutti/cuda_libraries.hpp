// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include <cublas_v2.h>
#include <cufft.h>

/// Provides cuBLAS and cuFFT on the library's devices and streams, in the component `tutti::cuda_libraries`,
/// which exists if tutti was built with CUDA; only that component links them. All calls throw
/// Error(unsupported) on virtual devices, Error(invalid_argument) for an unknown device, and
/// Error(device_failure) with the result of cuBLAS or cuFFT as its `native_code`.
namespace tutti {

/// Returns the calling thread's cuBLAS handle for a device, bound to the thread's current stream there,
/// whichever device is current.
///
/// There is one handle per device and thread. The first call creates it, which takes some milliseconds and
/// device memory and must not happen while a stream is captured; it is destroyed with the thread. Each call
/// binds it anew: calls of cuBLAS with it run on the stream that was current at the latest call.
[[nodiscard]] TUTTI_EXPORT cublasHandle_t current_blas_handle(Device device = Device::current());

/// The layout of a transform's elements, in cuFFT's terms (`cufftMakePlanMany64`), counted in elements.
struct FftLayout {
  std::vector<long long> embed;  ///< sizes of the arrays that the transforms are parts of; empty: dense
  long long stride = 1;          ///< from one element to the next; ignored if dense
  long long distance = 0;        ///< from one transform of the batch to the next; ignored if dense
  friend bool operator==(const FftLayout&, const FftLayout&) = default;
};

/// Describes a plan.
struct FftDescription {
  std::vector<long long> sizes;  ///< of one to three dimensions, the outermost first
  cufftType type = CUFFT_C2C;
  long long batch = 1;
  FftLayout input = {};
  FftLayout output = {};
  friend bool operator==(const FftDescription&, const FftDescription&) = default;
};

class FftPlanCache;

namespace detail {
struct CachedFftPlan;
}

/// Exclusive use of a plan while it lives. Destroy it once the transforms are queued; they need not be done.
/// Move-only; use it on the thread that requested it.
class TUTTI_EXPORT FftPlan {
 public:
  FftPlan(FftPlan&& other) noexcept = default;
  FftPlan& operator=(FftPlan&& other) noexcept;
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;
  ~FftPlan();

  /// Returns the handle for `cufftExec…`. It is bound to a stream already: do not rebind it.
  [[nodiscard]] cufftHandle handle() const noexcept;

 private:
  friend class FftPlanCache;
  FftPlan(FftPlanCache& cache, std::shared_ptr<detail::CachedFftPlan> plan) noexcept;
  void give_back() noexcept;

  FftPlanCache* cache_;
  std::shared_ptr<detail::CachedFftPlan> plan_;  ///< nullptr after a move
};

/// Caches the plans of one device for later uses with the same description: making a plan takes milliseconds,
/// and device memory for as long as it lives. If there are more than `max_size`, the least recently used ones
/// are destroyed. Thread-safe.
class TUTTI_EXPORT FftPlanCache {
 public:
  explicit FftPlanCache(Device device);
  FftPlanCache(const FftPlanCache&) = delete;
  FftPlanCache& operator=(const FftPlanCache&) = delete;
  ~FftPlanCache();

  /// Returns a plan bound to the calling thread's current stream of the device. That stream is made to wait
  /// for the plan's transforms on other streams, as they share its memory. If the plan is in use elsewhere, a
  /// second one is made. Throws Error(invalid_argument) unless there are one to three sizes. Do not call it
  /// while the stream is captured: a graph needs plans that live as long as it does.
  [[nodiscard]] FftPlan plan(const FftDescription& description);

  /// Returns the limit, initially 4096.
  [[nodiscard]] std::size_t max_size() const;
  /// Sets the limit. Plans above it are destroyed at once; with 0 none is kept.
  void set_max_size(std::size_t plans);
  /// Returns the number of plans, including those in use.
  [[nodiscard]] std::size_t size() const;
  /// Returns whether there is a plan with this description.
  [[nodiscard]] bool contains(const FftDescription& description) const;
  /// Destroys all plans; those in use are destroyed when their use ends.
  void clear();

 private:
  friend class FftPlan;
  using Plans = std::list<std::shared_ptr<detail::CachedFftPlan>>;

  void give_back(const std::shared_ptr<detail::CachedFftPlan>& plan) noexcept;
  /// Removes the plans above the limit, with `mutex_` held; the caller destroys them without holding it.
  [[nodiscard]] Plans take_surplus();

  const int device_;
  mutable std::mutex mutex_;
  std::size_t max_size_ = 4096;
  Plans plans_;  ///< the latest in use first
};

/// Returns a device's cache, which lives as long as the process.
[[nodiscard]] TUTTI_EXPORT FftPlanCache& cufft_plan_cache(Device device = Device::current());

}  // namespace tutti
