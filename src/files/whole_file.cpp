// SPDX-License-Identifier: Apache-2.0
#include "files/whole_file.hpp"

#include "files/part_file.hpp"
#include "files/place.hpp"
#include "os/write_with_deadline.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

namespace tutti::files {

WholeFile::WholeFile(std::string path, std::chrono::milliseconds patience)
    : path_(std::move(path)), patience_(patience) {
  const Place place(path_);
  if (place.may_be_replaced()) {
    const PartFile part(place);
    if (part.is_open()) check(part.write(0, "\n"));
    if (part.is_open()) return;
  }
  where_it_is_ = place.open_where_it_is(patience_);
  check(where_it_is_.is_open());
  if (place.is_stream()) write_to(where_it_is_.number(), "\n");
}

void WholeFile::write(std::string_view text) {
  if (!where_it_is_.is_open()) {
    const Place place(path_);
    PartFile whole(place);
    if (whole.is_open()) {
      check(whole.write(0, text) && whole.deliver(place, patience_));
      return;
    }
    where_it_is_ = place.open_where_it_is(patience_);
    check(where_it_is_.is_open());
  }
  check(empty(where_it_is_));
  write_to(where_it_is_.number(), text);
}

void WholeFile::check(bool is_right) const {
  if (!is_right) throw std::system_error(errno, std::generic_category(), path_);
}

void WholeFile::write_to(int file, std::string_view text) const {
  check(write_with_deadline(file, text, patience_) == text.size());
}

}  // namespace tutti::files
