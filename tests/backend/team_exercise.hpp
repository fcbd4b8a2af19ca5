// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "support/values/host_array.hpp"
#include "support/values/random.hpp"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

/// A team whose members are devices of this process, calls of several rounds, and what they should leave
/// behind. Nothing here shares code with the transport that uses teams.
namespace tutti::backend {

using Numbers = std::vector<std::uint32_t>;

/// One member's part in one round, with all data that it points to.
struct TeamPart {
  std::uint32_t round = 1;
  bool is_low_latency = false;
  bool is_direct = false;
  bool writes_exposed = false;
  bool swaps = false;
  std::vector<FanOutSegment> puts;
  std::vector<std::byte*> put_pointers;
  Numbers readers;
  Numbers sources;
  std::vector<FanOutSegment> copies;
  std::vector<std::byte*> copy_pointers;
  DType dtype = DType::float32;
  std::uint32_t input_count = 0;
  std::uint32_t output_count = 1;
  std::vector<OrderedReductionSegment> sums;
  std::vector<std::byte*> sum_pointers;
  std::vector<std::byte*> exposed;  ///< to every reader
  bool is_relay = false;            ///< of the part before
};

/// The parts of all members, each in the order of its rounds.
struct TeamCall {
  TeamCall(std::uint32_t member_count, std::uint32_t round_count)
      : rounds(round_count), parts(member_count) {}
  /// Returns the part of `member` in `round`, made if it has none; other parts of the member may move then.
  TeamPart& part(std::uint32_t member, std::uint32_t round);

  std::uint32_t rounds;
  bool tells_host = true;   ///< when it is over
  bool counts_done = true;  ///< or else counts, on its device
  std::vector<std::vector<TeamPart>> parts;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>
      inbox_fill;  ///< by round and member: bytes of messages
};

/// A number of rows of equal length.
struct Rectangle {
  std::uint32_t rows = 1;
  std::uint64_t row_bytes = 0;
};

enum class WindowMemory : std::uint8_t { device, device_with_wide_lines, pinned };
enum class SumAlignment : std::uint8_t { alike, element, none };
/// Ways in which bytes get to their readers; `written` names receivers instead.
enum class Way : std::uint8_t { slots, direct, written, low_latency };

class TeamExercise {
 public:
  static constexpr std::uint64_t slot_bytes = std::uint64_t{256} << 10U;
  static constexpr std::uint64_t inbox_bytes = std::uint64_t{2} << 20U;  ///< of windows in device memory
  static constexpr std::size_t bits_bytes = std::size_t{1} << 20U;       ///< of input without a type
  static constexpr std::size_t numbers_bytes = std::size_t{32} << 10U;   ///< of input of each type

  /// Makes members `0` to `devices.size() - 1`, which have `rounds_before` rounds behind them. Sets the abort
  /// word after a minute, so that a test that hangs ends.
  TeamExercise(Backend& machine, std::span<const int> devices, WindowMemory memory,
               std::uint32_t rounds_before = 0);
  TeamExercise(const TeamExercise&) = delete;
  TeamExercise& operator=(const TeamExercise&) = delete;
  ~TeamExercise();

  [[nodiscard]] std::uint32_t members() const { return static_cast<std::uint32_t>(members_.size()); }
  [[nodiscard]] StreamRef stream(std::uint32_t member) const { return members_[member].stream; }
  [[nodiscard]] Numbers everyone_but(std::uint32_t member) const;
  test::Random& random() { return random_; }
  /// Fills all of the outputs, as must be done before a capture. Otherwise they are filled where calls use
  /// them.
  void fill_outputs();
  AbortWord& abort_word() { return words_->abort; }
  SharedFlag& done(std::uint32_t member) { return words_->done[member]; }

