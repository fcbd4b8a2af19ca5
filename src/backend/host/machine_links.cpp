// SPDX-License-Identifier: Apache-2.0
#include "backend/host/machine.hpp"
#include "backend/host/queues/team_part.hpp"
#include "backend/team_links.hpp"
#include "os/yielding.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Messages between members of a team. What a member sends and receives is one task, which moves whatever
/// piece can move, and waits when none can.
namespace tutti::backend::host {
namespace {

using virtual_devices::Operation;

constexpr int longest_flag_wait = 5;  // milliseconds, after which a waiting task looks around
/// The time for which a task that can move nothing polls without pause: a pause, which takes at least some 70
/// µs, would cost more than copying a megabyte does.
constexpr std::chrono::microseconds link_patience{200};
constexpr std::chrono::microseconds first_link_pause{20};
constexpr std::chrono::microseconds longest_link_pause{1000};
constexpr std::uint64_t bytes_of_a_step = std::uint64_t{16} << 20U;
/// The longest wait for a sender that writes when the team ends. A sender checks for the end after each step;
/// this limit is for one that does not get there.
constexpr std::chrono::seconds longest_write_after_end{1};

/// A line in which a receiver says where a message goes, or takes that back, and from which its sender takes
/// it: one of the two does.
class InvitationLine {
 public:
  explicit InvitationLine(std::byte* place) : line_(*reinterpret_cast<TeamLine*>(place)) {}

  [[nodiscard]] bool is_for(const LinkMessage& message) const {
    return std::atomic_ref(line_.round).load(std::memory_order_acquire) == invitation_for(message);
  }
  void make(const LinkMessage& message) const {
    std::atomic_ref(line_.data)
        .store(reinterpret_cast<std::uint64_t>(message.invited_to), std::memory_order_relaxed);
    std::atomic_ref(line_.round).store(invitation_for(message), std::memory_order_release);
  }
  /// Takes the invitation and returns its address; nothing if there is none any more. The next invitation
  /// comes only when the message's flag has been set, so the address stays.
  [[nodiscard]] std::optional<std::byte*> take(const LinkMessage& message) const {
    if (!take_back(message)) return std::nullopt;
    return reinterpret_cast<std::byte*>(std::atomic_ref(line_.data).load(std::memory_order_relaxed));
  }
  /// Withdraws the invitation. Returns true if it had not been taken.
  [[nodiscard]] bool take_back(const LinkMessage& message) const {
    std::uint64_t held = invitation_for(message);
    return std::atomic_ref(line_.round).compare_exchange_strong(held, 0, std::memory_order_acq_rel);
  }

 private:
  TeamLine& line_;
};

/// A copy of the task's description, kept until it is over.
struct LinkOrders {
  TeamWindowLayout layout;
  std::vector<std::byte*> windows;
  std::uint32_t member;
  std::vector<LinkPart> parts;
  std::vector<LinkMessage> messages;
  std::uint64_t direct_from;
  std::uint32_t lanes;
  std::shared_ptr<const Allocation> own_window;
  std::byte* own_flags;  ///< where they can be looked at; the bytes never move to another address
  std::shared_ptr<const Allocation> counters;
  std::uint32_t* counts;  ///< by direction, member and lane

