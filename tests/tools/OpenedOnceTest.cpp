// SPDX-License-Identifier: Apache-2.0
//
// A model's folder is opened once a command: each of its files, whoever reads the config, checks the tensors, takes the
// model's hash, hashes the weights or loads them.
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/inotify.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::Each;
using testing::Ge;
using testing::Pair;
using testing::SizeIs;

// Counts how often each file of a folder is opened.
class Opened {
public:
  explicit Opened(const std::string &folder) : watch_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(watch_, folder.c_str(), IN_OPEN), 0) << std::strerror(errno);
  }
  ~Opened() { ::close(watch_); }
  Opened(const Opened &) = delete;
  Opened &operator=(const Opened &) = delete;

  // Since the last call, by name.
  std::map<std::string, int> take() const {
    std::map<std::string, int> counts;
    alignas(inotify_event) std::array<char, 1 << 16> events;
    for (ssize_t size = 0; (size = ::read(watch_, events.data(), events.size())) > 0;)
      for (ssize_t at = 0; at < size;) {
        inotify_event event;
        std::memcpy(&event, events.data() + at, sizeof(event));
        if (event.len > 0 && (event.mask & IN_ISDIR) == 0)
          ++counts[events.data() + at + sizeof(event)];
        at += static_cast<ssize_t>(sizeof(event) + event.len);
      }
    return counts;
  }

private:
  int watch_;
};

class OpenedOnce : public CommandLine, public testing::WithParamInterface<const char *> {
protected:
  OpenedOnce() : model(copyModel(GetParam())), opened(model) { opened.take(); }
  // Runs a command that succeeds: config.json and the checkpoint's files, each once.
  void expectOnce(const std::vector<std::string> &arguments) const {
    const Outcome outcome = headrace(arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::map<std::string, int> counts = opened.take();
    EXPECT_THAT(counts, SizeIs(Ge(2U)));
    EXPECT_THAT(counts, Each(Pair(testing::_, 1))) << arguments[0];
  }

  const std::string model;
  const Opened opened;
};

TEST_P(OpenedOnce, ByEveryCommandThatReadsIt) {
  const std::vector<std::string> prompt = {"--prompt-ids", "1,2,3", "--max-new-tokens", "4"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string> &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::string plan = path("m.plan");
  expectOnce(
      {"compile", model, "--hardware", "host", "--batch", "2", "--context", "32", "--verify-weights", "-o", plan});
  expectOnce(with({"run", model, "--hardware", "host", "--interval", "2"}, prompt));
  expectOnce(with({"simulate", model, "--hardware", "host"}, prompt));
  expectOnce(with({"run", plan, "--verify-weights"}, prompt));
  expectOnce(with({"run", plan, "--weights", model}, prompt));
  expectOnce({"bench", model, "--hardware", "host", "--batches", "1,2", "--policies", "none,interval=2", "--input-len",
              "8", "--output-len", "4", "--rounds", "1"});
  expectOnce({"bench", "serve", model, "--hardware", "host", "--num-prompts", "2", "--random-input-len", "8",
              "--random-output-len", "4"});
  expectOnce({"drift", model, "--hardware", "host", "--kv-dtype", "bf16", "--prompt-ids", "1,2,3"});
  expectOnce({"profile", model, "--hardware", "host", "--batches", "1", "--sequences", "16", "--seconds-per-pair",
              "0.01", "-o", path("r.toml")});
}

// Two devices that run the same: as jobs, then as a plan.
TEST_P(OpenedOnce, ByAFleetsDevices) {
  writeText(path("job.toml"),
            "[model]\npath = \"" + model + "\"\n[hardware]\nfile = \"host\"\n[goal]\nbatch = 2\n" + "context = 32\n");
  const auto fleet = [&](const std::string &what) {
    const std::string device = "[[device]]\n" + what + "\nname = \"";
    writeText(path("fleet.toml"),
              "[bus]\nbandwidth = \"2GB/s\"\n" + device + "a\"\n" + device +
                  "b\"\n[[requests]]\nmodel = \"model\"\nbatch = 1\ninput_len = 8\noutput_len = 4\n" +
                  "ttft = \"30s\"\ntpot = \"10s\"\n");
    return path("fleet.toml");
  };
  expectOnce({"fleet", fleet("job = \"job.toml\""), "--device", "host"});
  ASSERT_EQ(headrace({"compile", path("job.toml"), "-o", path("m.plan")}).status, 0);
  opened.take();
  expectOnce({"fleet", fleet("plan = \"m.plan\""), "--device", "host"});
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, OpenedOnce, testing::Values("opt-7-tied-f32", "llama-12-tied-bias-bf16-sharded"),
                         [](const auto &info) { return info.index == 0 ? "OneFile" : "Sharded"; });

} // namespace
} // namespace headrace::tools
