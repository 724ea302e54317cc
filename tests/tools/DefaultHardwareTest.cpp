// SPDX-License-Identifier: Apache-2.0
//
// A job that names no hardware, on a machine without a GPU whose memory is said by HEADRACE_HOST_MEMORY.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class DefaultHardware : public CommandLine {
protected:
  static Outcome on(const std::string &memory, const std::string &arguments) {
    return shell("CUDA_VISIBLE_DEVICES= HEADRACE_HOST_MEMORY=" + memory + " $HEADRACE " + arguments);
  }
  const std::string model = golden("llama-7-gqa-llama3-f32");
};

TEST_F(DefaultHardware, IsTheMachineAndSaidInOneLine) {
  const Outcome o = on("23GiB", "compile " + model + " -o " + path("a.plan"));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err,
            "headrace: hardware: host, 21.0 GiB of the machine's 23.0 GiB for weights and caches; its speed as the "
            "profile host has it, which headrace profile measures; as flags: --hardware host --memory 21GiB "
            "--host-memory 21GiB\n");
  EXPECT_THAT(o.out, HasSubstr(" of 21.0 GiB allowed"));
  // The flags that it says give the plan again; so does a machine that has a little more.
  ASSERT_EQ(headrace({"compile", model, "--hardware", "host", "--memory", "21GiB", "--host-memory", "21GiB", "-o",
                      path("b.plan")})
                .status,
            0);
  ASSERT_EQ(on("23.9GiB", "compile " + model + " -o " + path("c.plan")).status, 0);
  EXPECT_EQ(readFile(path("a.plan")), readFile(path("b.plan")));
  EXPECT_EQ(readFile(path("a.plan")), readFile(path("c.plan")));
  EXPECT_EQ(on("x", "compile " + model + " --dry-run").status, 2);
}

TEST_F(DefaultHardware, OfAJobFileIsItsOwn) {
  writeText(path("job.toml"), "[model]\npath = \"" + model + "\"\n[hardware]\nfile = \"a10\"\n");
  const Outcome o = on("23GiB", "compile " + path("job.toml") + " --dry-run");
  EXPECT_EQ(o.err, "");
  EXPECT_THAT(o.out, HasSubstr("hardware       a10\n"));
}

// 12.4 GiB of weights and 8 GiB of KV: each would do alone.
TEST_F(DefaultHardware, DeviceAndHostMemoryAreTheMachinesTogether) {
  const std::string job = "compile opt-6.7b --batch 4 --context 2048 --dry-run";
  const Outcome o = on("16GiB", job);
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err,
              HasSubstr("on the host both lie in the machine's, of which plans may have 15032385536 (14.0 GiB)"));
  EXPECT_EQ(on("32GiB", job).status, 0);
  // Where it is the profile that has less, the message does not ask for memory to be bought.
  const Outcome large = on("16GiB", "compile opt-30b --batch 1 --context 64 --device-memory 4GiB --dry-run");
  EXPECT_EQ(large.status, 1);
  EXPECT_THAT(large.err, HasSubstr("; there are 14.00 GiB by --host-memory or the profile host)"));
}

TEST_F(DefaultHardware, QuietRunsDoNotSayIt) {
  const std::string talks = golden("text-models/qwen3-chat");
  const Outcome o = on("23GiB", "run " + talks + " --prompt 'The water flows' --max-new-tokens 4 --temperature 0 -q");
  EXPECT_EQ(o.status, 0);
  EXPECT_EQ(o.err, "");
}

} // namespace
} // namespace headrace::tools
