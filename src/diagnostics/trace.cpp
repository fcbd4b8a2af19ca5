// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/trace.hpp"

#include "settings/environment.hpp"
#include "settings/log.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti::watching {
namespace {

// Tracks have numbers, as threads have, which are smaller than these.
constexpr std::int64_t first_rank_track = 100'000'000;
constexpr std::int64_t first_stream_track = 200'000'000;
constexpr std::size_t longest_plan = 4096;
constexpr std::chrono::milliseconds patience_at_exit{1000};

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string arguments_of(const WatchedCall& call, bool is_captured) {
  std::string text = fmt::format("\"bytes\":{}", call.bytes);
  if (!call.plan.transport.empty()) {
    text += fmt::format(",\"transport\":{},\"algorithm\":{}", json_text(call.plan.transport),
                        json_text(call.plan.algorithm));
  }
  if (call.member) {
    text += fmt::format(",\"rank\":{},\"ranks\":{}", call.member->rank, call.member->rank_count);
    if (call.member->sequence != 0) text += fmt::format(",\"sequence\":{}", call.member->sequence);
  }
  if (!call.messages.empty()) text += fmt::format(",\"messages\":{}", json_text(call.messages));
  if (is_captured) text += ",\"captured\":true";
  const std::string plan = call.explain ? call.explain() : "";
  if (!plan.empty()) text += fmt::format(",\"plan\":{}", json_text(plan.substr(0, longest_plan)));
  return text;
}

/// Returns a label that viewers write beside the tracks of the process.
std::string process_event(std::string_view what, std::string_view text) {
  return fmt::format(R"({{"ph":"M","pid":{},"name":"{}","args":{{"{}":{}}}}})", getpid(), what,
                     what == "process_name" ? "name" : "labels", json_text(text));
}

std::string process_name() {
  return fmt::format("{} (process {})", program_invocation_short_name, getpid());
}

std::atomic<Trace*> current_trace{nullptr};
std::mutex trace_mutex;

}  // namespace

bool Trace::is_wanted() {
  return Environment::get().trace.has_value();
}

Trace* Trace::get() {
  Trace* const known = current_trace.load(std::memory_order_acquire);
  if (known != nullptr && !known->fork_mark_.is_in_child()) [[likely]]
    return known;
  if (!is_wanted()) return nullptr;
  const std::lock_guard lock(trace_mutex);
  static ForkMark refused_at;
  static bool is_refused = false;
  if (is_refused && !refused_at.is_in_child()) return nullptr;
  is_refused = false;
  Trace* const other = current_trace.load(std::memory_order_acquire);
  if (other != known) return other;  // another thread was faster
  try {
    // Never destroyed: what static objects do at exit is traced, or at least does no harm.
    auto* const made =
        new Trace(TraceFile(*Environment::get().trace, process_event("process_name", process_name())), other);
    current_trace.store(made, std::memory_order_release);
    return made;
  } catch (const std::system_error& error) {
    log_warning(
        fmt::format("environment variable TUTTI_TRACE is {}, expected the path of a file that can be "
                    "written: {}; there is no trace",
                    json_text(*Environment::get().trace), error.what()));
  }
  is_refused = true;
  refused_at = ForkMark();
  return nullptr;
}

Trace::Trace(TraceFile file, Trace* parents) : file_(std::move(file)), parents_(parents) {
  static_cast<void>(std::atexit(close_at_exit));
}

void Trace::add_event(std::string_view phase, TrackId track, Microseconds time, std::string_view rest) {
  file_.add(
      fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"ts":{:.3f}{}}})", phase, getpid(), track, time, rest));
}

void Trace::name_track(TrackId track, std::string_view name) {
  if (!named_.insert(track).second) return;
  const auto add = [&](std::string_view what, std::string_view value) {
    file_.add(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", getpid(), track,
                          what, value));
  };
  add("thread_name", fmt::format("\"name\":{}", json_text(name)));
  // Viewers show ranks first, then threads, then streams.
  const int order = track >= first_stream_track ? 2 : track >= first_rank_track ? 0 : 1;
  add("thread_sort_index", fmt::format("\"sort_index\":{}", order));
}

Trace::TrackId Trace::thread_track() {
  const TrackId track = gettid();
  name_track(track, fmt::format("host thread {}", track));
  return track;
}

Trace::TrackId Trace::stream_track(Runtime& runtime, backend::StreamRef stream) {
  const auto [found, is_new] = streams_.try_emplace({stream.device, stream.handle});
  if (is_new) {
    found->second = first_stream_track + ++last_stream_;
    const bool is_default = runtime.backend().default_stream(stream.device) == stream;
    const int number = is_default ? 0 : ++streams_of_device_[stream.device];
    name_track(found->second, is_default ? fmt::format("device {}, default stream", stream.device)
                                         : fmt::format("device {}, stream {}", stream.device, number));
  }
  return found->second;
}

Trace::TrackId Trace::rank_track(const WatchedMember& member) {
  if (!std::exchange(has_called_as_member_, true) && member.rank_count > 1) name_by_rank(member);
  const TrackId track = first_rank_track + static_cast<TrackId>(member.team);
  name_track(track,
             fmt::format("rank {} of {}, communicator {}", member.rank, member.rank_count, member.team));
  return track;
}

