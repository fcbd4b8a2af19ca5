// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"
#include "backend/team_record.hpp"
#include "os/shared_flag.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

/// Defines work that devices of several processes do together.
///
/// Every member of a team, a device of some process, has a *window*: memory that all members can read and
/// write, with flags that the others set and a ring of slots that the member alone fills. Work goes in
/// *rounds*, numbered alike by all members. In a round a member
///
///  1. puts bytes into its next slot, as soon as all have finished the round that used the slot before,
///  2. signals those who will read them,
///  3. waits for those whose slots it reads itself,
///  4. copies or adds what is there and in its own memory,
///  5. publishes to all how far it has come; after a low-latency round, its next part may do so as it begins.
///
/// In a *direct* round bytes are read in place. Instead of steps 1 and 2, a member then *exposes* addresses
/// of its own memory, as the others know it: it writes them to its readers' slots of the round, once all have
/// finished the round that used the slots before. (The first two may come in lines, which name their round:
/// then no signal is needed.) The readers may also write to that memory: what they add, or what they would
/// otherwise read to copy. At the end a member waits until all its readers have finished, so that what comes
/// next on its stream may read and write there.
///
/// Small messages arrive sooner in a *low-latency* round: a member writes them into its readers' *inboxes*, a
/// second ring in each window, in lines, which name their round. Readers poll the lines themselves, so no
/// signal is needed and nothing has to be ordered before step 5. (The idea of NCCL's protocols LL, whose
/// lines are half as wide as narrow ones, and LL128.) Backends may write the bytes as they are, and signal
/// the readers as above.
///
/// A member that passes on the sums it makes in a low-latency round has its part in the next one as a
/// *relay*: both are launched together, and a backend may do them at once, passing on each sum as soon as it
/// is made. So has a member that only receives such sums, if it sent something for them. Others cannot tell.
///
/// A member without work in a round leaves it out; its next part publishes that it has passed it. So nobody
/// waits for the host of another process, and members are at most as many rounds apart as there are slots.
///
/// A device that can replay graphs counts the rounds itself. The numbers of `finished` flags begin anew after
/// 2^32 rounds, and compare correctly as long as they are less than 2^31 apart: so at milestones a member
/// publishes at once how far it has come. All other words name not only their round but also its call
/// (`RoundNumber`): bytes of one captured call are not taken by another call; that one waits. Each member
/// notes which call it is in (`TeamRecord`), so that hosts can detect this.
namespace tutti::backend {

/// A place where a copy or a sum finds bytes, or to which a sum is written, as encoded in tables of
/// addresses. The upper two bits tell what the rest is. Addresses of memory are below 2^62.
///  - in a slot or in the own inbox: an address in that of round 0; the round's own is found when it runs;
///  - own memory of the member that reads: the address;
///  - memory that another member exposes: the number of its address among all for which the reader's slot has
///    room, and the offset of the bytes from it.
class SourcePlace {
 public:
  static constexpr int offset_bits = 40;
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << offset_bits;  ///< of exposed memory
  static constexpr std::uint64_t most_addresses = std::uint64_t{1} << (62 - offset_bits);  ///< in a slot

  [[nodiscard]] static std::byte* own(std::byte* address) noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) | own_mark);
  }
  [[nodiscard]] static std::byte* exposed(std::uint64_t number, std::uint64_t offset) noexcept {
    return reinterpret_cast<std::byte*>(exposed_mark | number << offset_bits | offset);
  }

  [[nodiscard]] static constexpr bool is_in_slot(std::uint64_t place) noexcept { return place < own_mark; }
  [[nodiscard]] static constexpr bool is_own(std::uint64_t place) noexcept { return place < exposed_mark; }
  [[nodiscard]] static constexpr std::uint64_t address(std::uint64_t own_place) noexcept {
    return own_place & ~own_mark;
  }
  [[nodiscard]] static constexpr std::uint64_t number(std::uint64_t exposed_place) noexcept {
    return (exposed_place & ~exposed_mark) >> offset_bits;
  }
  [[nodiscard]] static constexpr std::uint64_t offset(std::uint64_t exposed_place) noexcept {
    return exposed_place & (most_bytes - 1);
  }

 private:
  static constexpr std::uint64_t own_mark = std::uint64_t{1} << 62U;
  static constexpr std::uint64_t exposed_mark = std::uint64_t{1} << 63U;
};

