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

/// cuBLAS and cuFFT on the library's devices and streams: the component `tutti::cuda_libraries`, which alone
/// links them, and is there where tutti was built with CUDA. All calls throw Error(unsupported) on virtual
/// devices, Error(invalid_argument) for an unknown device, and Error(device_failure) with what cuBLAS or
/// cuFFT has returned as its `native_code`.
namespace tutti {

/// The calling thread's cuBLAS handle for a device, bound to the thread's current stream there, whichever
/// device is current.
///
/// There is one for each device and thread. It is made by the first call, which takes some milliseconds and
/// memory of the device, and must not be made while a stream is captured; it ends with the thread. Each call
/// binds it anew: what cuBLAS is called with it for runs on the stream that was current at the latest call.
[[nodiscard]] TUTTI_EXPORT cublasHandle_t current_blas_handle(Device device = Device::current());

/// Where the elements of a transform lie, in cuFFT's terms (`cufftMakePlanMany64`), counted in elements.
struct FftLayout {
  std::vector<long long> embed;  ///< sizes of the arrays that the transforms are parts of; empty: dense
  long long stride = 1;          ///< from one element to the next; ignored if dense
  long long distance = 0;        ///< from one transform of the batch to the next; ignored if dense
  friend bool operator==(const FftLayout&, const FftLayout&) = default;
};

/// What a plan is made for.
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

/// The use of a plan: while it lives, the plan is nobody else's. Destroy it once the transforms are queued;
/// they need not be done. Move-only; on the thread that asked for it.
class TUTTI_EXPORT FftPlan {
 public:
  FftPlan(FftPlan&& other) noexcept = default;
  FftPlan& operator=(FftPlan&& other) noexcept;
  FftPlan(const FftPlan&) = delete;
  FftPlan& operator=(const FftPlan&) = delete;
  ~FftPlan();

  /// For `cufftExec…`. Bound to a stream already: leave it so.
  [[nodiscard]] cufftHandle handle() const noexcept;

 private:
  friend class FftPlanCache;
  FftPlan(FftPlanCache& cache, std::shared_ptr<detail::CachedFftPlan> plan) noexcept;
  void give_back() noexcept;

  FftPlanCache* cache_;
  std::shared_ptr<detail::CachedFftPlan> plan_;  ///< nullptr once it was moved from
};

/// Plans of one device, each kept after its use for the next that wants the same: making one takes
/// milliseconds, and memory of the device for as long as it lives. When there are more than `max_size`, those
/// go whose latest use is the longest ago. Thread-safe.
class TUTTI_EXPORT FftPlanCache {
 public:
  explicit FftPlanCache(Device device);
  FftPlanCache(const FftPlanCache&) = delete;
  FftPlanCache& operator=(const FftPlanCache&) = delete;
  ~FftPlanCache();

  /// A plan bound to the calling thread's current stream of the device, which waits for the plan's transforms
  /// on other streams, as they share its memory. One that is in use elsewhere is not waited for: there are
  /// two then. Throws Error(invalid_argument) unless there are one to three sizes. Not while the stream is
  /// captured: a graph needs plans that live as long as it does.
  [[nodiscard]] FftPlan plan(const FftDescription& description);

  /// 4096 unless it has been set.
  [[nodiscard]] std::size_t max_size() const;
  /// Plans above the number go at once; with 0 none is kept.
  void set_max_size(std::size_t plans);
  /// How many there are, those in use included.
  [[nodiscard]] std::size_t size() const;
  /// Whether there is a plan for this.
  [[nodiscard]] bool contains(const FftDescription& description) const;
  /// Lets all plans go; those in use, when they come back.
  void clear();

 private:
  friend class FftPlan;
  using Plans = std::list<std::shared_ptr<detail::CachedFftPlan>>;

  void give_back(const std::shared_ptr<detail::CachedFftPlan>& plan) noexcept;
  /// The plans above the limit, with `mutex_` held: who calls destroys them without it.
  [[nodiscard]] Plans take_surplus();

  const int device_;
  mutable std::mutex mutex_;
  std::size_t max_size_ = 4096;
  Plans plans_;  ///< the latest in use first
};

/// The one of a device. It lives as long as the process.
[[nodiscard]] TUTTI_EXPORT FftPlanCache& cufft_plan_cache(Device device = Device::current());

}  // namespace tutti