  // What a round of a call does. The bytes come from anywhere in the writer's input; where they should come
  // to is written down.
  /// `writer` puts the rectangles into its slot or into the readers' inboxes, or gives their addresses, and
  /// the readers copy them; or the readers give addresses, and `writer` copies there. With low latency a
  /// rectangle is a single row of as many bytes.
  void add_message(TeamCall& call, std::uint32_t round, std::uint32_t writer, const Numbers& readers,
                   std::span<const Rectangle> rectangles, Way way = Way::slots);
  /// Adds a sum: the receivers add so many elements of all members' inputs, segment by segment.
  void add_sum(TeamCall& call, std::uint32_t round, const Numbers& receivers, DType dtype,
               std::span<const std::uint64_t> counts, SumAlignment alignment, Way way = Way::slots);
  /// Adds a low-latency sum: every member adds a share of as many elements of all members' inputs in `round`,
  /// and hands it on to all others in the next, as a relay or not, as chance will. In place the inputs are
  /// overwritten. `counts` are of one share, segment by segment.
  void add_shared_sum(TeamCall& call, std::uint32_t round, DType dtype, std::span<const std::uint64_t> counts,
                      bool is_in_place);
  /// Adds a sum in one direct round: the member that adds a share writes it to all members' memory.
  void add_direct_sum(TeamCall& call, std::uint32_t round, DType dtype, std::span<const std::uint64_t> counts,
                      bool is_in_place);
  /// Adds a low-latency sum for one root: all members except `root` add shares, and send them to `root` only.
  void add_sum_for_root(TeamCall& call, std::uint32_t round, std::uint32_t root, DType dtype,
                        std::span<const std::uint64_t> counts, bool is_in_place);
  /// Adds a round in which everyone waits for everyone.
  void add_barrier(TeamCall& call, std::uint32_t round) const;

  // The same by hand.
  [[nodiscard]] std::byte* slot(std::uint32_t member) const {
    return members_[member].window + layout_.slots_offset();
  }
  [[nodiscard]] std::byte* input(std::uint32_t member) const { return members_[member].input; }
  [[nodiscard]] std::span<const std::byte> input_bytes(std::uint32_t member) const {
    return members_[member].input_bytes;
  }
  /// Returns room for the bytes in `member`'s output, where they should arrive.
  [[nodiscard]] std::byte* expect(std::uint32_t member, std::span<const std::byte> bytes);
  [[nodiscard]] std::byte* allocate(std::uint32_t member, std::size_t bytes);
  static void put(TeamPart& part, std::byte* source, std::byte* slot, std::uint64_t bytes);
  /// Sends bytes from `writer` into the readers' inboxes, in a low-latency round. Returns where, by reader.
  std::vector<std::byte*> send(TeamCall& call, std::uint32_t round, std::uint32_t writer,
                               const Numbers& readers, std::byte* source, std::uint64_t bytes) const;
  /// Gives the readers of `member`'s part an address near `memory`, which is its own. Returns what readers
  /// have in their tables for `memory`.
  std::byte* expose(TeamPart& part, std::uint32_t member, std::byte* memory) const;
  /// Copies from `place`, as in the part's tables, to `target`, memory of its member.
  static void copy(TeamPart& part, std::byte* place, std::byte* target, std::uint64_t bytes);

  /// Enqueues all parts, round by round; the members of a round in any order.
  void enqueue(const TeamCall& call);
  /// Enqueues the parts of one member; `count_call` when all have enqueued theirs.
  void enqueue(const TeamCall& call, std::uint32_t member);
  void count_call(const TeamCall& call) { rounds_before_ += call.rounds; }

  /// Holds up a member's stream, so that the others run ahead of it as far as they can.
  void delay(std::uint32_t member);

  /// Waits for all members and compares all outputs with what was written down; then they are empty again.
  void check();
  /// `check()` if outputs have become full.
  void check_if_full();
  /// Checks, when all work is over, that the counts of what is done are those of the latest calls that count.
  void check_counts();
  /// Waits for a member's stream. Returns false if work failed because the abort word is set.
  bool synchronize(std::uint32_t member);
  void give_up() { words_->abort.set(0, 0, "the exercise is over"); }

