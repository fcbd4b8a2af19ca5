// SPDX-License-Identifier: Apache-2.0
#include "cuda_libraries/require_gpus.hpp"
#include "device/blocking_call.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/cuda_libraries.hpp"
#include "tutti/event.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>

namespace tutti {
namespace {

void check_fft(cufftResult status, std::string_view call, int device) {
  if (status == CUFFT_SUCCESS) return;
  throw Error(ErrorCode::device_failure,
              fmt::format("{}: cuFFT reports {}, on device {}", call, static_cast<int>(status), device),
              status);
}

int gpu_of(Device device) {
  require_gpus("FftPlanCache");
  return current_stream(device).device();
}

}  // namespace

namespace detail {

/// While it is in use it belongs to that use, else to the cache.
struct CachedFftPlan {
  CachedFftPlan(int on_device, const FftDescription& what) : description(what) {
    const DeviceGuard current(on_device);
    check_fft(cufftCreate(&handle), "cufftCreate", on_device);
    // cuFFT does not write to them.
    const auto embed_of = [](FftLayout& layout) {
      return layout.embed.empty() ? nullptr : layout.embed.data();
    };
    std::size_t work_bytes = 0;
    const cufftResult status =
        cufftMakePlanMany64(handle, static_cast<int>(description.sizes.size()), description.sizes.data(),
                            embed_of(description.input), description.input.stride, description.input.distance,
                            embed_of(description.output), description.output.stride,
                            description.output.distance, description.type, description.batch, &work_bytes);
    if (status == CUFFT_SUCCESS) return;
    static_cast<void>(cufftDestroy(handle));
    check_fft(status, "cufftMakePlanMany64", on_device);
  }
  CachedFftPlan(const CachedFftPlan&) = delete;
  CachedFftPlan& operator=(const CachedFftPlan&) = delete;
  // Waits for the plan's transforms, as freeing memory of a device does.
  ~CachedFftPlan() { static_cast<void>(cufftDestroy(handle)); }

  FftDescription description;
  cufftHandle handle = 0;
  bool is_in_use = true;         ///< guarded by the cache's mutex
  std::optional<Stream> stream;  ///< it is bound to
  Event done;                    ///< with what it was used for
};

}  // namespace detail

FftPlan::FftPlan(FftPlanCache& cache, std::shared_ptr<detail::CachedFftPlan> plan) noexcept
    : cache_(&cache), plan_(std::move(plan)) {}

FftPlan& FftPlan::operator=(FftPlan&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  cache_ = other.cache_;
  plan_ = std::move(other.plan_);
  return *this;
}

FftPlan::~FftPlan() {
  give_back();
}

void FftPlan::give_back() noexcept {
  if (plan_ == nullptr) return;
  cache_->give_back(plan_);
  if (plan_.use_count() == 1) warn_of_blocking("the last use of a plan that its FftPlanCache has dropped");
  plan_ = nullptr;
}

cufftHandle FftPlan::handle() const noexcept {
  return plan_->handle;
}

FftPlanCache::FftPlanCache(Device device) : device_(gpu_of(device)) {}

FftPlanCache::~FftPlanCache() {
  if (!plans_.empty()) warn_of_blocking("~FftPlanCache");
}

FftPlan FftPlanCache::plan(const FftDescription& description) {
  if (description.sizes.empty() || description.sizes.size() > 3) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("FftPlanCache::plan: description.sizes has {} entries, expected 1 to 3",
                            description.sizes.size()));
  }
  std::shared_ptr<detail::CachedFftPlan> found;
  {
    const std::lock_guard lock(mutex_);
    const auto place = std::ranges::find_if(
        plans_, [&](const auto& plan) { return !plan->is_in_use && plan->description == description; });
    if (place != plans_.end()) {
      found = *place;
      found->is_in_use = true;
      plans_.splice(plans_.begin(), plans_, place);
    }
  }
  if (found == nullptr) {
    announce_blocking("FftPlanCache::plan");
    found = std::make_shared<detail::CachedFftPlan>(device_, description);
    Plans surplus;
    const std::lock_guard lock(mutex_);
    plans_.push_front(found);
    surplus = take_surplus();
  }
  FftPlan use(*this, found);
  const Stream stream = current_stream(device_);
  const DeviceGuard current(device_);
  if (found->stream != stream) {
    stream.wait_event(found->done);
    check_fft(cufftSetStream(found->handle, to_cuda(stream)), "cufftSetStream", device_);
    found->stream = stream;
  }
  return use;
}

void FftPlanCache::give_back(const std::shared_ptr<detail::CachedFftPlan>& plan) noexcept {
  try {
    if (plan->stream) plan->done.record(*plan->stream);
    const std::lock_guard lock(mutex_);
    plan->is_in_use = false;
  } catch (const std::exception&) {
    // The next user could not wait for it: it is destroyed with its last use.
    const std::lock_guard lock(mutex_);
    plans_.remove(plan);
  }
}

FftPlanCache::Plans FftPlanCache::take_surplus() {
  Plans surplus;
  while (plans_.size() > max_size_) surplus.splice(surplus.begin(), plans_, std::prev(plans_.end()));
  return surplus;
}

std::size_t FftPlanCache::max_size() const {
  const std::lock_guard lock(mutex_);
  return max_size_;
}

void FftPlanCache::set_max_size(std::size_t plans) {
  if (size() > plans) announce_blocking("FftPlanCache::set_max_size");
  Plans surplus;
  const std::lock_guard lock(mutex_);
  max_size_ = plans;
  surplus = take_surplus();
}

std::size_t FftPlanCache::size() const {
  const std::lock_guard lock(mutex_);
  return plans_.size();
}

bool FftPlanCache::contains(const FftDescription& description) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(plans_, [&](const auto& plan) { return plan->description == description; });
}

void FftPlanCache::clear() {
  if (size() > 0) announce_blocking("FftPlanCache::clear");
  Plans all;
  const std::lock_guard lock(mutex_);
  all.swap(plans_);
}

FftPlanCache& cufft_plan_cache(Device device) {
  require_gpus("cufft_plan_cache");
  const int index = current_stream(device).device();
  static std::mutex mutex;
  // Never destroyed: at process exit the driver may be gone before the plans.
  static auto* const caches = new std::map<int, FftPlanCache>;
  const std::lock_guard lock(mutex);
  return caches->try_emplace(index, index).first->second;
}

}  // namespace tutti