/// An address that a member exposes, as it tells it to the others: below 2^62, with marks in the upper bits
/// in rounds that swap (`TeamRound::swaps`).
class ExposedAddress {
 public:
  /// `is_in_place`: what the member sends to others lies there, too. `are_some` is for the first address: one
  /// that the member exposes in the round, perhaps another one, is in place.
  [[nodiscard]] static std::byte* marked(std::byte* address, bool is_in_place, bool are_some) noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(address) |
                                        (is_in_place ? in_place_mark : 0) | (are_some ? some_mark : 0));
  }
  [[nodiscard]] static constexpr std::uint64_t address(std::uint64_t told) noexcept {
    return told & ~(in_place_mark | some_mark);
  }
  [[nodiscard]] static constexpr bool is_in_place(std::uint64_t told) noexcept {
    return (told & in_place_mark) != 0;
  }
  [[nodiscard]] static constexpr bool are_some_in_place(std::uint64_t told) noexcept {
    return (told & some_mark) != 0;
  }

 private:
  static constexpr std::uint64_t some_mark = std::uint64_t{1} << 62U;
  static constexpr std::uint64_t in_place_mark = std::uint64_t{1} << 63U;
};

/// The places (`SourcePlace`) of a copy between members in a round that swaps.
struct SwapPlaces {
  std::uint64_t given;    ///< in own memory: the bytes for the other member
  std::uint64_t exposed;  ///< in memory that the other member exposes
  std::uint64_t taken;    ///< in own memory: where the other's bytes go

  /// From the copy's pointers: its source, its target, and the place for the block that goes the other way.
  [[nodiscard]] static constexpr SwapPlaces of(std::uint64_t source, std::uint64_t target,
                                               std::uint64_t other_way) noexcept {
    if (SourcePlace::is_own(source)) return {source, target, other_way};
    return {other_way, source, target};
  }
};

/// The kind of lines in a team's inboxes. Lines of both kinds must not share memory: a narrow one's number of
/// a round lies where a wide one has bytes of messages.
enum class TeamLines : std::uint8_t {
  narrow,  ///< 16 bytes: 8 of a message and 8 for the number of the round
  wide,    ///< 128 bytes, 120 of a message: between GPUs with NVLink, which keeps them together
};
/// A narrow line, or the part of a wide one that belongs to one of eight lanes, the last of which has the
/// number; written and read at once.
struct alignas(16) TeamLine {
  std::uint64_t data;
  /// A `RoundNumber`, which never repeats; for other contents see `invitation_for` and `more_are_exposed`.
  std::uint64_t round;
};

/// The description of a piece of a message (`team_links.hpp`).
struct alignas(16) LinkLabel {
  std::uint64_t bytes;        ///< of the message
  std::uint32_t dtype;        ///< of its elements
  std::uint32_t piece_bytes;  ///< of the piece
};

/// The layout of a window: flags, labels and invitations of links, lines of exposed addresses, inboxes, lines
/// of links, slots, and slots of links (`team_links.hpp`). All but slots are zero at first.
struct TeamWindowLayout {
  static constexpr std::size_t alignment = 4096;
  static constexpr std::uint32_t slot_count = 8;
  /// The most pieces of each lane of a link that may be under way.
  static constexpr std::uint32_t link_slots = 4;
  /// Slots of links are multiples of this many bytes.
  static constexpr std::uint64_t link_alignment = 128;
  /// The smallest piece into which messages are cut, where slots have room for it.
  static constexpr std::uint64_t smallest_link_piece = 4096;
  /// Pieces that go in lines are multiples of the smallest, one line for each lane of a warp, up to the
  /// largest.
  static constexpr std::uint64_t smallest_line_piece = 256;
  static constexpr std::uint64_t largest_line_piece = 1024;
  /// The number of addresses that a member exposes in lines in each round; further ones are in its slot. The
  /// line of the first one has its round marked if there are more.
  static constexpr std::uint32_t exposed_lines = 2;
  static constexpr std::uint64_t more_are_exposed = std::uint64_t{1} << 63U;

  std::uint32_t members = 0;
  std::uint64_t slot_bytes = 0;   ///< a multiple of `alignment`
  std::uint64_t inbox_bytes = 0;  ///< a multiple of `alignment`; 0: no low-latency rounds
  TeamLines lines = TeamLines::narrow;
  std::uint32_t link_lanes = 0;       ///< of each link; 0: there are none
  std::uint64_t link_slot_bytes = 0;  ///< a multiple of `link_alignment`
  std::uint32_t line_lanes = 0;       ///< further lanes of each link, whose pieces go in lines; 0: none