  /// Returns flags in `member`'s window: how far `from` says it has put, and how far it has finished.
  [[nodiscard]] std::uint32_t ready_flag(std::uint32_t member, std::uint32_t from);
  [[nodiscard]] std::uint32_t finished_flag(std::uint32_t member, std::uint32_t from);

 private:
  static constexpr std::size_t vector_bytes = 16;
  static constexpr std::size_t output_bytes = std::size_t{16} << 20U;
  static constexpr std::size_t full_at = std::size_t{4} << 20U;

  struct Member {
    int device = 0;
    StreamRef stream;
    StreamRef side_stream;  ///< for reading memory while the other stream waits
    std::byte* window = nullptr;
    TeamCounters* counters = nullptr;
    std::uint32_t counted = 0;  ///< the latest call that counts
    std::byte* input = nullptr;
    std::span<const std::byte> input_bytes;
    std::byte* output = nullptr;
    std::vector<std::byte> expected;  ///< of the output as far as it is filled
    std::size_t used = 0;
    std::vector<void*> extra;
  };
  struct Words {
    AbortWord abort;
    AbortReason reason;
    std::array<SharedFlag, 8> done;
  };

  /// Random elements of every member, in its output, where they are expected to stay, and their sums.
  struct Terms {
    std::vector<std::byte*> inputs;  ///< by member
    std::vector<std::byte> sums;
  };
  Terms make_terms(DType dtype, std::uint64_t count);
  /// Makes `member` add so many bytes of all inputs, `at` bytes into them, in a low-latency round.
  void add_share(TeamCall& call, std::uint32_t round, std::uint32_t member, const Terms& terms,
                 std::uint64_t at, std::uint64_t bytes, std::byte* output);

  /// Returns the place in the inputs of a type's numbers, at a distance from a multiple of 16.
  [[nodiscard]] static std::size_t numbers_offset(DType dtype, SumAlignment alignment);
  /// Returns a random place at or after `cursor`, which is moved behind it; modulo 16 it is `residue`, if
  /// there is one.
  std::size_t place(std::size_t& cursor, std::size_t bytes, std::size_t multiple, std::size_t residue);
  /// Returns what a member's input has: random bits, and numbers of all types behind them. They are drawn
  /// once for all exercises.
  static std::span<const std::byte> random_input(std::uint32_t member);
  /// Fills so many bytes of the output and some more, unless it has been done, with bytes that tell what is
  /// written.
  void fill_output(Member& member, std::size_t bytes);
  /// Returns room in an output whose offset is `residue` modulo `multiple`.
  std::size_t output_place(Member& member, std::size_t bytes, std::size_t multiple, std::size_t residue);
  /// A part as it is enqueued, and what it points to.
  struct Task {
    TeamRound round;
    std::vector<std::byte*> exposed;
  };
  void prepare(Task& task, const TeamCall& call, std::uint32_t member, std::size_t index);
  /// Enqueues the part at `index`, and with it its relay; `index` is then behind both.
  void submit(const TeamCall& call, std::uint32_t member, std::size_t& index);
  void transfer(StreamRef stream, void* target, const void* source, std::size_t bytes);
  template <class Value>
  [[nodiscard]] Value flag(std::uint32_t member, std::size_t offset);

  Backend& machine_;
  WindowMemory memory_;
  TeamWindowLayout layout_;
  std::vector<Member> members_;
  std::vector<std::byte*> windows_;
  Words* words_ = nullptr;
  std::uint32_t rounds_before_;
  std::uint32_t calls_ = 0;
  test::Random random_;

  std::mutex mutex_;
  std::condition_variable ending_;
  bool is_ending_ = false;
  std::thread watchdog_;
};

}  // namespace tutti::backend
