// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/network.hpp"

#include "base/patience.hpp"
#include "collectives/bootstrap/tcp/handshake.hpp"
#include "transport/team/hosts/connecting_network.hpp"
#include "transport/team/shrinking/survivor_network.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace tutti::tcp {
namespace {

/// A network of some ranks of a mesh.
class MeshNetwork final : public tutti::Network,
                          public transport::team::ConnectingNetwork,
                          public transport::team::SurvivorNetwork {
 public:
  /// Makes it together with the others: `exchange` is among `ranks`, in their order. Which network a frame
  /// belongs to is told by a number that the first of them gives out.
  MeshNetwork(std::shared_ptr<Mesh> mesh, std::vector<int> ranks, tutti::Exchange& exchange)
      : mesh_(std::move(mesh)), ranks_(std::move(ranks)) {
    const std::uint64_t mine = exchange.rank() == 0 ? mesh_->new_number() : 0;
    std::vector<std::uint64_t> numbers(ranks_.size());
    exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(numbers)));
    number_ = numbers.front();
    mesh_->begin(number_, ranks_);
    mesh_->begin(number_of_survivors(), ranks_, true);
  }
  MeshNetwork(const MeshNetwork&) = delete;
  MeshNetwork& operator=(const MeshNetwork&) = delete;
  ~MeshNetwork() override {
    mesh_->end(number_);
    mesh_->end(number_of_survivors());
  }

  [[nodiscard]] std::string name() const override { return "TCP"; }
  void reach(std::span<const int> targets) override { mesh_->reach(in_mesh(targets)); }
  void send(int target, std::vector<std::byte> bytes) override {
    mesh_->send(number_, in_mesh(target), std::move(bytes));
  }
  [[nodiscard]] std::optional<Message> receive() override { return receive_in(number_); }
  [[nodiscard]] bool is_delivered() override { return mesh_->is_delivered(number_); }
  [[nodiscard]] bool is_busy() override { return mesh_->is_busy(number_); }
  [[nodiscard]] std::unique_ptr<tutti::Network> part(std::span<const int> ranks,
                                                     tutti::Exchange& exchange) override {
    return std::make_unique<MeshNetwork>(mesh_, in_mesh(ranks), exchange);
  }

  void send_to_survivor(int target, std::vector<std::byte> bytes) override {
    mesh_->send(number_of_survivors(), in_mesh(target), std::move(bytes));
  }
  [[nodiscard]] std::optional<Message> receive_from_survivors() override {
    return receive_in(number_of_survivors());
  }
  [[nodiscard]] std::string loss_of(int rank) override {
    return mesh_->loss(number_of_survivors(), in_mesh(rank));
  }
  [[nodiscard]] bool is_sending() override { return mesh_->is_sending(number_of_survivors()); }

 private:
  /// Returns the number of the network that outlives losses.
  [[nodiscard]] std::uint64_t number_of_survivors() const noexcept {
    return number_ | std::uint64_t{1} << 63U;  // which no rank's number has
  }
  [[nodiscard]] std::optional<Message> receive_in(std::uint64_t network) {
    std::optional<Message> message = mesh_->receive(network);
    if (message)
      message->source = static_cast<int>(std::ranges::find(ranks_, message->source) - ranks_.begin());
    return message;
  }
  [[nodiscard]] int in_mesh(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::vector<int> in_mesh(std::span<const int> ranks) const {
    std::vector<int> numbers;
    for (const int rank : ranks) numbers.push_back(in_mesh(rank));
    return numbers;
  }

  std::shared_ptr<Mesh> mesh_;
  std::vector<int> ranks_;  ///< their numbers in the mesh
  std::uint64_t number_ = 0;
};

/// Returns the address from which the system would send there, if there is a way. Sends nothing.
std::optional<Address> source_towards(Address target) {
  // Any port will do, but 0.
  reinterpret_cast<sockaddr_in*>(&target.storage)->sin_port = htons(9);
  const Descriptor socket(::socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() ||
      ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&target.storage), target.length) != 0)
    return std::nullopt;
  Address own = own_address_of(socket);
  if (own.length == 0) return std::nullopt;
  return own;
}

/// Returns the first address of a name or number, or one of length 0.
Address address_of(const std::string& name) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  Address address{.length = found->ai_addrlen};
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

/// Chooses the address of rank 0 that others are most likely to reach: of the way to anywhere, for which
/// addresses stand that documents may use and nobody has.
Address address_of_rank_0() {
  for (const char* const anywhere : {"192.0.2.1", "2001:db8::1"}) {
    if (const auto own = source_towards(address_of(anywhere))) return *own;
  }
  return address_of("127.0.0.1");
}

/// Tells the other ranks where a rank is going to listen.
struct Announcement {
  Address address;             ///< of length 0 if it follows from rank 0's
  std::uint32_t is_wrong = 0;  ///< the rank was given a name that stands for no address
};

/// Returns the address of this rank: `given`, or TUTTI_ADDRESS, or `known`, or the one towards rank 0.
/// Collective: throws on all ranks if one was given a wrong name.
Address chosen_address(tutti::Exchange& exchange, const std::string& given, const Address& known) {
  const char* const variable = std::getenv("TUTTI_ADDRESS");
  const bool is_given = !given.empty();
  const std::string name = is_given || variable == nullptr ? given : variable;
  Announcement mine{.address = name.empty() ? known : address_of(name)};
  if (!name.empty() && mine.address.length == 0) mine.is_wrong = 1;
  if (name.empty() && known.length == 0 && exchange.rank() == 0) mine.address = address_of_rank_0();
  std::vector<Announcement> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  if (mine.is_wrong != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is '{}', expected the name or the number of an address of this host",
                            is_given ? "options.address" : "TUTTI_ADDRESS", name));
  }
  const auto wrong = std::ranges::find_if(all, [](const Announcement& one) { return one.is_wrong != 0; });
  if (wrong != all.end()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("rank {} was given a name that stands for no address, expected one of its host",
                            wrong - all.begin()));
  }
  if (mine.address.length != 0) return mine.address;
  return source_towards(all.front().address).value_or(address_of("127.0.0.1"));
}

}  // namespace

std::unique_ptr<tutti::Network> make_network(tutti::Exchange& exchange, Connections::Settings settings,
                                             const std::string& address) {
  settings.address = chosen_address(exchange, address, settings.address);
  std::vector<int> ranks(static_cast<std::size_t>(exchange.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<MeshNetwork>(std::make_shared<Mesh>(exchange, settings), std::move(ranks),
                                       exchange);
}

std::unique_ptr<tutti::Network> make_network(tutti::Exchange& exchange, const NetworkOptions& options) {
  using namespace std::chrono_literals;
  if (options.timeout <= 0ms) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tutti::tcp::make_network: options.timeout is {} ms, expected more than 0",
                            options.timeout.count()));
  }
  return make_network(exchange,
                      Connections::Settings{.address = {},
                                            .key = key_of(options.secret, "a network"),
                                            .encrypts = options.encrypts,
                                            .timeout = std::min(options.timeout, longest_limit)},
                      options.address);
}

}  // namespace tutti::tcp
