// SPDX-License-Identifier: Apache-2.0
#include "backend/host/compiler.hpp"

#include "backend/host/child_program.hpp"
#include "base/quoted_text.hpp"
#include "os/descriptor.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::backend::host {
namespace {

constexpr std::size_t longest_complaint = 4000;
constexpr std::array exhaustions{ENOSPC, EDQUOT, EFBIG, ENOMEM, EAGAIN, EMFILE, ENFILE};

/// Throws what is not the text's fault. `error` is an errno, 0 where there is none.
[[noreturn]] void refuse_to_compile(const std::string& reason, int error = 0) {
  const bool is_exhausted = std::ranges::find(exhaustions, error) != exhaustions.end();
  throw Error(is_exhausted ? ErrorCode::out_of_memory : ErrorCode::unsupported,
              "source text cannot be compiled for virtual devices: " + reason, error);
}

[[noreturn]] void refuse_text(const std::string& reason) {
  throw Error(ErrorCode::invalid_argument, "the source text " + reason);
}

/// A directory of this process's own, gone with the object.
class PrivateDirectory {
 public:
  PrivateDirectory() {
    const char* const given = std::getenv("TMPDIR");
    path_ = fmt::format("{}/tutti-jit-XXXXXX", given == nullptr || *given == 0 ? "/tmp" : given);
    if (mkdtemp(path_.data()) == nullptr) {
      const int error = errno;
      refuse_to_compile(
          fmt::format("the directory {} cannot be made: {}, expected one that can be written in "
                      "TMPDIR, or in /tmp without it",
                      path_, std::strerror(error)),
          error);
    }
  }
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory() {
    for (const std::string& file : files_) static_cast<void>(unlink(file.c_str()));
    static_cast<void>(rmdir(path_.c_str()));
  }
  /// The path of a file there, which goes with it.
  std::string file(std::string_view name) { return files_.emplace_back(fmt::format("{}/{}", path_, name)); }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

void write_text(const std::string& path, std::string_view text) {
  const Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  while (file.is_open() && !text.empty()) {
    const ssize_t count = write(file.number(), text.data(), text.size());
    if (count < 0 && errno != EINTR) break;
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (text.empty()) return;
  const int error = errno;
  refuse_to_compile(fmt::format("{} cannot be written: {}", path, std::strerror(error)), error);
}

/// A compiler that was started, by one of its names.
struct CompilerRun {
  std::string compiler{};
  ChildEnd end{};

  /// Returns the program's output for messages.
  [[nodiscard]] std::string said() const {
    return end.output.empty() ? ", without output"
                              : ", with the output: " + end.output.substr(0, longest_complaint);
  }
};

CompilerRun run_compiler(const std::string& compiler, const std::string& source, const std::string& object,
                         std::chrono::milliseconds limit) {
  // Options that both of the usual compilers know. Products and sums stay apart, as they do on GPUs.
  return {compiler, run_program({compiler, "-x", "c++", "-std=c++17", "-O2", "-w", "-fPIC", "-shared",
                                 "-ffp-contract=off", "-fvisibility=hidden", "-o", object, source},
                                limit)};
}

/// Runs the compiler `given`, or the first of the usual ones that can be started.
CompilerRun run_any(const std::string& given, const std::string& source, const std::string& object,
                    std::chrono::milliseconds limit) {
  std::string failures;
  const std::vector<std::string> usual{"c++", "g++", "clang++"};
  for (const std::string& compiler : given.empty() ? usual : std::vector{given}) {
    CompilerRun run = run_compiler(compiler, source, object, limit);
    const int error = run.end.start_error;
    if (error == 0) return run;
    const std::string reason = std::strerror(error);
    if (!given.empty()) {
      refuse_to_compile(fmt::format("TUTTI_JIT_CXX is \"{}\", which is taken as one file name and cannot be "
                                    "started: {}, expected the path of "
                                    "one C++ compiler, or its name as PATH finds it, without options",
                                    quoted_text(given, 200), reason),
                        error);
    }
    if (std::ranges::find(exhaustions, error) != exhaustions.end())
      refuse_to_compile(fmt::format("the compiler {} cannot be started: {}", compiler, reason), error);
    failures += fmt::format("{}{}: {}", failures.empty() ? "" : ", ", compiler, reason);
  }
  refuse_to_compile(
      fmt::format("there is no C++ compiler ({}): install one, or name one by TUTTI_JIT_CXX", failures));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Tells whether a line is an error at a place of a source, such as "source:1:5: error: ...", and not one of
/// the compiler's own.
bool is_error_of_source(std::string_view line) {
  std::string_view before = line.substr(0, std::min(line.find("rror: "), line.size()));
  if (before.size() == line.size() || before.empty()) return false;
  before.remove_suffix(1);  // 'e' or, an assembler's, 'E'
  constexpr std::string_view fatal = "fatal ";
  if (before.ends_with(fatal)) before.remove_suffix(fatal.size());
  if (!before.ends_with(": ")) return false;
  before.remove_suffix(2);
  const std::string_view place = before.substr(std::min(before.rfind(':') + 1, before.size()));
  return place.size() < before.size() && place.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Tells whether a line shows a line of the source, as "    3 | int a;" does, and says nothing itself.
bool shows_source(std::string_view line) {
  const std::size_t behind = line.find_first_not_of(" 0123456789");
  return behind != std::string_view::npos && line[behind] == '|';
}

/// Tells whether a line says that the system refused something, in words that stand at its end.
bool tells_of(std::string_view line, std::string_view words) {
  line = line.substr(0, line.find_last_not_of(" '\"\r") + 1);
  if (!line.ends_with(words)) return false;
  line.remove_suffix(words.size());
  return line.ends_with(": ") || line.ends_with(": '");
}

/// Finds the errno of what the system refused to the compiler, by the words of its messages; 0 if there are
/// none. Words of the text, as in a static_assert, are in lines that show the source, and in errors at a
/// place of it that are not fatal.
int exhaustion_in(std::string_view output) {
  for (const std::string_view line : lines_of(output)) {
    const bool is_fatal = line.find("fatal error: ") != std::string_view::npos;
    if (shows_source(line) || (is_error_of_source(line) && !is_fatal)) continue;
    if (line.find(strsignal(SIGXFSZ)) != std::string_view::npos) return EFBIG;
    for (const int error : exhaustions) {
      if (tells_of(line, std::strerror(error))) return error;
    }
  }
  return 0;
}

/// Throws what it says, if that is that the text is wrong; or that the system refuses it something.
void refuse_by_words(const CompilerRun& run) {
  if (const int error = exhaustion_in(run.end.output); error != 0)
    refuse_to_compile(fmt::format("the compiler {} has failed{}", run.compiler, run.said()), error);
  const auto lines = lines_of(run.end.output);
  if (std::ranges::any_of(lines, is_error_of_source))
    refuse_text("does not compile: " + run.end.output.substr(0, longest_complaint));
}

/// Throws if the compiler has failed, as far as that is known.
void require_success(const CompilerRun& run, std::chrono::milliseconds limit) {
  if (run.end.was_late) {
    refuse_to_compile(fmt::format("the compiler {} had not ended after {} ms, and was ended{}", run.compiler,
                                  limit.count(), run.said()));
  }
  if (!run.end.status) return;
  const int status = *run.end.status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFSIGNALED(status)) {
    refuse_to_compile(fmt::format("the compiler {} was ended by signal {} ({}){}", run.compiler,
                                  WTERMSIG(status), strsignal(WTERMSIG(status)), run.said()));
  }
  refuse_by_words(run);
  refuse_to_compile(
      fmt::format("the compiler {} ended with status {}{}", run.compiler, WEXITSTATUS(status), run.said()));
}

/// Throws why there is no function. `is_loaded`: there is a library, but without the entry.
[[noreturn]] void refuse_to_load(const CompilerRun& run, bool is_loaded) {
  const char* const error = dlerror();
  const std::string reason = error == nullptr ? "the loader gives no reason" : error;
  if (!run.end.status) {
    refuse_by_words(run);
    refuse_to_compile(fmt::format(
        "the exit status of the compiler {} is not known, because this process ignores SIGCHLD or "
        "waits for all its children{}; the library that it made cannot be loaded: {}",
        run.compiler, run.said(), reason));
  }
  if (!is_loaded && reason.find("undefined symbol") != std::string::npos)
    refuse_text("uses a symbol that is not defined: " + reason);
  refuse_to_compile(
      fmt::format("the library that the compiler {} made cannot be loaded: {}", run.compiler, reason));
}

}  // namespace

void* compile_with_system(const CodeText& code, std::chrono::milliseconds limit) {
  PrivateDirectory directory;
  const std::string source = directory.file("source.cpp");
  const std::string object = directory.file("object.so");
  write_text(source, code.text);
  const CompilerRun run = run_any(code.compiler, source, object, limit);
  require_success(run, limit);
  void* const library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const function = library == nullptr ? nullptr : dlsym(library, code.entry.c_str());
  if (function == nullptr) refuse_to_load(run, library != nullptr);
  return function;
}

}  // namespace tutti::backend::host
