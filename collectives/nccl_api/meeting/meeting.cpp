// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/meeting/meeting.hpp"

#include "base/hash.hpp"
#include "collectives/nccl_api/base/errors.hpp"
#include "settings/environment.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

namespace tutti::nccl_api {
namespace {

/// The host of the meeting gives up first, and knows who is missing. This much later it counts as stopped.
constexpr std::chrono::seconds grace{5};

/// The longest time between two questions whether the communicator is still wished for.
constexpr std::int64_t longest_poll_ms = 100;

Descriptor connected_to(const char* function, const MeetingAddress& address) {
  const SocketAddress target = socket_address(address);
  Descriptor socket(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || connect(socket.number(), target.get(), target.length) != 0)
    throw Refusal{ncclRemoteError,
                  fmt::format("{}: the process that has made the unique id cannot be reached: {}", function,
                              strerror(errno))};
  const int on = 1;
  static_cast<void>(setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  return socket;
}

}  // namespace

Meeting::Meeting(const MeetingAddress& address, int ranks, const Party& party,
                 std::chrono::milliseconds timeout, Visit visit)
    : visit_(std::move(visit)), socket_(connected_to(visit_.function, address)), timeout_(timeout) {
  const Arrival arrival{.token = address.token, .ranks = ranks, .party = party, .purpose = visit_.purpose};
  const std::vector<std::byte> answer = ask(std::as_bytes(std::span(&arrival, 1)));
  parties_.resize(answer.size() / sizeof(Party));
  if (parties_.empty()) return;  // what was called off has none
  std::memcpy(parties_.data(), answer.data(), parties_.size() * sizeof(Party));
  const auto own = std::ranges::find(parties_, party.first, &Party::first);
  rank_ = static_cast<int>(own - parties_.begin());
}

Meeting::~Meeting() = default;

void Meeting::fail(std::string_view sentence, ncclResult_t result) const {
  throw Refusal{result, fmt::format("{}: {}", visit_.function, sentence)};
}

void Meeting::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const std::vector<std::byte> answer = ask(mine);
  if (answer.size() != all.size())
    fail(fmt::format("{} bytes have come, expected {}", answer.size(), all.size()), ncclInternalError);
  std::ranges::copy(answer, all.begin());
}

std::vector<std::byte> Meeting::ask(std::span<const std::byte> message) {
  deadline_ = std::chrono::steady_clock::now() + timeout_ + grace;
  const MeetingMessage head{.bytes = message.size(), .timeout_ms = timeout_.count()};
  write(std::as_bytes(std::span(&head, 1)));
  write(message);
  MeetingAnswer answer;
  read(std::as_writable_bytes(std::span(&answer, 1)));
  std::vector<std::byte> bytes(answer.bytes);
  read(bytes);
  if (answer.result == ncclSuccess) return bytes;
  fail({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, static_cast<ncclResult_t>(answer.result));
}

void Meeting::await(short events) {
  using namespace std::chrono;
  pollfd watched{.fd = socket_.number(), .events = events, .revents = 0};
  for (;;) {
    const auto left = ceil<milliseconds>(deadline_ - steady_clock::now()).count();
    if (left <= 0) fail("the process that has made the unique id gives no answer", ncclTimeout);
    if (visit_.require_wish) visit_.require_wish();
    const std::int64_t most = visit_.require_wish ? longest_poll_ms : INT_MAX;
    if (poll(&watched, 1, static_cast<int>(std::min<std::int64_t>(left, most))) > 0) return;
  }
}

void Meeting::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    await(POLLOUT);
    const ssize_t count = send(socket_.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // The host may have said why before it closed the connection: the answer is read all the same.
    if (count < 0 && errno != EAGAIN && errno != EINTR) return;
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void Meeting::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    await(POLLIN);
    const ssize_t count = recv(socket_.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
      fail("the process that has made the unique id is gone");
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void call_off(const MeetingAddress& address) noexcept {
  try {
    const Meeting meeting(address, 0, {}, {},
                          {.function = "ncclCommGrow", .purpose = Purpose::call_off, .require_wish = {}});
  } catch (...) {
    // There is no meeting any more.
  }
}

}  // namespace tutti::nccl_api
