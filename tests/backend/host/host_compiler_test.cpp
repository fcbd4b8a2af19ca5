// SPDX-License-Identifier: Apache-2.0
// How the system's compiler is run for virtual devices, and what is said of each way in which that can fail.
// Scripts stand in for compilers.

#include "backend/host/compiler.hpp"
#include "support/errors.hpp"
#include "support/variable_guard.hpp"
#include "tutti/error.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace tutti::backend::host {
namespace {

using test::refuses;
using test::VariableGuard;

const std::string add_text =
    "extern \"C\" __attribute__((visibility(\"default\"))) int add(int a) { return a + 1; }";

/// Gives a signal another disposition as long as it exists.
class SignalGuard {
 public:
  SignalGuard(int signal, void (*handler)(int)) : signal_(signal), before_(std::signal(signal, handler)) {}
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard() { std::signal(signal_, before_); }

 private:
  int signal_;
  void (*before_)(int);
};

/// Bounds how long files of this process, and of those it starts, may be.
class FileSizeGuard {
 public:
  explicit FileSizeGuard(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeGuard(const FileSizeGuard&) = delete;
  FileSizeGuard& operator=(const FileSizeGuard&) = delete;
  ~FileSizeGuard() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
  SignalGuard ignored_{SIGXFSZ, SIG_IGN};
};

class HostCompiler : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(files_);
    std::filesystem::create_directories(scripts_);
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(files_)) << "files of a compiler are left";
    std::filesystem::remove_all(directory_);
  }

  /// A program of the shell's; `$object` is the file that it is to make.
  std::string script(const std::string& lines) const {
    const std::string path = scripts_ + "/compiler";
    std::ofstream(path) << "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\nobject=$2\n" << lines << '\n';
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  static void compile(const std::string& compiler, const std::string& text = add_text,
                      const std::string& entry = "add") {
    static_cast<void>(compile_with_system({text, entry, compiler}));
  }
  /// The script's failure has this code, and a message with all fragments.
  void expect(const std::string& lines, ErrorCode code, std::vector<std::string> fragments) const {
    const std::string compiler = script(lines);
    if (code != ErrorCode::invalid_argument)
      fragments.emplace_back("source text cannot be compiled for virtual devices: ");
    EXPECT_TRUE(refuses([&] { compile(compiler); }, code, fragments)) << lines;
  }
  /// Skips the test where nothing is compiled.
  static bool has_compiler() {
    try {
      compile("");
      return true;
    } catch (const Error& error) {
      return error.code() != ErrorCode::unsupported;
    }
  }

  const std::string directory_ = testing::TempDir() + "host_compiler." + std::to_string(getpid());
  const std::string files_ = directory_ + "/files";
  const std::string scripts_ = directory_ + "/scripts";
  const VariableGuard place_{"TMPDIR", files_};
};

TEST_F(HostCompiler, IsNotBlamedOnTheTextWhereItFails) {
  const auto unsupported = ErrorCode::unsupported;
  const std::string name = "the compiler " + scripts_ + "/compiler ";
  expect("kill -9 $$", unsupported, {name + "was ended by signal 9 (Killed), without output"});
  expect("echo working; kill -15 $$", unsupported, {"signal 15 (Terminated), with the output: working"});
  expect("echo 'c++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1", unsupported,
         {name + "ended with status 1, with the output: c++: fatal error: Killed signal"});
  expect("exit 3", unsupported, {name + "ended with status 3, without output"});
  expect("exec nothing-of-this-name", unsupported, {name + "ended with status 127, with the output: "});
  expect("echo 'source:1:5: internal compiler error: Segmentation fault'; exit 4", unsupported, {"status 4"});
  expect("echo \"c++: error: unrecognized option '-x'\"; exit 1", unsupported, {"unrecognized option"});
}

TEST_F(HostCompiler, IsNotBlamedOnTheTextWhereTheSystemRefusesRoom) {
  for (const char* const one :
       {"source:9:1: fatal error: error writing to /tmp/a.s: No space left on device",
        "/usr/bin/ld: final link failed: No space left on device",
        "/tmp/a.s: Fatal error: can't write 8 bytes to a.o: 'Disk quota exceeded'",
        "virtual memory exhausted: Cannot allocate memory",
        "c++: internal compiler error: File size limit exceeded signal terminated program"}) {
    const std::string said = one;
    expect("cat <<'END'\n" + said + "\nEND\nexit 1", ErrorCode::out_of_memory,
           {"has failed, with the output: " + said});
  }
}

TEST_F(HostCompiler, SaysWhatIsWrongWithTheText) {
  for (const char* const one :
       {"source:1:5: error: 'a' was not declared", "tutti:7:1: fatal error: a.h: No such file",
        "/tmp/a.s:19: Error: no such instruction", "/usr/include/a.h:3:1: error: static assertion",
        "source:2:2: error: #error No space left on device",
        "source:2:2: error: static assertion failed: Cannot allocate memory",
        "source:3:5: error: 'a' was not declared\n    3 | a;  // why: No space left on device",
        "source:3:5: error: 'a' was not declared\na;  // Too many open files"}) {
    const std::string said = one;
    expect("cat <<'END'\n" + said + "\nEND\nexit 1", ErrorCode::invalid_argument,
           {"the source text does not compile: " + said});
  }
}

