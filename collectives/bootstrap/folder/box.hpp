// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/cipher.hpp"
#include "os/descriptor.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::shared_folder {

using Bytes = std::vector<std::byte>;

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Returns the text that `Box::put_by` has written.
[[nodiscard]] inline std::string text_of(const Bytes& bytes) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::string(all.substr(0, all.find('\0')));
}

/// Returns random bytes as 32 hexadecimal digits, which are part of names.
[[nodiscard]] std::string draw_name();

/// A folder whose files appear whole and are signed. Names do not contain '/', and begin with a letter.
/// Throws Error(transport_failure) with errno, and Error(invalid_argument) for files and folders of others.
class Box {
 public:
  /// Opens the folder in which a job's folder is: see `shared_folder.hpp` for what it must be like.
  [[nodiscard]] static Box open_shared(const std::string& path);
  /// Opens a folder of this one that only the user can use, and makes it if there is none.
  [[nodiscard]] Box inner(const std::string& name) const;
  /// Opens a folder of this one that exists, or returns nothing.
  [[nodiscard]] std::optional<Box> existing(const std::string& name) const;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Writes a file, in place of one that exists. The tag depends on the key, `place` and the name.
  void put(const tcp::Key& key, std::string_view place, const std::string& name,
           std::span<const std::byte> bytes) const;
  /// Returns a file's bytes; nothing if there is none, or its tag is wrong.
  [[nodiscard]] std::optional<Bytes> get(const tcp::Key& key, std::string_view place,
                                         const std::string& name) const;
  /// Makes a file that `put_by` turns into another: its space is there when the disk is full.
  void reserve(const tcp::Key& key, std::string_view place, const std::string& spare) const;
  /// Writes a short text to a file in place of one that exists, by a file that `reserve` has made, which is
  /// gone then. `get` returns the text's beginning, with zeros behind it.
  void put_by(const std::string& spare, const tcp::Key& key, std::string_view place, const std::string& name,
              std::span<const std::byte> text) const;
  /// Returns whether there is a file or folder of the name.
  [[nodiscard]] bool has(const std::string& name) const;
  /// Removes files that are not complete, and folders whose removal was not completed. Nobody may be writing
  /// any.
  void remove_parts() const noexcept;
  /// Lists names, as they are now as far as the file system tells: those of files that are not complete are
  /// left out.
  [[nodiscard]] std::vector<std::string> names() const;
  void remove(const std::string& name) const noexcept;
  /// Removes a folder with all that is in it; nothing happens if there is none. Its name is gone first:
  /// whoever fails to write a file there then sees why.
  void remove_inner(const std::string& name) const noexcept;
  /// Removes a folder if it is empty.
  void remove_empty(const std::string& name) const noexcept;

 private:
  /// Removes a file, or a folder with all that is in it.
  void remove_all(const std::string& name) const noexcept;
  Box(std::string path, Descriptor folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  /// Calls `work` with each name. Throws if the folder cannot be listed.
  template <class Work>
  void for_each_name(const Work& work) const;
  /// Opens a file for reading, with an errno if that fails. A network file system may remember for a while
  /// that there was none, but asks the server once the folder has been opened anew.
  [[nodiscard]] Descriptor open_now(const std::string& name) const;
  [[noreturn]] void fail(const std::string& name) const;
  /// Checks that nobody else can write there.
  void require_own() const;

  std::string path_;
  Descriptor folder_;
};

}  // namespace tutti::shared_folder