  /// Returns the offset of the flag that member `from` sets in all windows to the latest round it has
  /// finished.
  [[nodiscard]] constexpr std::size_t finished_offset(std::uint32_t from) const noexcept {
    return from * sizeof(SharedFlag);
  }
  /// Returns the offset of the flag by which member `from` says that it has put its bytes for the round, in
  /// the window of a member that reads its slots: a `RoundNumber`. There is one flag for each slot, one after
  /// the other.
  [[nodiscard]] constexpr std::size_t ready_offset(std::uint32_t from, std::uint64_t round) const noexcept {
    return (members + from * slot_count + round % slot_count) * sizeof(SharedFlag);
  }
  /// Returns the offset of the flag by which a member says, in all windows, that it has read what was exposed
  /// to it in a direct round, or written there.
  [[nodiscard]] constexpr std::size_t taken_offset(std::uint32_t by, std::uint64_t round) const noexcept {
    return ready_offset(members + by, round);
  }
  /// The number of rounds between milestones.
  static constexpr std::uint32_t milestone_distance = std::uint32_t{1} << 29U;
  /// Returns true if a member that goes from `before` to `finished` rounds must publish that at once.
  [[nodiscard]] static constexpr bool is_milestone(std::uint32_t before, std::uint32_t finished) noexcept {
    return before / milestone_distance != finished / milestone_distance;
  }
  /// Returns the number of lanes; lanes of lines are numbered after the others.
  [[nodiscard]] constexpr std::uint32_t all_link_lanes() const noexcept { return link_lanes + line_lanes; }
  /// Returns the offset of the number of pieces that member `from` has put in the lane, in the window of the
  /// receiver. Not for lanes of lines.
  [[nodiscard]] constexpr std::size_t link_ready_offset(std::uint32_t from,
                                                        std::uint32_t lane) const noexcept {
    return round_flags_end() + (from * link_lanes + lane) * sizeof(SharedFlag);
  }
  /// Returns the offset of the number of pieces that member `by` has taken out of the lane, in the window of
  /// the sender.
  [[nodiscard]] constexpr std::size_t link_taken_offset(std::uint32_t by, std::uint32_t lane) const noexcept {
    return link_ready_offset(members, 0) + (by * all_link_lanes() + lane) * sizeof(SharedFlag);
  }
  /// Returns the offset of the label of the piece that `before` pieces precede in the lane, which member
  /// `from` writes in the window of the receiver.
  [[nodiscard]] constexpr std::size_t link_label_offset(std::uint32_t from, std::uint32_t lane,
                                                        std::uint32_t before) const noexcept {
    const std::size_t label = (std::size_t{from} * link_lanes + lane) * link_slots + before % link_slots;
    static_assert(link_slots * sizeof(LinkLabel) == sizeof(SharedFlag), "a lane's labels are not a line");
    return link_taken_offset(members, 0) + label * sizeof(LinkLabel);
  }
  /// Returns the offset of the invitations of member `by` for what it receives by the lane, in the window of
  /// the sender: a `TeamLine`, in the space of a flag. After it the sender may note which it has taken.
  [[nodiscard]] constexpr std::size_t link_invitation_offset(std::uint32_t by,
                                                             std::uint32_t lane) const noexcept {
    return link_label_offset(members, 0, 0) + (by * link_lanes + lane) * sizeof(SharedFlag);
  }
  /// Returns the offset of the line in which member `from` tells a reader one of the first addresses that it
  /// exposes in a round, in the reader's window.
  [[nodiscard]] constexpr std::size_t exposed_line_offset(std::uint32_t from, std::uint64_t round,
                                                          std::uint32_t index) const noexcept {
    const std::size_t giver = round % slot_count * members + from;
    return link_invitations_end() + (giver * exposed_lines + index) * sizeof(TeamLine);
  }
  [[nodiscard]] constexpr std::size_t inboxes_offset() const noexcept {
    const std::size_t all_exposed_lines =
        std::size_t{slot_count} * members * exposed_lines * sizeof(TeamLine);
    return (link_invitations_end() + all_exposed_lines + alignment - 1) / alignment * alignment;
  }
  [[nodiscard]] constexpr std::uint64_t inbox_shift(std::uint64_t round) const noexcept {
    return round % slot_count * inbox_bytes;
  }
  [[nodiscard]] constexpr std::uint32_t line_bytes() const noexcept {
    return lines == TeamLines::narrow ? 16 : 128;
  }
  /// Returns the bytes of a message in a line.
  [[nodiscard]] constexpr std::uint32_t line_data_bytes() const noexcept { return line_bytes() - 8; }
  /// Returns the size of so many bytes of messages in an inbox.
  [[nodiscard]] constexpr std::uint64_t in_lines(std::uint64_t bytes) const noexcept {
    return (bytes + line_data_bytes() - 1) / line_data_bytes() * line_bytes();
  }
  /// Returns the most bytes of messages in an inbox.
  [[nodiscard]] constexpr std::uint64_t most_in_inbox() const noexcept {
    return inbox_bytes / line_bytes() * line_data_bytes();
  }
  /// Returns the alignment of messages, in bytes of messages.
  [[nodiscard]] constexpr std::uint64_t message_alignment() const noexcept {
    return lines == TeamLines::narrow ? 16 : line_data_bytes();
  }
  /// Returns the size of the lines of a piece of so many bytes.
  [[nodiscard]] static constexpr std::uint64_t bytes_in_lines(std::uint64_t bytes) noexcept {
    return bytes / sizeof(TeamLine::data) * sizeof(TeamLine);
  }
  /// Returns the offset of the lines of the piece that `before` pieces precede in a lane of lines, which
  /// member `from` writes in the window of the receiver.
  [[nodiscard]] constexpr std::size_t link_lines_offset(std::uint32_t from, std::uint32_t lane,
                                                        std::uint32_t before) const noexcept {
    const std::size_t piece =
        (std::size_t{from} * line_lanes + (lane - link_lanes)) * link_slots + before % link_slots;
    return inboxes_offset() + slot_count * inbox_bytes + piece * bytes_in_lines(largest_line_piece);
  }
  [[nodiscard]] constexpr std::size_t slots_offset() const noexcept {
    return link_lines_offset(members, link_lanes, 0);
  }
  [[nodiscard]] constexpr std::uint64_t slot_shift(std::uint64_t round) const noexcept {
    return round % slot_count * slot_bytes;
  }
  /// Returns the offset of the slot of the piece that `before` pieces precede in the lane, which member
  /// `from` writes in the window of the receiver.
  [[nodiscard]] constexpr std::size_t link_slot_offset(std::uint32_t from, std::uint32_t lane,
                                                       std::uint32_t before) const noexcept {
    const std::size_t slot = (std::size_t{from} * link_lanes + lane) * link_slots + before % link_slots;
    return slots_offset() + slot_count * slot_bytes + slot * link_slot_bytes;
  }
  /// Returns the bytes of each piece of a message of so many bytes: this is all that both sides know. Piece i
  /// goes by lane i modulo their number. A message without bytes is one piece without bytes.
  [[nodiscard]] constexpr std::uint64_t link_piece_bytes(std::uint64_t bytes) const noexcept {
    return piece_bytes(bytes, link_lanes, smallest_link_piece, link_slot_bytes);
  }
  [[nodiscard]] constexpr std::uint64_t link_pieces(std::uint64_t bytes) const noexcept {
    return pieces_of(bytes, link_piece_bytes(bytes));
  }
  /// Returns the size up to which messages go in lines, if there are lanes for them: all of one can be under
  /// way at once.
  [[nodiscard]] constexpr std::uint64_t most_in_lines() const noexcept {
    return line_lanes * link_slots * largest_line_piece;
  }
  [[nodiscard]] constexpr bool goes_in_lines(std::uint64_t bytes) const noexcept {
    return line_lanes != 0 && bytes <= most_in_lines();
  }
  /// Returns how much of a message of so many bytes goes in lines: all or nothing.
  [[nodiscard]] constexpr std::uint64_t line_bytes(std::uint64_t bytes) const noexcept {
    return goes_in_lines(bytes) ? bytes : 0;
  }
  /// Returns the bytes of each piece in lines; as above, piece i goes by lane i modulo their number, and
  /// nothing is a piece as well.
  [[nodiscard]] constexpr std::uint64_t line_piece_bytes(std::uint64_t bytes) const noexcept {
    return piece_bytes(bytes, line_lanes, smallest_line_piece, largest_line_piece);
  }
  [[nodiscard]] constexpr std::uint64_t line_pieces(std::uint64_t bytes) const noexcept {
    return pieces_of(bytes, line_piece_bytes(bytes));
  }
  /// Returns the share of each lane of a message that is written directly to the receiver's memory. The last
  /// lanes may have less, or nothing.
  [[nodiscard]] constexpr std::uint64_t link_share_bytes(std::uint64_t bytes) const noexcept {
    const std::uint64_t pieces = link_pieces(bytes);
    const std::uint64_t lanes = pieces < link_lanes ? pieces : link_lanes;
    return ((bytes + lanes - 1) / lanes + link_alignment - 1) / link_alignment * link_alignment;
  }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return (link_slot_offset(members, 0, 0) + alignment - 1) / alignment * alignment;
  }
  /// Returns the most addresses that a member can expose in a round.
  [[nodiscard]] constexpr std::uint32_t most_exposed() const noexcept {
    const std::uint64_t in_slot = slot_bytes / sizeof(std::byte*);
    const std::uint64_t all = in_slot < SourcePlace::most_addresses ? in_slot : SourcePlace::most_addresses;
    return static_cast<std::uint32_t>(all / members);
  }
  /// Returns the offset in a slot of the addresses that member `from` exposes.
  [[nodiscard]] constexpr std::size_t exposed_offset(std::uint32_t from) const noexcept {
    return std::size_t{from} * most_exposed() * sizeof(std::byte*);
  }

 private:
  /// Returns an equal share for each lane, in whole multiples of `smallest`, but no more than `largest`.
  [[nodiscard]] static constexpr std::uint64_t piece_bytes(std::uint64_t bytes, std::uint32_t lanes,
                                                           std::uint64_t smallest,
                                                           std::uint64_t largest) noexcept {
    const std::uint64_t share = (bytes + lanes - 1) / lanes;
    const std::uint64_t whole = (share + smallest - 1) / smallest * smallest;
    const std::uint64_t wanted = whole < smallest ? smallest : whole;
    return wanted < largest ? wanted : largest;
  }
  /// Returns the number of pieces of that length: at least one.
  [[nodiscard]] static constexpr std::uint64_t pieces_of(std::uint64_t bytes, std::uint64_t piece) noexcept {
    return bytes == 0 ? 1 : (bytes + piece - 1) / piece;
  }
  [[nodiscard]] constexpr std::size_t round_flags_end() const noexcept { return taken_offset(members, 0); }
  /// Returns the end of the invitations, which follow the flags and labels.
  [[nodiscard]] constexpr std::size_t link_invitations_end() const noexcept {
    return link_invitation_offset(members, 0);
  }
};