  [[nodiscard]] std::atomic_ref<std::uint32_t> count(const LinkPart& part, std::uint32_t lane) const {
    const std::uint32_t direction = part.is_sent != 0 ? 0 : 1;
    return std::atomic_ref(counts[(direction * layout.members + part.peer) * layout.all_link_lanes() + lane]);
  }
  /// The flag that says whether the next piece can move, and what it must have come to.
  [[nodiscard]] SharedFlag& flag(const LinkPart& part, std::uint32_t lane) const {
    const std::size_t offset = part.is_sent != 0 ? layout.link_taken_offset(part.peer, lane)
                                                 : layout.link_ready_offset(part.peer, lane);
    return *reinterpret_cast<SharedFlag*>(own_flags + offset);
  }
  [[nodiscard]] static std::uint32_t needed(const LinkPart& part, std::uint32_t count) {
    return part.is_sent != 0 ? count + 1 - TeamWindowLayout::link_slots : count + 1;
  }
  [[nodiscard]] bool has_come(const LinkPart& part, std::uint32_t lane, std::uint32_t count) const {
    return has_reached(flag(part, lane).value.load(std::memory_order_acquire), needed(part, count));
  }
  [[nodiscard]] bool can_move(const LinkPart& part, std::uint32_t lane, const LinkCursor& cursor) const {
    if (!has_come(part, lane, cursor.count)) return false;
    if (part.is_sent != 0) return true;
    LinkLabel label;
    std::memcpy(&label, own_flags + layout.link_label_offset(part.peer, lane, cursor.count), sizeof(label));
    const LinkMessage& expected = message(part, cursor);
    return label.bytes == expected.bytes && label.dtype == expected.dtype &&
           (label.piece_bytes == 0) == (cursor.is_direct() || expected.bytes == 0);
  }
  [[nodiscard]] const LinkMessage& message(const LinkPart& part, const LinkCursor& cursor) const {
    return messages[part.first_message + cursor.message];
  }
  /// Goes past messages that have no more pieces in the lane.
  void settle(const LinkPart& part, LinkCursor& cursor, std::uint32_t lane) const {
    while (cursor.message < part.message_count) {
      if (cursor.piece < layout.link_pieces(message(part, cursor).bytes)) return;
      cursor.next_message(lane);
    }
  }
  /// Returns true if the destination of the message is still unknown.
  [[nodiscard]] bool needs_invitation(const LinkPart& part, const LinkCursor& cursor) const {
    return cursor.is_located == 0 && message(part, cursor).bytes > direct_from;
  }
  /// Returns the receiver's invitation to a sent message, in this member's window.
  [[nodiscard]] InvitationLine invitation(const LinkPart& part, std::uint32_t lane) const {
    return InvitationLine(own_flags + layout.link_invitation_offset(part.peer, lane));
  }
  /// Returns true if there may be an invitation for the message that is sent: the receiver has taken all
  /// pieces before. (Otherwise it may wait for another message, which looks like this one.)
  [[nodiscard]] bool may_be_invited(const LinkPart& part, std::uint32_t lane,
                                    const LinkCursor& cursor) const {
    return flag(part, lane).value.load(std::memory_order_acquire) == cursor.count;
  }
  [[nodiscard]] LinkCursor start(const LinkPart& part, std::uint32_t lane) const {
    LinkCursor cursor{.piece = lane, .message = 0, .count = count(part, lane).load()};
    settle(part, cursor, lane);
    return cursor;
  }
  [[nodiscard]] static bool is_over(const LinkPart& part, const LinkCursor& cursor) {
    return cursor.message == part.message_count;
  }
  /// Returns true if a run that begins now has something to do at once, or nothing at all.
  [[nodiscard]] bool can_start() const {
    bool is_empty = true;
    for (const LinkPart& part : parts) {
      for (std::uint32_t lane = 0; lane < lanes; ++lane) {
        const LinkCursor cursor = start(part, lane);
        if (is_over(part, cursor)) continue;
        is_empty = false;
        if (needs_invitation(part, cursor)) {
          const bool can_locate = part.is_sent == 0 || (may_be_invited(part, lane, cursor) &&
                                                        invitation(part, lane).is_for(message(part, cursor)));
          if (can_locate) return true;
        } else if (can_move(part, lane, cursor)) {
          return true;
        }
      }
    }
    return is_empty;
  }
};

/// One run of a task.
class LinkRun {
 public:
  LinkRun(const LinkOrders& orders, const Translation::Machine& machine, int device, AbortWord& abort,
          std::uint32_t process)
      : orders_(orders), machine_(machine), device_(device), abort_(abort), process_(process) {
    for (std::size_t part = 0; part < orders.parts.size(); ++part) {
      for (std::uint32_t lane = 0; lane < orders.lanes; ++lane) {
        const LinkCursor cursor = orders.start(orders.parts[part], lane);
        if (!LinkOrders::is_over(orders.parts[part], cursor)) open_.push_back({part, lane, cursor});
      }
    }
  }

  /// Checks all accesses before, so that a refused one leaves everything untouched.
  void find_all() const {
    Translation translation(machine_, Mover::kernel, device_);
    for (const LinkPart& part : orders_.parts) {
      for (std::uint32_t i = 0; i < part.message_count; ++i) {
        const LinkMessage& message = orders_.messages[part.first_message + i];
        if (part.is_sent != 0) {
          static_cast<void>(translation.read(message.address, message.bytes));
        } else {
          static_cast<void>(translation.write(message.address, message.bytes));
        }
      }
    }
  }

  void run() {
    try {
      move_all();
    } catch (const Ended&) {
      give_up();
      throw;
    } catch (...) {
      end_team(abort_, process_);  // first, so that nobody takes for complete what is given up
      give_up();
      throw;
    }
  }

 private:
  struct Open {
    std::size_t part;
    std::uint32_t lane;
    LinkCursor cursor;
  };

  void move_all() {
    auto last_move = std::chrono::steady_clock::now();
    std::chrono::microseconds pause = first_link_pause;
    while (!open_.empty()) {
      require_running(abort_);
      if (move_what_can()) {
        last_move = std::chrono::steady_clock::now();
        pause = first_link_pause;
      } else if (open_.size() == 1 && open_.front().cursor.is_located != 0 && !has_come(open_.front())) {
        const Open& last = open_.front();
        const LinkPart& part = orders_.parts[last.part];
        static_cast<void>(wait_for_flag(orders_.flag(part, last.lane),
                                        LinkOrders::needed(part, last.cursor.count), abort_,
                                        longest_flag_wait));
      } else if (std::chrono::steady_clock::now() - last_move >= link_patience || !yield_unless_crowded()) {
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, longest_link_pause);
      }
    }
  }

