// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/arguments.hpp"
#include "collectives/training/bucket_plan.hpp"
#include "collectives/training/clipping.hpp"
#include "collectives/training/given_alike.hpp"
#include "collectives/training/member_lists.hpp"
#include "device/runtime.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/event.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::collectives {

/// The point that one stream had reached when it last completed a gradient of a bucket.
struct StreamMark {
  Stream stream;
  Event event;
  bool is_of_this_iteration = false;
};

/// A local member's share of a bucket.
struct BucketShare {
  std::vector<Tensor> gradients;
  std::vector<StreamMark> marks;  ///< kept for the next iteration, as events are
  /// The points that streams had reached when they last added to a gradient in a `no_sync`. A gradient that
  /// has been complete since then has no other mark. Other gradients, whose `ready` came later, do not need
  /// these marks.
  std::vector<StreamMark> no_sync_marks;
  bool needs_no_sync_marks = false;
};

struct GradientBucket {
  std::vector<BucketShare> shares;  ///< one for each local member
  std::size_t missing = 0;          ///< gradients of all local members
};

}  // namespace tutti::collectives

namespace tutti {
namespace {

using collectives::Arguments;
using collectives::BucketShare;
using collectives::GradientBucket;
using collectives::StreamMark;

/// The most gradients that an error names.
constexpr std::size_t most_named_gradients = 8;

}  // namespace

class GradientBuckets::Impl {
 public:
  Impl(Communicator& communicator, TensorLists gradients, const GradientBucketOptions& options);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() = default;

  void ready(int member, int index);
  void synchronize();
  Tensor clip_norm(const GradientClip& clip);
  void begin_no_sync();
  void end_no_sync() noexcept;
  /// Makes buckets of the same gradients for another communicator.
  [[nodiscard]] std::unique_ptr<Impl> rescaled(Communicator& communicator) const;

  [[nodiscard]] const std::vector<std::vector<int>>& plan() const noexcept { return plan_; }
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  [[nodiscard]] int started() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(started_);
  }

 private:
  [[nodiscard]] std::size_t locals() const noexcept { return gradients_.size(); }
  void check_gradients(const Arguments& arguments) const;
  [[nodiscard]] collectives::GivenAlike described() const;
  /// The gradient is complete behind what the current stream of its device has queued.
  void report(std::size_t local, std::size_t index);
  /// Reports a gradient to which the iteration may still add: nothing starts.
  void report_in_no_sync(std::size_t local, std::size_t index);
  static void mark(std::vector<StreamMark>& marks, const Stream& stream);
  void begin_next_iteration();
  void start_full_buckets();
  void start(GradientBucket& bucket);
  /// Returns the gradients that have not been reported: local members and indices.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> missing() const;
  [[noreturn]] void refuse(const std::vector<std::pair<std::size_t, std::size_t>>& missing) const;

  Communicator& communicator_;
  const GradientBucketOptions options_;
  std::vector<std::vector<Tensor>> gradients_;
  std::vector<std::vector<int>> plan_;
  std::vector<std::size_t> bucket_of_;  ///< by index of the gradient
  std::vector<Stream> streams_;

  mutable std::mutex mutex_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::vector<bool>> is_ready_;            ///< by local member and index
  std::vector<std::vector<bool>> is_used_in_no_sync_;  ///< of this iteration, likewise
  std::size_t started_ = 0;
  bool is_under_way_ = false;  ///< something has been reported in this iteration
  int no_sync_depth_ = 0;
};

GradientBuckets::Impl::Impl(Communicator& communicator, TensorLists gradients,
                            const GradientBucketOptions& options)
    : communicator_(communicator), options_(options), gradients_(gradients.begin(), gradients.end()) {
  require_alike(communicator, "GradientBuckets", collectives::InCapture::unsupported, [&] {
    const Arguments arguments(Runtime::get(), "GradientBuckets");
    arguments.enumerator(options.unused, UnusedGradients::zero, "options.unused");
    if (options.bucket_bytes == 0) arguments.fail("options.bucket_bytes is 0, expected more");
    check_gradients(arguments);
    return described();
  });
  const std::size_t first =
      options.first_bucket_bytes == 0 ? options.bucket_bytes : options.first_bucket_bytes;
  plan_ = collectives::plan_buckets(gradients_[0], {.first = first, .others = options.bucket_bytes});
  bucket_of_.resize(gradients_[0].size());
  for (const std::vector<int>& indices : plan_) {
    GradientBucket bucket{.shares = std::vector<BucketShare>(locals()), .missing = locals() * indices.size()};
    for (const int i : indices) {
      const auto index = static_cast<std::size_t>(i);
      bucket_of_[index] = buckets_.size();
      for (std::size_t local = 0; local < locals(); ++local)
        bucket.shares[local].gradients.push_back(gradients_[local][index]);
    }
    buckets_.push_back(std::move(bucket));
  }
  is_ready_.assign(locals(), std::vector<bool>(bucket_of_.size(), false));
  is_used_in_no_sync_ = is_ready_;
  constexpr int urgent = -1;
  for (const Device device : communicator.devices()) streams_.emplace_back(device, urgent);
}

