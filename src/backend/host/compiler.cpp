// SPDX-License-Identifier: Apache-2.0
#include "backend/host/compiler.hpp"

#include "backend/descriptor.hpp"
#include "tutti/error.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace tutti::backend::host {
namespace {

constexpr std::size_t longest_complaint = 4000;

[[noreturn]] void refuse_to_compile(const std::string& reason) {
  throw Error(ErrorCode::unsupported, "source text cannot be compiled for virtual devices: " + reason);
}

/// A directory of this process's own, gone with the object.
class PrivateDirectory {
 public:
  PrivateDirectory() {
    const char* const given = std::getenv("TMPDIR");
    path_ = fmt::format("{}/tutti-jit-XXXXXX", given == nullptr || *given == 0 ? "/tmp" : given);
    if (mkdtemp(path_.data()) == nullptr)
      refuse_to_compile(fmt::format("no directory {} can be made: {}", path_, std::strerror(errno)));
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
  if (!text.empty() || !file.is_open())
    refuse_to_compile(fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
}

struct CompilerRun {
  int error = 0;   ///< why it could not be started
  int status = 0;  ///< as `waitpid` has it
};

/// What it prints goes to `log`.
CompilerRun run_compiler(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  CompilerRun run;
  run.error = posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (run.error != 0) return run;
  while (waitpid(child, &run.status, 0) < 0) {
    if (errno == EINTR) continue;
    run.status = 0;  // nobody may wait for it, where children are ignored: what it has made tells
    break;
  }
  return run;
}

/// The names to try.
std::vector<std::string> compilers(const std::string& given) {
  if (!given.empty()) return {given};
  return {"c++", "g++", "clang++"};
}

}  // namespace

void* compile_with_system(const CodeText& code) {
  PrivateDirectory directory;
  const std::string source = directory.file("source.cpp");
  const std::string object = directory.file("object.so");
  const std::string log = directory.file("log");
  write_text(source, code.text);
  const std::vector<std::string> tried = compilers(code.compiler);
  std::optional<CompilerRun> run;
  std::string failures;
  for (const std::string& compiler : tried) {
    // Options that both of the usual compilers know. Products and sums stay apart, as they do on GPUs.
    const CompilerRun here =
        run_compiler({compiler, "-x", "c++", "-std=c++17", "-O2", "-w", "-fPIC", "-shared",
                      "-ffp-contract=off", "-fvisibility=hidden", "-o", object, source},
                     log);
    const bool is_absent = here.error != 0 || (WIFEXITED(here.status) && WEXITSTATUS(here.status) == 127);
    if (!is_absent) {
      run = here;
      break;
    }
    failures += fmt::format("{}{}: {}", failures.empty() ? "" : ", ", compiler,
                            std::strerror(here.error == 0 ? ENOENT : here.error));
  }
  if (!run) {
    refuse_to_compile(
        fmt::format("there is no C++ compiler ({}): install one, or name one by TUTTI_JIT_CXX", failures));
  }
  if (!WIFEXITED(run->status) || WEXITSTATUS(run->status) != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("the source text does not compile: {}",
                    contents_of(log).value_or("the compiler says nothing").substr(0, longest_complaint)));
  }
  void* const library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const function = library == nullptr ? nullptr : dlsym(library, code.entry.c_str());
  if (function == nullptr) {
    const char* const reason = dlerror();
    refuse_to_compile(fmt::format("what the compiler has made cannot be loaded: {}",
                                  reason == nullptr ? "the loader gives no reason" : reason));
  }
  return function;
}

}  // namespace tutti::backend::host