  /// Returns true if there is a piece, even a wrong one, or room for one.
  [[nodiscard]] bool has_come(const Open& open) const {
    return orders_.has_come(orders_.parts[open.part], open.lane, open.cursor.count);
  }

  bool move_what_can() {
    bool has_moved = false;
    for (Open& open : open_) {
      if (!locate(open) || !orders_.can_move(orders_.parts[open.part], open.lane, open.cursor)) continue;
      move(open);
      has_moved = true;
    }
    if (has_moved) {
      std::erase_if(open_, [&](const Open& open) {
        return LinkOrders::is_over(orders_.parts[open.part], open.cursor);
      });
    }
    return has_moved;
  }

  /// Comes to know where the message goes, as the receiver says. False: not yet.
  bool locate(Open& open) const {
    const LinkPart& part = orders_.parts[open.part];
    LinkCursor& cursor = open.cursor;
    if (orders_.needs_invitation(part, cursor)) {
      const LinkMessage& message = orders_.message(part, cursor);
      if (part.is_sent == 0) {
        Translation translation(machine_, Mover::kernel, device_);
        peers_line(open, translation).make(message);
        cursor.target = message.invited_to;
      } else {
        if (!orders_.may_be_invited(part, open.lane, cursor)) return false;
        const std::optional<std::byte*> address = orders_.invitation(part, open.lane).take(message);
        if (!address) return false;
        cursor.target = *address;
      }
    }
    cursor.is_located = 1;
    return true;
  }
  /// Returns the line in the sender's window in which this member makes its invitations.
  [[nodiscard]] InvitationLine peers_line(const Open& open, Translation& translation) const {
    const LinkPart& part = orders_.parts[open.part];
    std::byte* const place =
        orders_.windows[part.peer] + orders_.layout.link_invitation_offset(orders_.member, open.lane);
    return InvitationLine(reinterpret_cast<std::byte*>(&translation.flag(place)));
  }
  /// Ends the open messages of an ended team: no sender begins to write to an address any more, and senders
  /// that have begun stop and report that, for which this waits.
  void give_up() noexcept {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<const Open*> taken;
    for (Open& open : open_) {
      const LinkPart& part = orders_.parts[open.part];
      if (!open.cursor.is_direct()) continue;
      try {
        Translation translation(machine_, Mover::kernel, device_);
        if (part.is_sent != 0) {
          std::byte* const flag =
              orders_.windows[part.peer] + orders_.layout.link_ready_offset(orders_.member, open.lane);
          write_label(translation, open,
                      {.bytes = ~std::uint64_t{0}, .dtype = 0, .piece_bytes = 0});  // of none
          backend::set_flag(translation.flag(flag), open.cursor.count + 1);
        } else if (!peers_line(open, translation).take_back(orders_.message(part, open.cursor))) {
          taken.push_back(&open);
        }
      } catch (...) {
        continue;  // the other's window is gone, and so is its device
      }
    }
    for (const Open* const open : taken) {
      while (!has_come(*open) && std::chrono::steady_clock::now() - begin < longest_write_after_end)
        std::this_thread::yield();
    }
  }

  void move(Open& open) const {
    const LinkPart& part = orders_.parts[open.part];
    const TeamWindowLayout& layout = orders_.layout;
    LinkCursor& cursor = open.cursor;
    const LinkMessage& message = orders_.message(part, cursor);
    const std::uint64_t offset = cursor.offset(layout, message);
    const std::uint64_t bytes = cursor.bytes(layout, message);
    // Of this piece alone: memory that the others ask for can move between two pieces.
    Translation translation(machine_, Mover::kernel, device_);
    translation.add(orders_.own_window);
    std::byte* const peer_window = orders_.windows[part.peer];
    std::byte* flag = nullptr;
    if (part.is_sent != 0) {
      std::byte* const slot = peer_window + layout.link_slot_offset(orders_.member, open.lane, cursor.count);
      std::byte* const target = cursor.is_direct() ? cursor.target + offset : slot;
      copy_in_steps(translation.write(target, bytes), translation.read(message.address + offset, bytes),
                    bytes);
      write_label(translation, open,
                  {.bytes = message.bytes,
                   .dtype = message.dtype,
                   .piece_bytes = cursor.is_direct() ? 0 : static_cast<std::uint32_t>(bytes)});
      flag = peer_window + layout.link_ready_offset(orders_.member, open.lane);
    } else {
      const std::byte* const slot =
          orders_.windows[orders_.member] + layout.link_slot_offset(part.peer, open.lane, cursor.count);
      if (!cursor.is_direct())
        copy(translation.write(message.address + offset, bytes), translation.read(slot, bytes), bytes);
      flag = peer_window + layout.link_taken_offset(orders_.member, open.lane);
    }
    if (machine_.faults.any()) translation.corrupt_crossings(Operation::kernel);
    cursor.advance(layout, open.lane);
    orders_.count(part, open.lane).store(cursor.count);
    backend::set_flag(translation.flag(flag), cursor.count);
    orders_.settle(part, cursor, open.lane);
  }

