// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tutti::perf {

/// The command line as typed, with what holds where nothing was: only words, no meaning yet.
struct TypedOptions {
  std::vector<std::string> words;  ///< OP; topo; explain OP SIZE; tensors LIST
  /// The options that were typed, each by its letter, or its name if it has none.
  std::vector<std::string> given;
  std::string begin = "8";
  std::string end;
  std::string increment;
  std::string factor;
  std::string tensors;
  std::string dtype = "float32";
  std::string reduction = "sum";
  std::string root = "0";
  std::string devices_used;
  std::string dim;
  std::string transport = "auto";
  std::string multiprocessors;
  std::string determinism = "fastest";
  std::string results = "out";
  std::string check = "1";
  std::string backend;
  std::string virtual_devices;
  std::string topology;
  std::string iterations;
  std::string warmup;
  std::string repetitions;
  std::string graph_launches = "0";
  std::string peer = "none";
  std::string local_register;
  std::string cycles = "1";
  std::string row_timeout = "0";
  std::string calls_of_a_launch = "1";
  std::string memory_report = "0";
  std::string first_element = "0";
  std::string groups = "1";
  std::string per_iteration = "0";
  std::string skipped = "0";
  std::string over_ranks = "max";
  std::string timestamps = "0";
  std::string json_file;
  std::string baseline;
  std::string tolerance;
  bool wants_manual = false;
  bool latency = false;
  bool persistent = false;
};

/// Sorts the command line into its options; nothing if help, the version or the manual page was asked for,
/// which then is in `help`. Of an option that is given several times the
/// last counts. Throws UsageError for an option that does not exist or lacks its value: the message names the
/// nearest one, or what does what nccl-tests has the option for.
[[nodiscard]] std::optional<TypedOptions> split_command_line(int argc, const char* const* argv,
                                                             std::string& help);

}  // namespace tutti::perf