void GradientBuckets::Impl::check_gradients(const Arguments& arguments) const {
  collectives::check_member_lists(arguments, communicator_, gradients_, "gradients");
  for (std::size_t local = 0; local < locals(); ++local) {
    const std::vector<Tensor>& list = gradients_[local];
    for (std::size_t t = 0; t < list.size(); ++t)
      arguments.writable(list[t], collectives::Name("gradients", local, t));
  }
  const auto members = static_cast<std::size_t>(communicator_.member_count());
  for (const Tensor& gradient : gradients_[0])
    arguments.operation(options_.operation, gradient.dtype(), members);
}

collectives::GivenAlike GradientBuckets::Impl::described() const {
  collectives::GivenAlike given;
  given.add_tensors("gradients[0]", gradients_[0]);
  given.add("options.bucket_bytes", std::to_string(options_.bucket_bytes));
  given.add("options.first_bucket_bytes", std::to_string(options_.first_bucket_bytes));
  given.add_operation(options_.operation);
  given.add("options.unused", options_.unused == UnusedGradients::error ? "error" : "zero");
  return given;
}

void GradientBuckets::Impl::ready(int member, int index) {
  const Arguments arguments(Runtime::get(), "GradientBuckets::ready");
  collectives::check_local_member(arguments, member, locals());
  if (index < 0 || static_cast<std::size_t>(index) >= bucket_of_.size())
    arguments.fail("index is {}, expected 0 to {}", index, bucket_of_.size() - 1);
  const std::lock_guard lock(mutex_);
  if (no_sync_depth_ > 0)
    return report_in_no_sync(static_cast<std::size_t>(member), static_cast<std::size_t>(index));
  if (is_ready_[static_cast<std::size_t>(member)][static_cast<std::size_t>(index)]) {
    arguments.fail(
        "index is {}, a gradient that local member {} has reported in this iteration, expected each once "
        "before synchronize",
        index, member);
  }
  report(static_cast<std::size_t>(member), static_cast<std::size_t>(index));
  start_full_buckets();
}

void GradientBuckets::Impl::report(std::size_t local, std::size_t index) {
  GradientBucket& bucket = buckets_[bucket_of_[index]];
  mark(bucket.shares[local].marks, current_stream(communicator_.devices()[local]));
  is_ready_[local][index] = true;
  is_under_way_ = true;
  --bucket.missing;
}

void GradientBuckets::Impl::report_in_no_sync(std::size_t local, std::size_t index) {
  mark(buckets_[bucket_of_[index]].shares[local].no_sync_marks,
       current_stream(communicator_.devices()[local]));
  is_used_in_no_sync_[local][index] = true;
}

void GradientBuckets::Impl::mark(std::vector<StreamMark>& marks, const Stream& stream) {
  auto found = std::ranges::find_if(
      marks, [&](const StreamMark& mark) { return mark.is_of_this_iteration && mark.stream == stream; });
  if (found == marks.end())
    found = std::ranges::find_if(marks, [](const StreamMark& mark) { return !mark.is_of_this_iteration; });
  if (found == marks.end()) found = marks.insert(marks.end(), {.stream = stream, .event = Event()});
  found->event.record(stream);
  found->stream = stream;
  found->is_of_this_iteration = true;
}

void GradientBuckets::Impl::start_full_buckets() {
  for (; started_ < buckets_.size() && buckets_[started_].missing == 0; ++started_) start(buckets_[started_]);
}

void GradientBuckets::Impl::start(GradientBucket& bucket) {
  std::vector<std::vector<Tensor>> gradients;
  for (std::size_t local = 0; local < locals(); ++local) {
    const BucketShare& share = bucket.shares[local];
    for (const StreamMark& mark : share.marks) {
      if (mark.is_of_this_iteration) streams_[local].wait_event(mark.event);
    }
    for (const StreamMark& mark : share.no_sync_marks) {
      if (share.needs_no_sync_marks && mark.is_of_this_iteration) streams_[local].wait_event(mark.event);
    }
    gradients.push_back(share.gradients);
  }
  communicator_.all_reduce_coalesced(gradients, gradients, options_.operation, streams_);
}

void GradientBuckets::Impl::synchronize() {
  const std::lock_guard lock(mutex_);
  if (no_sync_depth_ > 0) return;
  auto unused = missing();
  std::erase_if(unused, [this](const auto& place) { return is_used_in_no_sync_[place.first][place.second]; });
  if (!unused.empty() && options_.unused == UnusedGradients::error) refuse(unused);
  for (const auto& [local, index] : unused) {
    gradients_[local][index].fill_(0);
    report(local, index);
  }
  for (const auto& [local, index] : missing()) {
    buckets_[bucket_of_[index]].shares[local].needs_no_sync_marks = true;
    report(local, index);  // what the program has made of the sum since then counts too
  }
  start_full_buckets();
  for (const Stream& stream : streams_) current_stream(stream.device()).wait_stream(stream);
  begin_next_iteration();
}