static_assert(TeamRecord::history > TeamWindowLayout::slot_count);

/// The counters of a member's device, in its own memory, so that graphs can be replayed; all zero at first.
/// Backends without graphs need none.
struct TeamCounters {
  /// The number of parts of the running task that have ended: with `done`, one number of 64 bits.
  alignas(8) std::uint32_t parts_done = 0;
  std::atomic<std::uint32_t> done{0};    ///< see `TeamRound::counts_done`
  alignas(16) std::uint64_t rounds = 0;  ///< of all calls that are over, or whose last task has begun
  std::uint32_t gave_up = 0;             ///< not 0 once a task has given up: all later ones do nothing
  std::uint32_t arrived = 0;  ///< parts of the running task that have begun, or reached its end or its middle
  TeamRecord record{};

  /// Returns the size with the counters of links, which follow: how many pieces each lane has sent to each
  /// other member, and then, how many it has received.
  [[nodiscard]] static constexpr std::size_t bytes_with_links(const TeamWindowLayout& layout) noexcept {
    return sizeof(TeamCounters) +
           std::size_t{2} * layout.members * layout.all_link_lanes() * sizeof(std::uint32_t);
  }
};

/// The most multiprocessors of a GPU that a part takes, with a block on each: a thousand warps in all are
/// enough loads in flight to keep NVLink busy.
inline constexpr std::uint32_t most_team_blocks = 86;
/// The number of these blocks, of whatever teams, that a multiprocessor has room for.
inline constexpr std::uint32_t team_blocks_per_multiprocessor = 2;
/// The number of warps in a block; a single block may have fewer. With the 80 registers that sums need, two
/// such blocks fit on a multiprocessor.
inline constexpr std::uint32_t team_warps_per_block = 12;
/// A warp takes at least so many bytes at a time, or what is left of a row.
inline constexpr std::uint32_t smallest_team_tile = 480;
inline constexpr std::uint32_t smallest_team_copy_tile = 2048;  ///< of copies, except with low latency

