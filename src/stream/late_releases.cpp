// SPDX-License-Identifier: Apache-2.0
#include "stream/late_releases.hpp"

#include "device/open_captures.hpp"
#include "device/runtime.hpp"

#include <chrono>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>

namespace tutti {

LateReleases::LateReleases(Runtime& runtime)
    : backend_(runtime.backend()), events_(runtime.part<EventPool>()) {}

LateReleases::~LateReleases() {
  release_all();
}

void LateReleases::add(ReleaseList&& releases) noexcept {
  const std::lock_guard lock(mutex_);
  releases_.splice(releases_.end(), releases);
  has_any_.store(!releases_.empty(), std::memory_order_release);
}

void LateReleases::add_marked(ReleaseList&& releases) noexcept {
  for (One& one : releases)
    std::erase_if(one.streams, [&](backend::StreamRef stream) { return try_mark(one, stream); });
  add(std::move(releases));
}

void LateReleases::release_all() {
  ReleaseList released;  // destroyed outside the lock: their destructors may come back here
  const std::lock_guard lock(mutex_);
  released.swap(releases_);
  has_any_.store(false, std::memory_order_relaxed);
}

void LateReleases::await_all() {
  constexpr std::chrono::seconds patience{10};
  constexpr std::chrono::microseconds looks_every{100};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (release(); has_any(); release()) {
    if (std::chrono::steady_clock::now() > deadline) return;
    std::this_thread::sleep_for(looks_every);
  }
}

void LateReleases::settle(Settling how) {
  switch (how) {
    case Settling::at_once:
      release();
      return;
    case Settling::awaited:
      return await_all();
    case Settling::given_up:
      return release_all();
  }
}

void LateReleases::retain_in_graph(backend::StreamRef stream, std::shared_ptr<void> resource) {
  auto releases = std::make_unique<ReleaseList>(1);
  releases->front().resource = std::move(resource);
  const std::shared_ptr<void> handle(static_cast<void*>(releases.release()), [this](void* object) {
    const std::unique_ptr<ReleaseList> owner(static_cast<ReleaseList*>(object));
    add(std::move(*owner));
  });
  backend_.retain_until_graph_destroyed(stream, handle);
}

bool LateReleases::release_some() {
  // They are no part of what this thread captures.
  const OpenCapture of_no_graph(GraphPool::none);
  ReleaseList released;  // as above
  const std::lock_guard lock(mutex_);
  for (auto one = releases_.begin(); one != releases_.end();) {
    const auto next = std::next(one);
    if (has_come(*one)) released.splice(released.end(), releases_, one);
    one = next;
  }
  has_any_.store(!releases_.empty(), std::memory_order_relaxed);
  return !released.empty();
}

bool LateReleases::has_come(One& one) {
  std::erase_if(one.streams, [&](backend::StreamRef stream) { return try_mark(one, stream); });
  std::erase_if(one.marks, [this](const PooledEvent& mark) { return backend_.has_passed(mark.handle()); });
  return one.streams.empty() && one.marks.empty();
}

bool LateReleases::try_mark(One& one, backend::StreamRef stream) {
  try {
    if (backend_.is_capturing(stream)) return false;  // the mark would become part of that graph
    PooledEvent mark(events_, stream.device);
    mark.record(stream);
    one.marks.push_back(std::move(mark));
    return true;
  } catch (const std::exception&) {
    return false;  // the failure itself is reported by the calls that synchronise with the device
  }
}

}  // namespace tutti
