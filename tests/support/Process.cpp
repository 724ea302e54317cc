// SPDX-License-Identifier: Apache-2.0
#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

extern char **environ;

namespace headrace::tools {

// As many cores as a machine may have: what it computes is the same, and tests run beside each other. Those that are
// about threads say --threads.
[[maybe_unused]] static const int kOneThread = ::setenv("HEADRACE_THREADS", "1", 1);

std::string readFile(const std::string &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void writeText(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

namespace {

// Standard output to `out`, standard error to `err`.
Outcome start(std::vector<std::string> words, const std::function<bool()> &when, int signal, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  // A test that runs in the background of a shell has SIGINT ignored, and a child would keep that.
  sigset_t interrupts;
  sigemptyset(&interrupts);
  sigaddset(&interrupts, SIGINT);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &interrupts);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  Outcome outcome;
  pid_t child = 0;
  int status = 0;
  if (::posix_spawn(&child, argv.front(), &actions, &attributes, argv.data(), environ) == 0) {
    pid_t ended = 0;
    for (bool killed = false; when && (ended = ::waitpid(child, &status, WNOHANG)) == 0;) {
      if (!killed && when()) {
        ::kill(child, signal);
        killed = true;
      }
      ::usleep(1000);
    }
    if (ended == child || ::waitpid(child, &status, 0) == child)
      outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return outcome;
}

// A file that is gone once it was read.
class Scratch {
public:
  Scratch() : file(::mkstemp(name_)) {}
  ~Scratch() {
    ::close(file);
    ::unlink(name_);
  }
  std::string text() const { return readFile(name_); }

private:
  char name_[32] = "/tmp/headrace-out-XXXXXX";

public:
  const int file;
};

Outcome launched(std::vector<std::string> words, const std::function<bool()> &when, int signal) {
  const Scratch out, err;
  Outcome outcome = start(std::move(words), when, signal, out.file, err.file);
  outcome.out = out.text();
  outcome.err = err.text();
  return outcome;
}

std::vector<std::string> binaryWith(const std::vector<std::string> &arguments) {
  std::vector<std::string> words = {HEADRACE_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

} // namespace

Outcome headraceOnTerminal(const std::vector<std::string> &arguments) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0);
  const int shown = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  winsize size{};
  size.ws_col = 120;
  ::ioctl(shown, TIOCSWINSZ, &size);
  const Scratch out;
  Outcome outcome = start(binaryWith(arguments), nullptr, SIGKILL, out.file, shown);
  outcome.out = out.text();
  ::close(shown); // so that reading ends: what was shown fits a terminal's buffer
  char buffer[4096];
  for (ssize_t got; (got = ::read(terminal, buffer, sizeof(buffer))) > 0;)
    outcome.err.append(buffer, static_cast<size_t>(got));
  ::close(terminal);
  return outcome;
}

Outcome headrace(const std::vector<std::string> &arguments) { return headraceKilled(arguments, nullptr); }

Outcome headraceKilled(const std::vector<std::string> &arguments, const std::function<bool()> &when, int signal) {
  return launched(binaryWith(arguments), when, signal);
}

Outcome shell(const std::string &command) {
  return launched({"/bin/sh", "-c", "HEADRACE=" HEADRACE_BINARY "; " + command}, nullptr, SIGKILL);
}

CommandLine::CommandLine() {
  char name[] = "/tmp/headrace-tools-XXXXXX";
  folder = ::mkdtemp(name);
}

CommandLine::~CommandLine() { std::filesystem::remove_all(folder); }

std::string CommandLine::golden(const std::string &model) { return sourceDir() + "/tests/golden/" + model; }

nlohmann::json CommandLine::reference(const std::string &model) {
  return nlohmann::json::parse(readFile(golden(model) + "/reference.json"));
}

std::string CommandLine::copyModel(const std::string &model) const {
  const std::string copy = path("model");
  std::filesystem::create_directory(copy);
  for (const auto &entry : std::filesystem::directory_iterator(golden(model)))
    if (!entry.path().filename().string().starts_with("reference"))
      std::filesystem::copy_file(entry.path(), copy / entry.path().filename());
  return copy;
}

void CommandLine::editConfig(const std::string &copy, const nlohmann::json &patch) {
  nlohmann::json config = nlohmann::json::parse(readFile(copy + "/config.json"));
  config.merge_patch(patch);
  writeText(copy + "/config.json", config.dump(2));
}

std::vector<std::string> CommandLine::files() const {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(folder))
    names.push_back(entry.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> CommandLine::contents() const {
  std::map<std::string, std::string> all;
  for (const std::string &name : files())
    all[name] = std::filesystem::is_regular_file(name) ? readFile(name) : "";
  return all;
}

nlohmann::json CommandLine::json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = headrace(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  nlohmann::json parsed = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << outcome.out;
  return parsed;
}

void CommandLine::refused(const std::vector<std::string> &arguments, int status, const std::string &message) const {
  const std::map<std::string, std::string> before = contents();
  const Outcome outcome = headrace(arguments);
  std::string line;
  for (const std::string &word : arguments)
    line += word + " ";
  EXPECT_EQ(outcome.status, status) << line << "\n" << outcome.err;
  EXPECT_THAT(outcome.err, testing::HasSubstr(message)) << line;
  EXPECT_EQ(outcome.out, "") << line;
  EXPECT_TRUE(contents() == before) << line << "changed files"; // without their contents, which may be large
}

} // namespace headrace::tools
