// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/Process.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

extern char **environ;

namespace headrace::tools {

std::string readFile(const std::string &path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

void writeText(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

Outcome headrace(const std::vector<std::string> &arguments) { return headraceKilled(arguments, nullptr); }

Outcome headraceKilled(const std::vector<std::string> &arguments, const std::function<bool()> &when) {
  char outName[] = "/tmp/headrace-out-XXXXXX", errName[] = "/tmp/headrace-err-XXXXXX";
  const int out = ::mkstemp(outName), err = ::mkstemp(errName);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  std::vector<std::string> words = {HEADRACE_BINARY};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> argv;
  for (std::string &word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  Outcome outcome;
  pid_t child = 0;
  int status = 0;
  if (::posix_spawn(&child, HEADRACE_BINARY, &actions, nullptr, argv.data(), environ) == 0) {
    pid_t ended = 0;
    for (bool killed = false; when && (ended = ::waitpid(child, &status, WNOHANG)) == 0;) {
      if (!killed && when()) {
        ::kill(child, SIGKILL);
        killed = true;
      }
      ::usleep(1000);
    }
    if (ended == child || ::waitpid(child, &status, 0) == child)
      outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  posix_spawn_file_actions_destroy(&actions);
  ::close(out);
  ::close(err);
  outcome.out = readFile(outName);
  outcome.err = readFile(errName);
  ::unlink(outName);
  ::unlink(errName);
  return outcome;
}

CommandLine::CommandLine() {
  char name[] = "/tmp/headrace-tools-XXXXXX";
  folder = ::mkdtemp(name);
}

CommandLine::~CommandLine() { std::filesystem::remove_all(folder); }

std::string CommandLine::golden(const std::string &model) {
  return std::string(HEADRACE_SOURCE_DIR) + "/tests/golden/" + model;
}

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

nlohmann::json CommandLine::json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Outcome outcome = headrace(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  nlohmann::json parsed = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << outcome.out;
  return parsed;
}

void CommandLine::refused(const std::vector<std::string> &arguments, int status, const std::string &message) const {
  const std::vector<std::string> before = files();
  const Outcome outcome = headrace(arguments);
  std::string line;
  for (const std::string &word : arguments)
    line += word + " ";
  EXPECT_EQ(outcome.status, status) << line << "\n" << outcome.err;
  EXPECT_THAT(outcome.err, testing::HasSubstr(message)) << line;
  EXPECT_EQ(outcome.out, "") << line;
  EXPECT_EQ(files(), before) << line << "left files behind";
}

} // namespace headrace::tools