Tensor GradientBuckets::Impl::clip_norm(const GradientClip& clip) {
  const Arguments arguments(Runtime::get(), "GradientBuckets::clip_norm");
  const std::lock_guard lock(mutex_);
  if (is_under_way_)
    arguments.fail("gradients have been reported in this iteration, expected synchronize before");
  if (no_sync_depth_ > 0) arguments.fail("a no_sync is open, expected its end and synchronize before");
  check_clip(arguments, communicator_, clip, gradients_[0], "gradients");
  std::vector<collectives::ClippedGradients> members;
  for (std::size_t local = 0; local < locals(); ++local) {
    const int member = communicator_.first_member() + static_cast<int>(local);
    members.push_back(
        {.measured = collectives::measured_share(gradients_[local], member, communicator_.member_count()),
         .scaled = gradients_[local]});
  }
  return collectives::clip_norm(communicator_, arguments, members, clip);
}

void GradientBuckets::Impl::begin_next_iteration() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].missing = locals() * plan_[b].size();
    for (BucketShare& share : buckets_[b].shares) {
      for (std::vector<StreamMark>* const marks : {&share.marks, &share.no_sync_marks}) {
        for (StreamMark& mark : *marks) mark.is_of_this_iteration = false;
      }
      share.needs_no_sync_marks = false;
    }
  }
  for (auto* const all : {&is_ready_, &is_used_in_no_sync_}) {
    for (std::vector<bool>& flags : *all) std::fill(flags.begin(), flags.end(), false);
  }
  started_ = 0;
  is_under_way_ = false;
}

std::vector<std::pair<std::size_t, std::size_t>> GradientBuckets::Impl::missing() const {
  std::vector<std::pair<std::size_t, std::size_t>> result;
  for (std::size_t local = 0; local < locals(); ++local) {
    for (std::size_t index = 0; index < bucket_of_.size(); ++index) {
      if (!is_ready_[local][index]) result.emplace_back(local, index);
    }
  }
  return result;
}

void GradientBuckets::Impl::refuse(const std::vector<std::pair<std::size_t, std::size_t>>& missing) const {
  std::string names;
  for (std::size_t i = 0; i < std::min(missing.size(), most_named_gradients); ++i) {
    const auto& [local, index] = missing[i];
    names += fmt::format("{}gradients[{}][{}]", i == 0 ? "" : ", ", local, index);
  }
  if (missing.size() > most_named_gradients)
    names += fmt::format(" and {} more", missing.size() - most_named_gradients);
  const Arguments arguments(Runtime::get(), "GradientBuckets::synchronize");
  arguments.fail(
      "{} of {} gradients have not been reported in this iteration: {}; expected ready for each, or "
      "options.unused to be zero",
      missing.size(), locals() * bucket_of_.size(), names);
}

void GradientBuckets::Impl::begin_no_sync() {
  const std::lock_guard lock(mutex_);
  if (is_under_way_) {
    const Arguments arguments(Runtime::get(), "GradientBuckets::no_sync");
    arguments.fail("gradients have been reported in this iteration, expected synchronize before");
  }
  ++no_sync_depth_;
}

void GradientBuckets::Impl::end_no_sync() noexcept {
  const std::lock_guard lock(mutex_);
  --no_sync_depth_;
}

std::unique_ptr<GradientBuckets::Impl> GradientBuckets::Impl::rescaled(Communicator& communicator) const {
  auto impl = std::make_unique<Impl>(communicator, gradients_, options_);
  impl->streams_ = streams_;  // behind all-reduces that have been started
  impl->no_sync_depth_ = no_sync_depth_;
  return impl;
}

GradientBuckets::GradientBuckets(Communicator& communicator, TensorLists gradients,
                                 const GradientBucketOptions& options)
    : impl_(std::make_unique<Impl>(communicator, gradients, options)) {}
GradientBuckets::GradientBuckets(Communicator& communicator, TensorList gradients,
                                 const GradientBucketOptions& options)
    : GradientBuckets(communicator, {std::vector<Tensor>(gradients.begin(), gradients.end())}, options) {}
GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::ready(int member, int index) {
  impl_->ready(member, index);
}
void GradientBuckets::synchronize() {
  impl_->synchronize();
}
Tensor GradientBuckets::clip_norm(const GradientClip& clip) {
  return impl_->clip_norm(clip);
}
void GradientBuckets::rescale(Communicator& communicator) {
  impl_ = impl_->rescaled(communicator);
}
NoSyncGuard GradientBuckets::no_sync() {
  return NoSyncGuard(*this);
}
const std::vector<std::vector<int>>& GradientBuckets::buckets() const noexcept {
  return impl_->plan();
}
int GradientBuckets::started() const {
  return impl_->started();
}
const std::vector<Stream>& GradientBuckets::streams() const noexcept {
  return impl_->streams();
}

NoSyncGuard::NoSyncGuard(GradientBuckets& buckets) : buckets_(buckets) {
  buckets_.impl_->begin_no_sync();
}
NoSyncGuard::~NoSyncGuard() {
  buckets_.impl_->end_no_sync();
}

}  // namespace tutti