void Trace::name_by_rank(const WatchedMember& member) {
  file_.name_by_rank(member.rank);
  file_.add(process_event("process_name",
                          fmt::format("rank {} of {}: {}", member.rank, member.rank_count, process_name())));
  file_.add(fmt::format(R"({{"ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}}}})",
                        getpid(), member.rank));
}

void Trace::mark(std::string_view message) {
  const std::lock_guard lock(mutex_);
  add_event("i", thread_track(), now(),
            fmt::format(R"(,"s":"t","cat":"program","name":{})", json_text(message)));
  file_.write();
}

void Trace::push(std::string_view message) {
  const std::lock_guard lock(mutex_);
  const TrackId track = thread_track();
  add_event("B", track, now(), fmt::format(R"(,"cat":"program","name":{})", json_text(message)));
  ++open_[track];
  file_.write();
}

void Trace::pop() {
  const std::lock_guard lock(mutex_);
  const TrackId track = thread_track();
  std::uint64_t& open = open_[track];
  if (open == 0) return;  // it was begun before the trace was
  --open;
  add_event("E", track, now(), "");
  file_.write();
}

void Trace::add(const Slice& slice, Microseconds start, const std::optional<WatchedMember>& member) {
  const std::lock_guard lock(mutex_);
  const std::string rest = fmt::format(R"(,"dur":{:.3f},"cat":"collective","name":"{}","args":{{{}}})",
                                       now() - start, slice.name, slice.arguments);
  add_event("X", thread_track(), start, rest);
  if (member) add_event("X", rank_track(*member), start, rest);
}

void Trace::add(Runtime& runtime, const std::vector<TimedSlice>& slices) {
  const std::lock_guard lock(mutex_);
  for (const auto& [stream, slice, start, duration] : slices) {
    add_event("X", stream_track(runtime, stream), start,
              fmt::format(R"(,"dur":{:.3f},"cat":"device","name":"{}","args":{{{}}})", duration, slice->name,
                          slice->arguments));
  }
  file_.write();
}

void Trace::write_last_of(StreamTimes& times, std::chrono::milliseconds patience) noexcept {
  try {
    Trace* const trace = get();
    if (trace == nullptr) return;
    trace->add(times.runtime(), times.collect_all(patience));
    const std::lock_guard lock(trace->mutex_);
    trace->left_out_ += times.left_out();
    // Streams of another machine may have the same handles.
    trace->streams_.clear();
  } catch (const std::exception& error) {
    log_warning(fmt::format("TUTTI_TRACE: times of devices are missing: {}", error.what()));
  }
}

TracedTimes::~TracedTimes() {
  constexpr std::chrono::milliseconds patience{1000};
  Trace::write_last_of(*this, patience);
}

void Trace::close_at_exit() noexcept {
  Trace* const trace = current_trace.load(std::memory_order_acquire);
  if (trace == nullptr || trace->fork_mark_.is_in_child() || trace->is_closed_.exchange(true)) return;
  if (Runtime* const runtime = Runtime::get_if_initialized())
    write_last_of(runtime->part<TracedTimes>(), patience_at_exit);
  try {
    trace->close();
  } catch (const std::exception& error) {
    log_warning(fmt::format("TUTTI_TRACE: the end of the trace is missing: {}", error.what()));
  }
}

void Trace::close() {
  const std::lock_guard lock(mutex_);
  for (auto& [track, open] : open_) {
    for (; open > 0; --open) add_event("E", track, now(), "");
  }
  if (left_out_ > 0) {
    const std::string label = fmt::format("{} calls on streams of devices have no times", left_out_);
    log_warning(fmt::format("TUTTI_TRACE: {}", label));
    file_.add(process_event("process_labels", label));
  }
  file_.finish();
}

TracedCall::TracedCall(Trace& trace, const WatchedCall& call)
    : trace_(trace),
      runtime_(*call.runtime),
      member_(call.member),
      exceptions_(std::uncaught_exceptions()),
      start_(now()) {
  const bool is_captured = std::ranges::any_of(call.streams, [&](backend::StreamRef stream) {
    return stream.device >= 0 && runtime_.backend().is_capturing(stream);
  });
  slice_ = std::make_shared<Slice>(Slice{call.name, arguments_of(call, is_captured)});
  if (is_captured || call.plan.transport.empty()) return;
  begun_.reserve(call.streams.size());
  for (const backend::StreamRef stream : call.streams) {
    const bool is_known =
        std::ranges::any_of(begun_, [&](const StreamTimes::Begun& begun) { return begun.stream == stream; });
    if (stream.device < 0 || is_known) continue;
    if (const auto begun = runtime_.part<TracedTimes>().begin(stream)) begun_.push_back(*begun);
  }
}

void TracedCall::note_stand_ins() {
  slice_->arguments += ",\"through_stand_ins\":true";
}

TracedCall::~TracedCall() {
  try {
    if (std::uncaught_exceptions() > exceptions_) slice_->arguments += ",\"failed\":true";
    auto& times = runtime_.part<TracedTimes>();
    for (const StreamTimes::Begun& begun : begun_) times.end(begun, slice_);
    trace_.add(*slice_, start_, member_);
    trace_.add(runtime_, times.collect());
  } catch (const std::exception& error) {
    log_warning(fmt::format("TUTTI_TRACE: a call is missing: {}", error.what()));
  }
}

}  // namespace tutti::watching
