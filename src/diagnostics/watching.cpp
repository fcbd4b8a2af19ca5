// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/watching.hpp"

#include "backend/nvtx.hpp"
#include "diagnostics/trace.hpp"

#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

namespace tutti::watching {
namespace {

/// Through NVTX, as a text that ends with a zero. Messages that hold one are cut there.
template <class Tell>
void tell_profiler(std::string_view message, Tell tell) noexcept {
  if (!backend::nvtx::has_listener()) return;
  try {
    tell(std::string(message).c_str());
  } catch (const std::bad_alloc&) {
    tell("(a message that there is no memory for)");
  }
}

template <class Tell>
void tell_trace(Tell tell) noexcept {
  try {
    if (Trace* const trace = Trace::get()) tell(*trace);
  } catch (const std::exception&) {
    return;  // no memory to tell of it
  }
}

std::string title_of(const WatchedCall& call) {
  const std::string_view name = call.name;
  if (call.plan.transport.empty()) return std::string(name);
  return fmt::format("{}, {} bytes, {}", name, call.bytes, call.plan.transport);
}

}  // namespace

bool look_for_watchers() noexcept {
  const Watchers known = watchers.load();
  if (known != Watchers::not_asked) return known == Watchers::some;
  bool is_watched = backend::nvtx::has_listener();
  try {
    is_watched |= Trace::is_wanted();
  } catch (const std::exception&) {
    return false;  // a wrong variable is reported when the library starts
  }
  watchers.store(is_watched ? Watchers::some : Watchers::none);
  return is_watched;
}

void mark(std::string_view message) noexcept {
  tell_profiler(message, backend::nvtx::mark);
  tell_trace([&](Trace& trace) { trace.mark(message); });
}

void push(std::string_view message) noexcept {
  tell_profiler(message, backend::nvtx::push);
  tell_trace([&](Trace& trace) { trace.push(message); });
}

void pop() noexcept {
  if (backend::nvtx::has_listener()) backend::nvtx::pop();
  tell_trace([](Trace& trace) { trace.pop(); });
}

class CallRange::Open {
 public:
  explicit Open(const WatchedCall& call) : is_heard_(backend::nvtx::has_listener()) {
    if (Trace* const trace = Trace::get()) traced_.emplace(*trace, call);
    if (is_heard_) backend::nvtx::push_call(title_of(call).c_str(), call.bytes);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  void note_stand_ins() {
    if (traced_) traced_->note_stand_ins();
  }
  ~Open() {
    if (is_heard_) backend::nvtx::pop_call();
  }

 private:
  std::optional<TracedCall> traced_;
  bool is_heard_;
};

CallRange::OpenPtr CallRange::open(const std::function<WatchedCall()>& describe) noexcept {
  try {
    return OpenPtr(new Open(describe()));
  } catch (const std::exception&) {
    return nullptr;  // no memory to tell of it: the call is made all the same
  }
}

void CallRange::note_stand_ins(Open& range) noexcept {
  try {
    range.note_stand_ins();
  } catch (const std::exception&) {
    return;  // no memory to tell of it
  }
}

void CallRange::End::operator()(Open* range) const noexcept {
  delete range;
}

}  // namespace tutti::watching
