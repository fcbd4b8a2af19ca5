// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "settings/allocator_settings.hpp"
#include "tutti/collectives.hpp"
#include "tutti/stream_sanitizer.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

enum class BackendChoice : std::uint8_t { automatic, cuda, host };
/// Whether launches order many lanes by signals instead of events (`transport/steps/signals.hpp`).
enum class SignalChoice : std::uint8_t { automatic, on, off };
/// Whether what one process does alone goes by rounds (`transport/rounds/process_rounds.hpp`).
enum class RoundsChoice : std::uint8_t { automatic, on, off };
enum class LogLevel : std::uint8_t { off, warn, info };

/// Every environment variable the library reads. An unset or empty variable leaves its member as initialised
/// here.
struct Environment {
  static constexpr std::size_t longest_host_id = 511;

  /// `TUTTI_BACKEND`: `auto` (GPUs if there are any, else virtual devices), `cuda` or `host`.
  BackendChoice backend = BackendChoice::automatic;
  /// `TUTTI_VIRTUAL_DEVICES`: how many virtual devices a preset topology has, 1 to 1024.
  std::optional<int> virtual_devices;
  /// `TUTTI_VIRTUAL_TOPOLOGY`: a preset, or the path of a JSON file (see `tutti/virtual_devices.hpp`).
  std::optional<std::string> virtual_topology;
  /// `TUTTI_VIRTUAL_MEMORY`: bytes of memory per virtual device; suffixes K, M and G are powers of 1024.
  std::optional<std::size_t> virtual_memory;
  /// `TUTTI_VIRTUAL_SEED`: interleave the virtual devices' streams adversarially, drawn from this number.
  std::optional<std::uint64_t> virtual_seed;
  /// `TUTTI_TRANSPORT`: `auto`, or the one transport collectives use unless a call names another: `p2p`,
  /// `nccl` or `staged`.
  TransportKind transport = TransportKind::automatic;
  /// `TUTTI_NCCL_LIBRARY`: the path of NCCL's shared library, instead of `libnccl.so.2` where the loader
  /// finds it.
  std::optional<std::string> nccl_library;
  /// `TUTTI_HOST_ID`: what tells hosts apart for a `Communicator`, instead of the machine's own identity. For
  /// containers that look like one host and are not, or the other way round; and for tests. Compared as a
  /// whole, 511 bytes at most.
  std::optional<std::string> host_id;
  /// `TUTTI_PATIENCE`: how long calls of communicators whose options do not say wait for ranks that are late,
  /// in seconds, 1 to 31536000.
  std::optional<std::chrono::seconds> patience;
  /// `TUTTI_SIGNALS`: `auto` (where they are faster), `on` (wherever they can be used) or `off`.
  SignalChoice signals = SignalChoice::automatic;
  /// `TUTTI_ROUNDS`: whether small collectives of one process go by rounds among its devices: `auto` (up to
  /// four GPUs that are joined by NVLink), `on` (wherever they can) or `off`.
  RoundsChoice rounds = RoundsChoice::automatic;
  /// `TUTTI_DIRECT`, `1` or `0`: whether kernels of communicators read and write other members' operands
  /// where these lie, or in windows alone. The same on all ranks.
  bool direct = true;
  /// `TUTTI_LAUNCH_THREADS`: how many threads at most help with launches that use signals, 0 to 15; unset: as
  /// the number of processors suggests.
  std::optional<int> launch_threads;
  /// `TUTTI_ALLOC_CONF`: how the caching allocators of devices work (see `tutti/memory.hpp`).
  AllocatorSettings allocators;
  /// `TUTTI_LAUNCH_BLOCKING` or `CUDA_LAUNCH_BLOCKING`, `1` or `0`: whether calls that queue an operation
  /// return only when it is done, and report its own failure. Of CUDA's variable, CUDA itself reads what it
  /// likes; here it means yes if it is a number other than 0 and the other one does not say no.
  bool launch_blocking = false;
  /// `TUTTI_JIT_CXX`: the C++ compiler for what `tutti/jiterator.hpp` compiles for virtual devices, a path or
  /// a name that `PATH` finds, instead of the first of `c++`, `g++` and `clang++`.
  std::optional<std::string> jit_compiler;
  /// `TUTTI_STREAM_SANITIZER`: `0`, `1` or `warn`, `error`, `abort` (see `tutti/stream_sanitizer.hpp`).
  stream_sanitizer::Mode stream_sanitizer = stream_sanitizer::Mode::off;
  /// `TUTTI_LOG`: what goes to standard error: `off`, `warn` (fallbacks and vetoes), `info` (also choices
  /// made).
  LogLevel log = LogLevel::warn;
  /// `TUTTI_FLIGHT_RECORD`: the path of files to which flight records of communicators are appended, instead
  /// of being written to the log; a dot and the number of the rank that writes it come behind.
  std::optional<std::string> flight_record;

  /// `TUTTI_TRACE`: the path of a file that a trace is written to, in JSON as viewers of Chrome's traces read
  /// it. Of ranks, a dot and the rank come before the path's last suffix.
  std::optional<std::string> trace;

  /// The process's environment as it was at the first call. Throws Error(invalid_argument), naming the
  /// variable, its value and what was expected, while a variable holds anything else.
  [[nodiscard]] static const Environment& get();
  /// The same, read anew at every call.
  [[nodiscard]] static Environment read();
  /// The same from any source: `lookup` returns a variable's value, nullptr if unset.
  [[nodiscard]] static Environment parse(const std::function<const char*(const char*)>& lookup);
};

/// Who has decided for a transport.
enum class TransportSource : std::uint8_t { options, environment };
/// For messages, after the transport's name: what the caller cannot know from the call.
[[nodiscard]] constexpr std::string_view in_words(TransportSource source) noexcept {
  return source == TransportSource::environment ? " (by TUTTI_TRANSPORT)" : "";
}

/// For messages: "options.transport is p2p", or "transport is p2p (by TUTTI_TRANSPORT)".
[[nodiscard]] std::string wish_in_words(TransportKind transport, TransportSource source);

/// A number of bytes: decimal digits and optionally K, M or G. Nothing if `text` is anything else, or too
/// large.
[[nodiscard]] std::optional<std::size_t> parse_bytes(std::string_view text) noexcept;

}  // namespace tutti
