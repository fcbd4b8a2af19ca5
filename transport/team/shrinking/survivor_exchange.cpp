// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/mailbox_chunks.hpp"
#include "transport/team/shrinking/survivor_agreement.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

namespace tutti::transport::team {

SurvivorExchange::SurvivorExchange(SurvivorAgreement& agreement, const ShrinkStage& sealed,
                                   const std::vector<std::size_t>& survivors)
    : agreement_(agreement),
      sealed_(sealed),
      survivors_(survivors),
      position_(static_cast<int>(std::ranges::find(survivors, agreement.self_) - survivors.begin())) {
  if (agreement_.team_.messenger != nullptr) return;
  Mailbox& own = agreement_.board_.mailboxes[agreement_.self_];
  own.read.store(counted(0));
  own.written.store(counted(0));
}

void SurvivorExchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  for_each_mailbox_chunk(mine, [&](std::span<const std::byte> chunk, std::size_t offset) {
    if (agreement_.team_.messenger != nullptr) return mail_chunk(chunk, all, offset, mine.size());
    exchange_chunk(chunk, all, offset, mine.size());
  });
}

std::unique_ptr<Network> SurvivorExchange::network() {
  if (agreement_.team_.messenger == nullptr) return nullptr;
  const std::vector<int> ranks(survivors_.begin(), survivors_.end());
  return agreement_.team_.network(ranks, *this);
}

void SurvivorExchange::mail_chunk(std::span<const std::byte> mine, std::span<std::byte> all,
                                  std::size_t offset, std::size_t stride) {
  SurvivorMessenger& messenger = *agreement_.team_.messenger;
  const SurvivorMessenger::MailNumber number{.round = sealed_.round, .chunk = chunks_++};
  const auto is_self = [this](std::size_t rank) { return rank == agreement_.self_; };
  for (const std::size_t rank : survivors_) {
    if (!is_self(rank)) messenger.send_mail(rank, number, mine);
  }
  const auto missing = [&] {
    std::vector<std::size_t> ranks;
    std::ranges::copy_if(survivors_, std::back_inserter(ranks), [&](std::size_t rank) {
      return !is_self(rank) && !messenger.has_mail(rank, number);
    });
    return ranks;
  };
  if (!agreement_.wait_in(sealed_, missing))
    throw Error(ErrorCode::peer_unavailable, "another survivor is lost, too");
  for (std::size_t i = 0; i < survivors_.size(); ++i) {
    const std::vector<std::byte> theirs = is_self(survivors_[i])
                                              ? std::vector<std::byte>(mine.begin(), mine.end())
                                              : messenger.take_mail(survivors_[i]);
    if (theirs.size() != mine.size())
      throw Error(ErrorCode::internal, fmt::format("rank {} has sent {} bytes, expected {}", survivors_[i],
                                                   theirs.size(), mine.size()));
    std::ranges::copy(theirs, all.begin() + static_cast<std::ptrdiff_t>(i * stride + offset));
  }
}

void SurvivorExchange::wait_for_all(std::atomic<std::uint64_t> Mailbox::*count, std::uint64_t chunks) {
  const auto missing = [&] {
    std::vector<std::size_t> ranks;
    std::ranges::copy_if(survivors_, std::back_inserter(ranks), [&](std::size_t rank) {
      const std::uint64_t counted_by_rank = (agreement_.board_.mailboxes[rank].*count).load();
      return counted_by_rank >> 32U != sealed_.round || counted_by_rank < counted(chunks);
    });
    return ranks;
  };
  if (!agreement_.wait_in(sealed_, missing))
    throw Error(ErrorCode::peer_unavailable, "another survivor is lost, too");
}

void SurvivorExchange::exchange_chunk(std::span<const std::byte> mine, std::span<std::byte> all,
                                      std::size_t offset, std::size_t stride) {
  Mailbox& own = agreement_.board_.mailboxes[agreement_.self_];
  wait_for_all(&Mailbox::read, chunks_);
  std::ranges::copy(mine, own.bytes.begin());
  own.written.store(counted(++chunks_));
  wait_for_all(&Mailbox::written, chunks_);
  for (std::size_t i = 0; i < survivors_.size() && !mine.empty(); ++i) {
    std::memcpy(all.data() + i * stride + offset, agreement_.board_.mailboxes[survivors_[i]].bytes.data(),
                mine.size());
  }
  // Whoever has gone on to another round may have written something else there.
  if (!agreement_.is_current(sealed_))
    throw Error(ErrorCode::peer_unavailable, "another survivor is lost, too");
  own.read.store(counted(chunks_));
}

}  // namespace tutti::transport::team
