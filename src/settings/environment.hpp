// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "settings/allocator_settings.hpp"
#include "tutti/collectives.hpp"
#include "tutti/stream_sanitizer_reports.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

enum class BackendChoice : std::uint8_t { automatic, cuda, host };
/// Chooses whether launches over many lanes are ordered by signals instead of events
/// (`transport/steps/signals.hpp`).
enum class SignalChoice : std::uint8_t { automatic, on, off };
/// Chooses whether collectives within one process use rounds (`transport/rounds/process_rounds.hpp`).
enum class RoundsChoice : std::uint8_t { automatic, on, off };
enum class LogLevel : std::uint8_t { off, warn, info };

/// Holds every environment variable that the library reads. A variable that is unset or empty leaves its
/// member as initialised here.
struct Environment {
  static constexpr std::size_t longest_host_id = 511;

  /// `TUTTI_BACKEND`: `auto` (GPUs if there are any, else virtual devices), `cuda` or `host`.
  BackendChoice backend = BackendChoice::automatic;
  /// `TUTTI_VIRTUAL_DEVICES`: number of virtual devices of a preset topology, 1 to 1024.
  std::optional<int> virtual_devices;
  /// `TUTTI_VIRTUAL_TOPOLOGY`: a preset, or the path of a JSON file (see `tutti/virtual_devices.hpp`).
  std::optional<std::string> virtual_topology;
  /// `TUTTI_VIRTUAL_MEMORY`: bytes of memory per virtual device; suffixes K, M and G are powers of 1024.
  std::optional<std::size_t> virtual_memory;
  /// `TUTTI_VIRTUAL_SEED`: seed of an adversarial interleaving of the virtual devices' streams.
  std::optional<std::uint64_t> virtual_seed;
  /// `TUTTI_TRANSPORT`: `auto`, or the one transport collectives use unless a call names another: `p2p`,
  /// `nccl` or `staged`.
  TransportKind transport = TransportKind::automatic;
  /// `TUTTI_NCCL_LIBRARY`: the path of NCCL's shared library, instead of `libnccl.so.2` where the loader
  /// finds it.
  std::optional<std::string> nccl_library;
  /// `TUTTI_HOST_ID`: identifies the host to a `Communicator`, instead of the machine's own identity: for
  /// containers that look like one host and are not, or the other way round, and for tests. Compared as a
  /// whole, 511 bytes at most.
  std::optional<std::string> host_id;
  /// `TUTTI_PATIENCE`: how many seconds calls of communicators wait for late ranks if their options do not
  /// say, 1 to 31536000.
  std::optional<std::chrono::seconds> patience;
  /// `TUTTI_SIGNALS`: `auto` (where they are faster), `on` (wherever they can be used) or `off`.
  SignalChoice signals = SignalChoice::automatic;
  /// `TUTTI_ROUNDS`: whether small collectives of one process go by rounds among its devices: `auto` (up to
  /// four GPUs that are joined by NVLink), `on` (wherever they can) or `off`.
  RoundsChoice rounds = RoundsChoice::automatic;
  /// `TUTTI_DIRECT`, `1` or `0`: whether kernels of communicators access other members' operands in place,
  /// instead of through windows only. The same on all ranks.
  bool direct = true;
  /// `TUTTI_OPEN_FOREIGN_MEMORY`, `1` or `0`: whether communicators whose options do not say let other ranks
  /// open memory of the program's own that is not registered.
  bool opens_foreign_memory = false;
  /// `TUTTI_LAUNCH_THREADS`: maximum number of threads that help with bursts of launches, 0 to 15;
  /// unset: as the number of processors suggests, and none on virtual devices.
  std::optional<int> launch_threads;
  /// `TUTTI_ALLOC_CONF`: settings of the devices' caching allocators (see `tutti/memory.hpp`).
  AllocatorSettings allocators;
  /// `TUTTI_LAUNCH_BLOCKING` or `CUDA_LAUNCH_BLOCKING`, `1` or `0`: whether calls that queue an operation
  /// return only when it is done, and report its own failure. CUDA's variable counts as 1 if it is a number
  /// other than 0 and `TUTTI_LAUNCH_BLOCKING` is not 0; CUDA itself interprets it as it likes.
  bool launch_blocking = false;
  /// `TUTTI_JIT_CXX`: the C++ compiler that compiles kernels of `tutti/jiterator.hpp` for virtual devices: a
  /// path or a name that `PATH` finds, instead of the first of `c++`, `g++` and `clang++`.
  std::optional<std::string> jit_compiler;
  /// `TUTTI_STREAM_SANITIZER`: `0`, `1` or `warn`, `error`, `abort` (see `tutti/stream_sanitizer.hpp`).
  stream_sanitizer::Mode stream_sanitizer = stream_sanitizer::Mode::off;
  /// `TUTTI_LOG`: level of the log on standard error: `off`, `warn` (fallbacks and vetoes) or `info` (also
  /// choices made).
  LogLevel log = LogLevel::warn;
  /// `TUTTI_FLIGHT_RECORD`: path of the files to which flight records of communicators are appended, instead
  /// of being logged; a dot and the writing rank's number are added to the path.
  std::optional<std::string> flight_record;

  /// `TUTTI_TRACE`: path of a trace file in the JSON format of Chrome's trace viewers. A rank inserts a dot
  /// and its number before the path's last suffix.
  std::optional<std::string> trace;

  /// Returns the process's environment as it was at the first call. Throws Error(invalid_argument), naming
  /// the variable, its value and what was expected, as long as a variable has an invalid value.
  [[nodiscard]] static const Environment& get();
  /// Reads the process's environment anew. Throws as `get` does.
  [[nodiscard]] static Environment read();
  /// Parses variables from any source: `lookup` returns a variable's value, or nullptr if it is unset. Throws
  /// as `get` does.
  [[nodiscard]] static Environment parse(const std::function<const char*(const char*)>& lookup);
};

/// Says where the choice of a transport comes from.
enum class TransportSource : std::uint8_t { options, environment };
/// Returns the suffix that names the source in a message, after the transport's name. It is empty if the
/// caller made the choice.
[[nodiscard]] constexpr std::string_view in_words(TransportSource source) noexcept {
  return source == TransportSource::environment ? " (by TUTTI_TRANSPORT)" : "";
}

/// Describes a requested transport for messages: "options.transport is p2p", or "transport is p2p (by
/// TUTTI_TRANSPORT)".
[[nodiscard]] std::string wish_in_words(TransportKind transport, TransportSource source);

/// Parses a number of bytes: decimal digits, optionally followed by K, M or G. Returns nothing if `text` is
/// anything else, or the number is too large.
[[nodiscard]] std::optional<std::size_t> parse_bytes(std::string_view text) noexcept;

}  // namespace tutti