TEST_F(HostCompiler, SaysThatItsResultCannotBeLoaded) {
  const auto unsupported = ErrorCode::unsupported;
  expect("exit 0", unsupported, {"the library that the compiler ", " made cannot be loaded: ", "object.so"});
  expect("echo nothing of use > \"$object\"", unsupported,
         {"the library that the compiler ", " made cannot be loaded: ", "object.so"});
  if (!has_compiler()) GTEST_SKIP() << "there is no compiler";
  EXPECT_TRUE(refuses([] { compile("", add_text, "other"); }, unsupported,
                      {"the library that the compiler ", " made cannot be loaded: ", "other"}));
  EXPECT_TRUE(refuses(
      [] {
        compile("", "int g(int);\n" + add_text +
                        "\nint h(int a) { return g(a); }\n"
                        "__attribute__((visibility(\"default\"))) int (*p)(int) = h;");
      },
      ErrorCode::invalid_argument,
      {"the source text uses a symbol that is not defined", "undefined symbol"}));
}

/// What the compiler has started is ended with it: the shell's child would otherwise make a file later.
TEST_F(HostCompiler, IsEndedAfterItsTime) {
  const std::string late = scripts_ + "/late";
  const std::string compiler = script("echo working; (sleep 1; touch " + late + "); exit 3");
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(compile_with_system({add_text, "add", compiler}, std::chrono::milliseconds(100)));
      },
      ErrorCode::unsupported,
      {"the compiler " + compiler + " had not ended after 100 ms, and was ended, with the output: working"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_FALSE(std::filesystem::exists(late));
}

TEST_F(HostCompiler, IsOneFileWithoutOptions) {
  for (const std::string& given : {std::string("g++ -O0"), std::string("/nowhere/c++"), scripts_})
    EXPECT_TRUE(refuses(
        [&] { compile(given); }, ErrorCode::unsupported,
        {"TUTTI_JIT_CXX is \"" + given + "\", which is taken as one file name and cannot be started: ",
         "expected the path of one C++ compiler", "without options"}));
  const std::string compiler = script("exit 3");
  std::filesystem::permissions(compiler, std::filesystem::perms::owner_read);
  EXPECT_TRUE(refuses([&] { compile(compiler); }, ErrorCode::unsupported, {"Permission denied"}));
  const VariableGuard path("PATH", files_);
  EXPECT_TRUE(refuses(
      [] { compile(""); }, ErrorCode::unsupported,
      {"there is no C++ compiler (c++: No such file or directory, g++: ", "clang++: ", "TUTTI_JIT_CXX"}));
}

TEST_F(HostCompiler, NeedsAPlaceForItsFiles) {
  const VariableGuard nowhere("TMPDIR", directory_ + "/nowhere");
  EXPECT_TRUE(refuses(
      [] { compile(""); }, ErrorCode::unsupported,
      {"the directory " + directory_ + "/nowhere/tutti-jit-", "No such file or directory", "TMPDIR"}));
}

TEST_F(HostCompiler, SaysThatItsSourceCannotBeWritten) {
  const std::string compiler = script("exit 0");
  const FileSizeGuard limit(16);
  EXPECT_TRUE(refuses([&] { compile(compiler); }, ErrorCode::out_of_memory,
                      {"source.cpp cannot be written: File too large"}));
}

TEST_F(HostCompiler, GetsNoVariablesOfTuttiAndMessagesInEnglish) {
  const VariableGuard secret("TUTTI_SECRET", "0123456789abcdef");
  const VariableGuard other("OTHER_VARIABLE", "kept");
  const VariableGuard language("LC_ALL", "de_DE.UTF-8");
  expect("env | grep '^TUTTI_'; echo $LC_ALL $OTHER_VARIABLE; exit 1", ErrorCode::unsupported,
         {"with the output: C kept\n"});
}

/// Where children are ignored the system does not tell how they have ended.
TEST_F(HostCompiler, WorksWhereChildrenAreIgnored) {
  const SignalGuard ignored(SIGCHLD, SIG_IGN);
  const std::vector<std::string> why{"is not known, because this process ignores SIGCHLD", "without output",
                                     "cannot be loaded"};
  expect("kill -9 $$", ErrorCode::unsupported, why);
  expect("exit 3", ErrorCode::unsupported, why);
  expect("echo 'source:1:5: error: wrong'; exit 1", ErrorCode::invalid_argument,
         {"does not compile: source:1:5"});
  expect("echo 'ld: No space left on device'; exit 1", ErrorCode::out_of_memory,
         {"has failed, with the output: ld"});
  if (!has_compiler()) GTEST_SKIP() << "there is no compiler";
  EXPECT_NE(compile_with_system({add_text, "add", ""}), nullptr);
}

TEST_F(HostCompiler, DoesNotGetTheSignalsThatAreBlocked) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  expect("kill -15 $$; exit 3", ErrorCode::unsupported, {"signal 15"});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace tutti::backend::host
