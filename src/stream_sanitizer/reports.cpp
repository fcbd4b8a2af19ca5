// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/reports.hpp"

#include <string_view>

#include <fmt/format.h>

namespace tutti::stream_sanitizer {
namespace {

AccessReport side_of(const Access& access, bool writes) {
  const Operation& queued = *access.operation;
  const Operation& origin = access.captured != nullptr ? *access.captured : queued;
  AccessReport side{.operation = origin.name,
                    .part_of = origin.part_of,
                    .writes = writes,
                    .stream = queued.stream_in_words(),
                    .thread = queued.thread,
                    .issued_at = queued.site.in_words()};
  if (&origin != &queued && queued.name != origin.name) {
    side.operation += fmt::format(", in a graph, by {}", queued.name);
    side.issued_at += fmt::format(", captured at {}", origin.site.in_words());
  }
  return side;
}

/// "copy, part of broadcast by p2p (root push), on stream 0x5581f0 of device:1, queued by thread 17 at …".
std::string in_words(const AccessReport& side) {
  return fmt::format("{}{} on {}, queued by thread {} at {}", side.operation,
                     side.part_of.empty() ? "" : fmt::format(", part of {},", side.part_of), side.stream,
                     side.thread, side.issued_at);
}

std::string_view use_in_words(const AccessReport& side) noexcept {
  return side.writes ? "writes" : "reads";
}

}  // namespace

Report report_of(const Finding& finding, const std::string& memory) {
  Report report{.kind = finding.kind,
                .address = reinterpret_cast<const void*>(finding.bytes.begin),
                .bytes = finding.bytes.end - finding.bytes.begin,
                .first = side_of(finding.first, finding.first_writes),
                .second = side_of(finding.second, finding.second_writes),
                .missing = finding.missing};
  std::string& text = report.text;
  text = fmt::format("stream sanitizer: {}: {} bytes at {}, {}. ", name_of(report.kind), report.bytes,
                     fmt::ptr(report.address), memory);
  if (finding.kind == RaceKind::use_after_free) {
    text += fmt::format("They were freed by thread {} at {}. They are used, though, by {}, which {} them. ",
                        report.first.thread, report.first.issued_at, in_words(report.second),
                        use_in_words(report.second));
  } else {
    text += fmt::format("First access: {}, which {} them. Second access: {}, which {} them. ",
                        in_words(report.first), use_in_words(report.first), in_words(report.second),
                        use_in_words(report.second));
    if (finding.kind == RaceKind::freed_and_reused && finding.release != nullptr) {
      text += fmt::format("In between, the memory was freed by thread {} at {}, and handed out again. ",
                          finding.release->thread, finding.release->site.in_words());
    }
    text += "Nothing orders the second behind the first. ";
  }
  text += fmt::format("What is missing: {}.", report.missing);
  return report;
}

}  // namespace tutti::stream_sanitizer
