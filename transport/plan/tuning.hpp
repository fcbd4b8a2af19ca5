// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "transport/plan/problem.hpp"
#include "tutti/collective.hpp"
#include "tutti/device.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

/// Thresholds at which one algorithm overtakes another, in bytes of payload.
namespace tutti::transport {

inline constexpr std::uint64_t kib = 1024;
inline constexpr std::uint64_t mib = 1024 * kib;

/// The largest payload that one kernel on the root moves by itself: it needs one launch and the least
/// ordering. Splitting a broadcast over the other devices costs an eager launch about 60 µs of host time for
/// ordering and launches; a recorded graph pays almost nothing for it.
[[nodiscard]] constexpr std::uint64_t one_kernel_limit(LaunchMode mode) noexcept {
  return mode == LaunchMode::eager ? 1 * mib : 256 * kib;
}

/// Returns the bytes of a tensor from which NCCL's ring and tree kernels carry a broadcast, or a sum that
/// need not be bitwise, faster than the library's; nothing if they never do. Two devices are a case of their
/// own because nothing is relayed between them: measured on 2x H100, the library's kernels take 1 to 17 %
/// less for single broadcasts of 4 MiB to 512 MiB, as much or less for lists but for one of 64 MiB in place
/// (8 % more), and up to 12 % more for sums. Recorded, each launch of NCCL's waits for the one before on all
/// devices, which adds some 30 µs on two (64 MiB: 224 µs, the library's 184) and 100 µs on four (64 MiB: 311
/// µs, and 207 eager); the limit of recorded launches on more than two devices is computed from bytes and
/// rates, not measured.
[[nodiscard]] constexpr std::optional<std::uint64_t> nccl_from(LaunchMode mode, bool is_sum,
                                                               std::size_t devices) noexcept {
  const bool is_recorded = mode == LaunchMode::persistent;
  if (devices == 2 && (is_recorded || !is_sum)) return std::nullopt;
  return is_recorded ? 512 * mib : 2 * mib;
}
/// The largest result that is made on the root's stream, which uses it first, where one kernel moves
/// everything.
inline constexpr std::uint64_t largest_small_result = 1 * mib;
/// The copies that copy engines could do instead of a kernel.
struct Copies {
  LaunchMode mode;
  std::size_t senders;      ///< lanes that send
  std::size_t count;        ///< of all copies
  std::size_t between_two;  ///< most from one lane to another device, one after another
};
/// Returns the bytes of all copies from which copy engines are faster than a kernel: they reach a higher
/// rate, but start slower, which counts most where one device sends all copies, one after another. Recorded,
/// copies of several senders are a branch of the graph on each, which costs more than small payloads gain by
/// the rate. Measured on two H100 that NVLink joins, recorded: a gather of 4 MiB takes 22.7 µs by copies,
/// 10.7 by a kernel, and one of 64 MiB 99 by copies; 16 tensors of 4 MiB from one device take 208 by copies,
/// 184 by a kernel. Inferred, not measured: a kernel takes as long as copies for a gather of 64 MiB, and all
/// values for more devices or without NVLink.
[[nodiscard]] constexpr std::uint64_t copy_engines_from(const Copies& copies) noexcept {
  if (copies.senders == 1) return copies.count * (copies.between_two > 1 ? 16 : 4) * mib;
  const std::uint64_t for_all = copies.count * 128 * kib;
  return copies.mode == LaunchMode::persistent && for_all < 64 * mib ? 64 * mib : for_all;
}
/// The least bytes of a row for copy engines, which are slow with narrow rows.
inline constexpr std::uint64_t copy_engine_row_bytes = 2048;
/// Cuts of a split are multiples of this, so that every part stays aligned for wide accesses.
inline constexpr std::uint64_t split_alignment = 512;
/// Members swap blocks of multiples of so many bytes: then halves begin at memory transactions if blocks do.
inline constexpr std::uint64_t swap_alignment = 256;
/// Staging through pinned memory is cut into chunks, `staging_slots` of them in flight per source.
inline constexpr std::uint64_t staging_slots = 4;
inline constexpr std::uint64_t largest_staging_chunk = 2 * mib;
inline constexpr std::uint64_t smallest_staging_chunk = 16 * kib;

/// The least orders between lanes for which signals with helping threads cost the host less than events, of
/// which each order takes about 1.5 µs. With fewer, the devices set the pace, not the host, and they pass an
/// event on sooner. Measured on 2x H200, with up to eight streams in contexts of their own.
inline constexpr std::size_t signals_from_orders = 7;

/// Parameters of messages between two members: the number of lanes that share a large one, the most bytes of
/// it in a slot, the size above which it is written directly to the receiver's memory, for which the sender
/// first waits for the receiver, and the number of further lanes that share a small message, which goes in
/// lines.
struct LinkTuning {
  std::uint32_t lanes;
  std::uint64_t slot_bytes;
  std::uint64_t direct_from;
  std::uint32_t line_lanes;
};

/// Returns the parameters for the backend. On GPUs a lane is a block, which moves little more than 10 GB/s,
/// or, for lines, a warp; on virtual devices one thread does all.
[[nodiscard]] constexpr LinkTuning link_tuning_of(BackendKind backend) noexcept {
  if (backend == BackendKind::cuda)
    return {.lanes = 32, .slot_bytes = 32 << 10, .direct_from = 256 << 10, .line_lanes = 256};
  return {.lanes = 1, .slot_bytes = 256 << 10, .direct_from = 128 << 10, .line_lanes = 0};
}

/// The largest message of a batch among all members of one process that still makes it a round: a round's
/// kernels wait for one another on the devices, while copies are ordered by events, which cost the host
/// several microseconds. Measured on 2x H200: 1, 4 and 16 MiB take 43, 28 and 15 % less than NCCL's. That
/// copy engines, which hold no multiprocessors, take hardly longer above that size is inferred from their
/// time for 32 MiB.
inline constexpr std::uint64_t inside_rounds_to = 16 * mib;

/// The largest payload that fits into the inboxes of one process's rounds; larger ones are read in place.
inline constexpr std::uint64_t process_inbox_payload = 1 * mib;
/// Returns the largest payload that a single process moves by rounds among its devices: kernels that wait for
/// one another there, where orders by events cost the host several microseconds. Between two devices, direct
/// rounds continue where low latency ends, until copy engines, which reach a higher rate, or NCCL overtake
/// them. Measured on 2x H100: of 32 MiB a broadcast takes 1 to 8 % less than by copy engines, of 64 MiB up to
/// 2 % more; of 64 MiB, scatter, gather and lists that are broadcast take 2 to 13 % less; of 16 MiB, lists
/// that are added 13 % less. On 2x H200 single sums take 10 % less than NCCL's of 16 MiB, and 5 % of 64 MiB,
/// as do lists of 64 MiB. The values for three and four devices are inferred.
[[nodiscard]] constexpr std::uint64_t process_rounds_to(Collective collective, std::size_t devices,
                                                        bool is_list) noexcept {
  if (devices != 2) return process_inbox_payload;
  return collective == Collective::broadcast && !is_list ? 32 * mib : 64 * mib;
}
/// The most devices for which rounds of a single process are used: each costs the host a launch, and among
/// more than four, signals with helping threads should cost it less. Measured with two only.
inline constexpr std::size_t process_rounds_devices = 4;
/// The bytes of slots in each device's window for those rounds. With its inboxes a window takes 12 MiB on
/// GPUs that are joined by NVLink, and 2.6 MiB on virtual devices.
inline constexpr std::uint64_t process_window_bytes = 2 * mib;

/// Thresholds between processes. Measured on 2x, 4x and 8x H200 with NVSwitch, and on virtual devices.
struct RoundTuning {
  /// The bytes of the pieces that a message is cut into, so that one is read while the next is put.
  std::uint64_t message_bytes;
  /// The size of an all_reduce up to which every member makes all sums by itself; above, each makes its
  /// share.
  std::uint64_t shared_sums_from;
  /// The size from which low-latency rounds share the sums and relay the shares, among three or more members.
  /// It is compared with what a member would send to all others, as that is what sharing saves.
  std::uint64_t sums_relayed_from_sent;
  /// The size from which a sum for a root is shared and relayed, compared with what the root would receive.
  std::uint64_t root_sums_relayed_from;
  /// The size from which each member but the root relays a share of a broadcast, compared with what the root
  /// would send.
  std::uint64_t copies_relayed_from_sent;
  /// The size above which messages are read in place, if possible: that saves a copy, but the member that
  /// exposes the memory must wait for its readers.
  std::uint64_t direct_from;
  /// The size above which messages of an exchange are written to their destination instead: if both sides
  /// read, the data shares the link with the requests.
  std::uint64_t written_from;
};

/// Returns the thresholds for the backend. On GPUs every round is a launch, which costs as much as moving a
/// megabyte; on virtual devices it is two tasks, and there may be no more than two processors.
[[nodiscard]] constexpr RoundTuning round_tuning_of(BackendKind backend) noexcept {
  return backend == BackendKind::host ? RoundTuning{.message_bytes = 256 * kib,
                                                    .shared_sums_from = 64 * kib,
                                                    .sums_relayed_from_sent = 4 * kib,
                                                    .root_sums_relayed_from = 4 * kib,
                                                    .copies_relayed_from_sent = 4 * kib,
                                                    .direct_from = 64 * kib,
                                                    .written_from = 256 * kib}
                                      : RoundTuning{.message_bytes = 1024 * kib,
                                                    .shared_sums_from = 512 * kib,
                                                    .sums_relayed_from_sent = 640 * kib,
                                                    .root_sums_relayed_from = 2048 * kib,
                                                    .copies_relayed_from_sent = 1024 * kib,
                                                    .direct_from = 512 * kib,
                                                    .written_from = 4 * mib};
}

/// Returns the most bytes that every member may send and receive in low-latency rounds, where there are
/// inboxes: in them nobody waits for more than the bytes. In narrow lines a byte takes two, and on virtual
/// devices, which have no lines, one more copy; in wide lines the accesses, all of 16 bytes, become slower
/// than those of direct rounds, soonest where members both send and receive. No collective has a higher limit
/// than all_reduce.
[[nodiscard]] constexpr std::uint64_t low_latency_to(Collective collective, backend::TeamLines lines,
                                                     BackendKind backend) noexcept {
  if (backend == BackendKind::host) return 4 * kib;
  if (lines == backend::TeamLines::narrow) return 512 * kib;
  switch (collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return 3072 * kib;
    case Collective::reduce:
    case Collective::all_reduce:
    case Collective::gather:
      return 4096 * kib;
    default:
      return 1536 * kib;
  }
}

/// Returns the bytes that a member sends or receives from which direct rounds are faster than low-latency
/// ones between two members. Measured on 2x H200, replayed.
[[nodiscard]] constexpr std::uint64_t direct_overtakes_from(Collective collective) noexcept {
  switch (collective) {
    case Collective::scatter:
    case Collective::all_reduce:
      return 1792 * kib;
    case Collective::reduce_scatter:
      return 1280 * kib;
    default:
      return ~std::uint64_t{0};
  }
}

/// Payloads that rounds carry although NCCL could: up to a size, and in a range if members read in place.
/// NCCL carries the rest.
struct RoundZones {
  std::uint64_t rounds_to;
  std::uint64_t direct_from;
  std::uint64_t direct_to;
};
/// Returns the zones for a collective. The payload is what a root or each member has, or the whole that is
/// gathered or scattered. NCCL takes lists of tensors one by one, which costs it some microseconds.
[[nodiscard]] constexpr RoundZones round_zones_of(Collective collective, std::size_t members,
                                                  bool is_list) noexcept {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  constexpr RoundZones always{.rounds_to = all, .direct_from = 0, .direct_to = all};
  const bool is_pair = members == 2;
  const bool are_more_than_four = members > 4;
  const auto up_to = [](std::uint64_t bytes) {
    return RoundZones{.rounds_to = bytes, .direct_from = all, .direct_to = all};
  };
  switch (collective) {
    case Collective::broadcast:
      // The root's link carries a copy for every member.
      return is_pair ? always : up_to(is_list ? 768 * kib : 256 * kib);
    case Collective::reduce:
      if (is_pair) return {.rounds_to = is_list ? 4 * mib : 512 * kib, .direct_from = 0, .direct_to = all};
      return up_to(is_list ? 768 * kib : 256 * kib);
    case Collective::all_reduce:
      // Shares pay where one message for every member would be too much to send.
      if (is_pair) return {.rounds_to = 512 * kib, .direct_from = 1536 * kib, .direct_to = all};
      if (is_list) return {.rounds_to = 512 * kib, .direct_from = 1536 * kib, .direct_to = 48 * mib};
      return up_to(256 * kib);
    case Collective::scatter:
      if (is_pair) return {.rounds_to = 2 * mib, .direct_from = 0, .direct_to = all};
      return {.rounds_to = 2 * mib, .direct_from = (are_more_than_four ? 3 : 12) * mib, .direct_to = all};
    case Collective::gather:
      if (is_pair) return {.rounds_to = 2 * mib, .direct_from = 0, .direct_to = all};
      return up_to(1 * mib);
    case Collective::reduce_scatter:
      return are_more_than_four ? up_to(32 * mib) : always;
    default:
      return always;
  }
}

/// Returns the payload up to which low-latency rounds of wide lines, within their limits, are faster than
/// NCCL.
[[nodiscard]] constexpr std::uint64_t wide_lines_beat_nccl_to(Collective collective, std::size_t members,
                                                              bool is_list) noexcept {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  if (members <= 2) return all;
  switch (collective) {
    case Collective::broadcast:
    case Collective::reduce:
      // Larger ones are relayed. Measured among four; the values for more are chosen to hold there too.
      if (members > 4) return is_list ? 2048 * kib : 1536 * kib;
      return is_list ? 4096 * kib : 3072 * kib;
    case Collective::all_reduce:
      return is_list ? all : 4096 * kib;
    default:
      return all;
  }
}

/// The least average size of tensors in lists for NCCL, which takes one operation per tensor.
inline constexpr std::uint64_t smallest_nccl_tensor = 64 << 10;

/// The most bytes of tensors that are gathered on all members, each of which combines them whole, in a
/// reduction between processes by an operation that is compiled at run time. It bounds the memory for
/// operands, of as many bytes from every member; it has not been measured.
inline constexpr std::uint64_t compiled_gathers_to = 64 * kib;
/// The most bytes of larger tensors, which members share out evenly, that are reduced together; a single
/// tensor may be larger. It bounds the memory for operands in the same way. Between two virtual devices, 100
/// tensors of 256 KiB take 16 to 23 ms together, and 115 to 190 one by one.
inline constexpr std::uint64_t compiled_batches_to = 16 * mib;
/// The alignment of cuts of a single tensor into shares: 16 bytes, the widest accesses. More tensors have
/// equal shares than with `split_alignment`, and equal shares travel without sizes for each pair of members.
inline constexpr std::uint64_t compiled_split_alignment = 16;

}  // namespace tutti::transport
