#pragma once

#include "options.hpp"
#include "tutti/stream.hpp"
#include "tutti/topology.hpp"

#include <string>
#include <vector>

namespace tutti::perf {

/// The devices of a run: selects the backend the options ask for, tests the peers, and gives the calling
/// thread a pooled stream on each device, so that nothing runs on the legacy default stream.
class Session {
 public:
  /// Throws UsageError if the options do not fit the devices there are.
  explicit Session(const Options& options);

  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  /// The devices that take part are 0 to device_count() - 1.
  [[nodiscard]] int device_count() const noexcept { return static_cast<int>(streams_.size()); }
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept { return streams_; }
  /// Blocks until all work on these streams is done.
  void synchronize() const;
  /// How many sets of buffers to rotate over so that one operation does not find its data in the caches
  /// another one left there, as far as memory allows.
  [[nodiscard]] int buffer_sets(std::size_t payload_bytes) const;

 private:
  Topology topology_;
  std::vector<Stream> streams_;
  std::size_t free_bytes_ = 0;  ///< on the device with least
};

}  // namespace tutti::perf
