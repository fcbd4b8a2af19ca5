// SPDX-License-Identifier: Apache-2.0
#include "transport/team/symmetric/symmetric_allocation.hpp"

#include "allocator/allocators.hpp"
#include "storage/storage.hpp"
#include "stream/streams.hpp"

#include <algorithm>
#include <list>
#include <span>
#include <thread>
#include <utility>

namespace tutti::transport::team {
namespace {

constexpr std::chrono::microseconds looks_every{50};

}  // namespace

struct SymmetricAllocation::Use {
  Use(std::shared_ptr<ReleasedBlocks> keeper, std::shared_ptr<ReleaseFlags> shared, SymmetricCount counted,
      SymmetricBlocks blocks)
      : released(std::move(keeper)), flags(std::move(shared)), count(std::move(counted)) {
    last.push_back({.flags = flags, .blocks = std::move(blocks)});
    ++*count;
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    --*count;
    flags->release();
    if (is_shared) released->add(std::move(last));
  }

  const std::shared_ptr<ReleasedBlocks> released;
  const std::shared_ptr<ReleaseFlags> flags;
  const SymmetricCount count;
  std::list<ReleasedBlocks::Released> last;
  bool is_shared = false;
};

SymmetricAllocation::SymmetricAllocation(Runtime& runtime, const Membership& membership,
                                         const Settings& settings,
                                         const std::vector<backend::StreamRef>& streams,
                                         const backend::AbortWord& abort)
    : runtime_(runtime),
      settings_(settings),
      abort_(abort),
      member_count_(membership.member_count()),
      first_member_(membership.first_local()) {
  runtime_.part<ReleasedBlocks>().join();
  use_.emplace_back().streams = streams;
  const SymmetricView view = this->view(0, {});
  for (std::size_t local = 0; local < streams.size(); ++local) {
    const int device = membership.devices()[local];
    auto block =
        DeviceStorage::allocate_from(GraphPool::none, runtime_, device, view.all_bytes(), streams[local]);
    auto* const data = static_cast<std::byte*>(block->data());
    runtime_.backend().fill(streams[local], {.target = data + view.words_offset(),
                                             .count = view.all_bytes() - view.words_offset(),
                                             .element_bytes = 1});
    tensors_.emplace_back(std::move(block), TensorView(data, settings_.layout, Device(device)));
  }
  // What used the blocks before is done, too: others write there.
  for (const backend::StreamRef stream : streams) runtime_.part<Streams>().synchronize(stream);
}

SymmetricAllocation::~SymmetricAllocation() {
  if (!fork_mark_.is_in_child()) begin_release();
}

void SymmetricAllocation::complete(std::vector<std::vector<std::byte*>> peers,
                                   std::shared_ptr<ReleaseFlags> flags, SymmetricCount count) {
  peers_ = std::move(peers);
  const SymmetricView view = this->view(0, {});
  for (std::size_t local = 0; local < tensors_.size(); ++local) {
    const backend::StreamRef stream = use_.front().streams[local];
    runtime_.backend().copy(stream, {.target = data(local) + view.peers_offset(),
                                     .source = std::as_bytes(std::span(peers_[local])).data(),
                                     .row_bytes = member_count_ * sizeof(std::byte*)});
    runtime_.part<Streams>().synchronize(stream);
  }
  SymmetricBlocks blocks;
  for (const Tensor& tensor : tensors_) blocks.push_back(tensor.storage());
  flags_ = flags;
  use_.front().resource = std::make_shared<Use>(runtime_.part<ReleasedBlocks>().shared_from_this(),
                                                std::move(flags), std::move(count), std::move(blocks));
}

void SymmetricAllocation::share(bool is_shared) noexcept {
  if (auto* const use = static_cast<Use*>(use_.front().resource.get())) use->is_shared = is_shared;
}

std::byte* SymmetricAllocation::data(std::size_t local) const {
  return static_cast<std::byte*>(tensors_[local].data());
}

bool SymmetricAllocation::has_gpus() const noexcept {
  return runtime_.backend().kind() == BackendKind::cuda;
}

SymmetricView SymmetricAllocation::view(std::size_t local,
                                        std::optional<std::chrono::milliseconds> patience) const {
  SymmetricView view;
  view.abort = reinterpret_cast<const std::uint32_t*>(&abort_.state);
  view.bytes = settings_.layout->span_bytes();
  view.patience =
      static_cast<std::uint64_t>(std::chrono::nanoseconds(patience.value_or(settings_.patience)).count());
  view.member = static_cast<std::uint32_t>(first_member_ + local);
  view.member_count = static_cast<std::uint32_t>(member_count_);
  if (local < tensors_.size())
    view.peers = reinterpret_cast<std::byte* const*>(data(local) + view.peers_offset());
  return view;
}

void SymmetricAllocation::free_released() const {
  runtime_.part<ReleasedBlocks>().reclaim();
}

void SymmetricAllocation::record_stream(backend::StreamRef stream) {
  if (runtime_.backend().is_capturing(stream)) return;
  const std::lock_guard lock(mutex_);
  if (use_.empty()) return;
  std::vector<backend::StreamRef>& streams = use_.front().streams;
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}

void SymmetricAllocation::begin_release() noexcept {
  LateReleases::ReleaseList use;
  {
    const std::lock_guard lock(mutex_);
    use.swap(use_);
  }
  is_over_.store(true);
  if (!use.empty()) runtime_.part<LateReleases>().add_marked(std::move(use));
}

bool SymmetricAllocation::await_own_release(std::chrono::milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!flags_->is_released_here()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    runtime_.part<LateReleases>().release();
    rest();
  }
  return true;
}

void SymmetricAllocation::rest() const {
  runtime_.backend().wait_elsewhere();  // others may wait for what this rank has queued
  std::this_thread::sleep_for(looks_every);
}

}  // namespace tutti::transport::team
