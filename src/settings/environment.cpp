// SPDX-License-Identifier: Apache-2.0
#include "settings/environment.hpp"

#include "base/quoted_text.hpp"
#include "tutti/error.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::size_t longest_shown = 200;  ///< of a variable, in messages

/// Parses the whole of `text` as a decimal number.
template <class Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

template <class Value>
struct Name {
  std::string_view text;
  Value value;
};
template <class Value>
Name(std::string_view, Value) -> Name<Value>;  // clang 16 does not deduce an aggregate's arguments by itself

template <class Value, std::size_t count>
std::optional<Value> parse_name(std::string_view text, const std::array<Name<Value>, count>& names) noexcept {
  for (const Name<Value>& name : names) {
    if (name.text == text) return name.value;
  }
  return std::nullopt;
}

constexpr std::array backend_names{Name{"auto", BackendChoice::automatic}, Name{"cuda", BackendChoice::cuda},
                                   Name{"host", BackendChoice::host}};
constexpr std::array transport_names{Name{"auto", TransportKind::automatic}, Name{"p2p", TransportKind::p2p},
                                     Name{"nccl", TransportKind::nccl},
                                     Name{"staged", TransportKind::staged}};
constexpr std::array signal_names{Name{"auto", SignalChoice::automatic}, Name{"on", SignalChoice::on},
                                  Name{"off", SignalChoice::off}};
constexpr std::array rounds_names{Name{"auto", RoundsChoice::automatic}, Name{"on", RoundsChoice::on},
                                  Name{"off", RoundsChoice::off}};
constexpr std::array log_names{Name{"off", LogLevel::off}, Name{"warn", LogLevel::warn},
                               Name{"info", LogLevel::info}};

constexpr std::array sanitizer_names{
    Name{"0", stream_sanitizer::Mode::off}, Name{"1", stream_sanitizer::Mode::warn},
    Name{"warn", stream_sanitizer::Mode::warn}, Name{"error", stream_sanitizer::Mode::error},
    Name{"abort", stream_sanitizer::Mode::abort}};

std::optional<int> parse_device_count(std::string_view text) noexcept {
  const auto count = parse_number<int>(text);
  return count && *count >= 1 && *count <= 1024 ? count : std::nullopt;
}

std::optional<int> parse_thread_count(std::string_view text) noexcept {
  const auto count = parse_number<int>(text);
  return count && *count >= 0 && *count <= 15 ? count : std::nullopt;
}

std::optional<std::chrono::seconds> parse_patience(std::string_view text) noexcept {
  const auto seconds = parse_number<std::int64_t>(text);
  if (!seconds || *seconds < 1 || *seconds > 31'536'000) return std::nullopt;
  return std::chrono::seconds(*seconds);
}

std::optional<bool> parse_switch(std::string_view text) noexcept {
  return text == "0" || text == "1" ? std::optional(text == "1") : std::nullopt;
}

std::optional<std::size_t> parse_memory(std::string_view text) noexcept {
  const auto bytes = parse_bytes(text);
  return bytes.value_or(0) == 0 ? std::nullopt : bytes;
}

}  // namespace

std::optional<std::size_t> parse_bytes(std::string_view text) noexcept {
  int shift = 0;
  if (text.ends_with('K')) shift = 10;
  if (text.ends_with('M')) shift = 20;
  if (text.ends_with('G')) shift = 30;
  if (shift != 0) text.remove_suffix(1);
  const auto number = parse_number<std::size_t>(text);
  if (!number || *number > std::numeric_limits<std::size_t>::max() >> shift) return std::nullopt;
  return *number << shift;
}

