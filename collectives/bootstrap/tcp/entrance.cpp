// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/entrance.hpp"

#include "collectives/bootstrap/tcp/open_place.hpp"
#include "collectives/bootstrap/tcp/waiting_newcomers.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

using transport::team::Entrance;

/// Listens at a place.
class OwnEntrance final : public Entrance {
 public:
  explicit OwnEntrance(const Place& place) : newcomers_(place, most_waiting) {}

  void look(const Host& host) override { newcomers_.look(host); }
  [[nodiscard]] std::string account() const override { return newcomers_.account(); }

 private:
  static constexpr std::size_t most_waiting = 256;

  WaitingNewcomers newcomers_;
};

/// Lets those in who wait at a place that this process holds open.
class HeldEntrance final : public Entrance {
 public:
  HeldEntrance(std::shared_ptr<OpenPlace> place, WaitingNewcomers& newcomers)
      : place_(std::move(place)), newcomers_(newcomers) {}
  HeldEntrance(const HeldEntrance&) = delete;
  HeldEntrance& operator=(const HeldEntrance&) = delete;
  ~HeldEntrance() override { place_->give_back(); }

  void look(const Host& host) override {
    newcomers_.look(host);
    place_->count();
  }
  [[nodiscard]] std::string account() const override { return newcomers_.account(); }

 private:
  const std::shared_ptr<OpenPlace> place_;
  WaitingNewcomers& newcomers_;
};

}  // namespace

std::unique_ptr<Entrance> open_entrance(const Place& place) {
  std::shared_ptr<OpenPlace> held = OpenPlace::find(place);
  if (held == nullptr) return std::make_unique<OwnEntrance>(place);
  if (!held->has_key_of(place)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is held open with another secret or job than the call's, expected the same",
                            place_of(place.rendezvous)));
  }
  WaitingNewcomers* const newcomers = held->take();
  if (newcomers != nullptr) return std::make_unique<HeldEntrance>(std::move(held), *newcomers);
  throw Error(ErrorCode::transport_failure,
              fmt::format("another communicator of this process is letting processes in at {}",
                          place_of(place.rendezvous)),
              EADDRINUSE);
}

bool is_held_open(const Place& place) {
  return OpenPlace::find(place) != nullptr;
}

}  // namespace tutti::tcp