  /// Copies bytes; with no bytes, the addresses may be null.
  static void copy(std::byte* target, const std::byte* source, std::uint64_t bytes) {
    if (bytes != 0) std::memcpy(target, source, bytes);
  }

  /// Stops when the team is ended.
  void copy_in_steps(std::byte* target, const std::byte* source, std::uint64_t bytes) const {
    for (std::uint64_t done = 0; done < bytes; done += bytes_of_a_step) {
      require_running(abort_);
      copy(target + done, source + done, std::min(bytes_of_a_step, bytes - done));
    }
  }

  void write_label(Translation& translation, const Open& open, const LinkLabel& label) const {
    const LinkPart& part = orders_.parts[open.part];
    // A lane's labels lie where a flag could: as with flags, faults of links leave them alone.
    std::byte* const first =
        orders_.windows[part.peer] + orders_.layout.link_label_offset(orders_.member, open.lane, 0);
    auto* const labels = reinterpret_cast<std::byte*>(&translation.flag(first));
    std::memcpy(labels + open.cursor.count % TeamWindowLayout::link_slots * sizeof(label), &label,
                sizeof(label));
  }

  const LinkOrders& orders_;
  const Translation::Machine machine_;
  int device_;
  AbortWord& abort_;
  std::uint32_t process_;
  std::vector<Open> open_;
};

/// Waits for other processes while it works.
template <class Work>
class LinksTask final : public Task {
 public:
  LinksTask(std::shared_ptr<const LinkOrders> orders, AbortWord& abort, std::uint32_t process, Work work)
      : Task("team_links"),
        orders_(std::move(orders)),
        abort_(abort),
        process_(process),
        work_(std::move(work)) {}

  void run() override {
    require_running(abort_);
    try {
      work_();
    } catch (const Ended&) {
      throw;
    } catch (...) {
      end_team(abort_, process_);
      throw;
    }
  }
  [[nodiscard]] bool ready() const noexcept override { return abort_.is_set() || orders_->can_start(); }
  [[nodiscard]] std::unique_ptr<Task> clone() const override {
    return std::make_unique<LinksTask>(orders_, abort_, process_, work_);
  }
  void begin_launch() override { work_.begin_launch(); }

 private:
  std::shared_ptr<const LinkOrders> orders_;
  AbortWord& abort_;
  std::uint32_t process_;
  Work work_;
};

}  // namespace

void Machine::team_links(StreamRef stream, const TeamLinks& task) {
  auto* const after_counters = reinterpret_cast<std::byte*>(task.counters + 1);
  const auto find = [&](const std::byte* address, const char* what) {
    std::shared_ptr<const Allocation> block = addresses_.find(address);
    if (block == nullptr) {
      throw Error(ErrorCode::device_failure,
                  fmt::format("team_links: the {} of member {}, at address {}, are neither device memory nor "
                              "pinned memory",
                              what, task.member, fmt::ptr(address)));
    }
    return block;
  };
  std::byte* const window = task.windows[task.member];
  LinkOrders orders{.layout = task.layout,
                    .windows = {task.windows.begin(), task.windows.end()},
                    .member = task.member,
                    .parts = {task.parts.begin(), task.parts.end()},
                    .messages = {task.messages.begin(), task.messages.end()},
                    .direct_from = task.direct_from,
                    .lanes = task.lanes_used(),
                    .own_window = find(window, "flags"),
                    .own_flags = nullptr,
                    .counters = find(after_counters, "counters"),
                    .counts = nullptr};
  orders.own_flags = orders.own_window->memory + (window - orders.own_window->base);
  orders.counts =
      reinterpret_cast<std::uint32_t*>(orders.counters->memory + (after_counters - orders.counters->base));
  const auto kept = std::make_shared<const LinkOrders>(std::move(orders));
  auto work = accept(
      stream, Operation::kernel, "team_links",
      [this, kept, device = stream.device, &abort = *task.abort, process = task.process](Translation&) {
        LinkRun run(*kept, translated_by(), device, abort, process);
        run.find_all();
        run.run();
      });
  submit(worker_of(stream),
         std::make_unique<LinksTask<decltype(work)>>(kept, *task.abort, task.process, std::move(work)));
  end_kernel(stream);
}

}  // namespace tutti::backend::host