Environment Environment::parse(const std::function<const char*(const char*)>& lookup) {
  // Assigns what `parse_value` makes of the variable; leaves `member` alone if the variable is unset or
  // empty.
  const auto assign = [&](auto& member, const char* variable, auto parse_value, std::string_view expected) {
    const char* text = lookup(variable);
    if (text == nullptr || *text == '\0') return;
    const auto value = parse_value(std::string_view(text));
    if (!value) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("environment variable {} is \"{}\", expected {}", variable,
                              quoted_text(text, longest_shown), expected));
    }
    member = *value;
  };
  const auto one_of = [](const auto& names) {
    return [&names](std::string_view text) { return parse_name(text, names); };
  };

  Environment result;
  assign(result.backend, "TUTTI_BACKEND", one_of(backend_names), "auto, cuda or host");
  assign(result.virtual_devices, "TUTTI_VIRTUAL_DEVICES", parse_device_count, "a number from 1 to 1024");
  assign(
      result.virtual_topology, "TUTTI_VIRTUAL_TOPOLOGY",
      [](std::string_view text) { return std::optional<std::string>(text); }, "a preset or a path");
  assign(result.virtual_memory, "TUTTI_VIRTUAL_MEMORY", parse_memory,
         "a number of bytes such as 268435456 or 256M, more than 0");
  assign(result.virtual_seed, "TUTTI_VIRTUAL_SEED", parse_number<std::uint64_t>,
         "a number from 0 to 2^64 - 1");
  assign(result.transport, "TUTTI_TRANSPORT", one_of(transport_names), "auto, p2p, nccl or staged");
  assign(
      result.nccl_library, "TUTTI_NCCL_LIBRARY",
      [](std::string_view text) { return std::optional<std::string>(text); }, "a path");
  assign(
      result.host_id, "TUTTI_HOST_ID",
      [](std::string_view text) {
        return text.size() > Environment::longest_host_id ? std::nullopt : std::optional<std::string>(text);
      },
      fmt::format("a name of at most {} bytes", Environment::longest_host_id));
  assign(result.patience, "TUTTI_PATIENCE", parse_patience, "a number of seconds from 1 to 31536000");
  assign(result.signals, "TUTTI_SIGNALS", one_of(signal_names), "auto, on or off");
  assign(result.rounds, "TUTTI_ROUNDS", one_of(rounds_names), "auto, on or off");
  assign(result.direct, "TUTTI_DIRECT", parse_switch, "0 or 1");
  assign(result.opens_foreign_memory, "TUTTI_OPEN_FOREIGN_MEMORY", parse_switch, "0 or 1");
  assign(result.launch_threads, "TUTTI_LAUNCH_THREADS", parse_thread_count, "a number from 0 to 15");
  if (const char* text = lookup("TUTTI_ALLOC_CONF"); text != nullptr && *text != '\0') {
    const auto parsed = parse_allocator_settings(text);
    if (const auto* const expected = std::get_if<std::string>(&parsed)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("environment variable TUTTI_ALLOC_CONF is \"{}\", expected {}",
                              quoted_text(text, longest_shown), *expected));
    }
    result.allocators = std::get<AllocatorSettings>(parsed);
  }
  if (const char* const cuda = lookup("CUDA_LAUNCH_BLOCKING"))
    result.launch_blocking = parse_number<long>(cuda).value_or(0) != 0;
  assign(result.launch_blocking, "TUTTI_LAUNCH_BLOCKING", parse_switch, "0 or 1");
  assign(
      result.jit_compiler, "TUTTI_JIT_CXX",
      [](std::string_view text) { return std::optional<std::string>(text); }, "a compiler");
  assign(result.stream_sanitizer, "TUTTI_STREAM_SANITIZER", one_of(sanitizer_names),
         "0, 1, warn, error or abort");
  assign(result.log, "TUTTI_LOG", one_of(log_names), "off, warn or info");
  assign(
      result.flight_record, "TUTTI_FLIGHT_RECORD",
      [](std::string_view text) { return std::optional<std::string>(text); }, "a path");
  assign(
      result.trace, "TUTTI_TRACE", [](std::string_view text) { return std::optional<std::string>(text); },
      "a path");
  return result;
}

std::string wish_in_words(TransportKind transport, TransportSource source) {
  const std::string_view prefix = source == TransportSource::options ? "options." : "";
  return fmt::format("{}transport is {}{}", prefix, name_of(transport), in_words(source));
}

Environment Environment::read() {
  return parse([](const char* variable) -> const char* { return std::getenv(variable); });
}

const Environment& Environment::get() {
  static const Environment environment = read();
  return environment;
}

}  // namespace tutti