/// One member's part in one round. In the addresses of `puts`' targets, slots and inboxes are those of round
/// 0: the round's own are found when it runs. `copies`' sources and `reductions`' inputs are places
/// (`SourcePlace`).
///
/// In a low-latency round every segment is a single row, and each message starts at
/// `TeamWindowLayout::message_alignment`. Wide lines divide elements of 16 bytes, so they carry no product of
/// complex128. An output of `reductions` may share memory with its own input; and if some of what is put is
/// such an input, then segment by segment all of it is. In a direct round, a segment may have several
/// outputs, which then are places (`SourcePlace`), in own memory or in memory that others expose. `copies`
/// may overwrite what is put: in a round through slots if the member is among its own readers and sources; in
/// a low-latency round if the first segments of `copies` are as long as those of `puts`, and each overwrites
/// only what the segment of the same number puts, or memory of which nothing is put.
struct TeamRound {
  TeamWindowLayout layout;
  std::span<std::byte* const> windows;  ///< by member, as this device reaches them; zero-filled at first
  std::uint32_t member = 0;
  TeamCounters* counters = nullptr;  ///< memory of the member's device
  std::uint64_t rounds_before = 0;   ///< rounds of the calls before this one, except replays of graphs
  std::uint64_t call = 0;            ///< number of the call among all calls, the same for all members
  bool is_captured = false;      ///< the call is captured: it is carried out whenever its graph is launched
  TeamRecord* record = nullptr;  ///< in registered memory; on GPUs that of `counters`; nullptr: none
  AbortWord* abort = nullptr;    ///< in registered memory; ends all waits once it is set
  std::uint32_t process = 0;     ///< the calling process's number, for `abort`
  /// The most multiprocessors that it may hold, with a block on each. What holds fewer leaves room for
  /// others.
  std::uint32_t most_multiprocessors = all_multiprocessors;

  std::uint32_t round = 1;     ///< of the call, from 1
  std::uint32_t finished = 1;  ///< the round of the call that the member has reached afterwards
  bool ends_call = true;       ///< the call has `finished` rounds

  bool is_low_latency = false;  ///< through inboxes instead of slots
  bool is_direct = false;       ///< nobody puts: sources expose memory, as do members with readers
  /// In a direct round: members write to memory that others expose. In a round that swaps, this is what the
  /// member knows beforehand: marks tell of more.
  bool writes_exposed = false;
  /// In a direct round: members exchange blocks of equal size, some of them perhaps in place. Beforehand only
  /// a member itself knows that; it marks what it exposes (`ExposedAddress`). Each copy between members has a
  /// place for the block that goes the other way, in own memory (`FanOutSegment::swap`). If the other
  /// member's memory is in place, both blocks are swapped: each half by one member if both are in place,
  /// otherwise by the member that is not.
  bool swaps = false;
  FanOut puts;  ///< from own memory into the own slot, or into readers' inboxes
  std::span<const std::uint32_t>
      readers;  ///< members who read what is put; in a direct round, to whom it exposes memory
  std::span<const std::uint32_t>
      sources;  ///< members whose messages are read; in a direct round, who expose memory
  /// Copies to own memory. In a direct round targets are places as well (`SourcePlace`): those of a segment
  /// are all in own memory, or there is one, in memory that another member exposes.
  FanOut copies;
  /// Reductions to own memory, and where there are several outputs, to memory that others expose; either
  /// these or `copies`.
  OrderedReduction reductions;

  std::uint32_t exposed_count = 0;  ///< exposed addresses for each reader, instead of puts
  std::span<std::byte* const> exposed =
      {};  ///< by reader: the exposed addresses, aligned to 16 bytes on GPUs, marked if they are in place

  /// The part in the low-latency round after this one; nullptr: none. It puts the results of `reductions`,
  /// segment by segment, or nothing, and has only copies besides. Memory that these overwrite is not put
  /// here, or comes back in sums of just these bytes.
  const TeamRound* relay = nullptr;

  /// A flag in registered memory, set to `done_value` at the end; nullptr: none.
  SharedFlag* done = nullptr;
  std::uint32_t done_value = 0;
  /// Sets `TeamCounters::done` to `done_value` at the end. That is faster than setting a flag, and orders
  /// nothing: the round's results are visible only to those who wait for the stream.
  bool counts_done = false;
};

}  // namespace tutti::backend
