// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/FleetFile.h"

#include <gmock/gmock.h>

#include <cmath>

namespace headrace::model {
namespace {

using testing::HasSubstr;

constexpr const char *kWhole = R"([bus]
bandwidth = "24GB/s"
d2h_bandwidth = "20GB/s"
duplex_bandwidth = "30GB/s"
[[bus.change]]
at = "2s"
bandwidth = "12GB/s"
[[bus.change]]
at = "3s"
bandwidth = "24GB/s"
[coordinator]
objective = "throughput"
queue = false
[[device]]
name = "gpu0"
role = "prefill"
job = "a.toml"
link = "10GB/s"
[[device]]
plan = "/plans/b.plan"
[[requests]]
model = "opt-13b"
count = 100
start = "1s"
every = "500ms"
random = true
batch = 8
input_len = [32, 128]
output_len = 16
ttft = "2s"
tpot = "200ms"
seed = 7
)";

TEST(FleetFile, ReadsEveryKey) {
  const absl::StatusOr<FleetSpec> fleet = parseFleet(kWhole, "folder/f.toml");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_EQ(fleet->busBandwidth, 24e9);
  EXPECT_EQ(fleet->busD2hBandwidth, 20e9);
  EXPECT_EQ(fleet->busDuplexBandwidth, 30e9);
  ASSERT_EQ(fleet->changes.size(), 2U);
  EXPECT_EQ(fleet->changes[0].at, std::chrono::seconds(2));
  EXPECT_EQ(fleet->changes[0].bandwidth, 12e9);
  EXPECT_TRUE(fleet->throughput);
  EXPECT_FALSE(fleet->queue);
  ASSERT_EQ(fleet->devices.size(), 2U);
  EXPECT_EQ(fleet->devices[0].role, FleetRole::Prefill);
  EXPECT_EQ(fleet->devices[0].job, "folder/a.toml");
  EXPECT_EQ(fleet->devices[0].link, 10e9);
  EXPECT_EQ(fleet->devices[1].name, "device1");
  EXPECT_EQ(fleet->devices[1].role, FleetRole::Both);
  EXPECT_EQ(fleet->devices[1].plan, "/plans/b.plan");
  ASSERT_EQ(fleet->loads.size(), 1U);
  const FleetLoad &load = fleet->loads[0];
  EXPECT_EQ(load.count, 100);
  EXPECT_EQ(load.every, std::chrono::milliseconds(500));
  EXPECT_TRUE(load.random);
  EXPECT_EQ(load.batch.least, 8);
  EXPECT_EQ(load.batch.most, 8);
  EXPECT_EQ(load.inputLength.least, 32);
  EXPECT_EQ(load.inputLength.most, 128);
  EXPECT_EQ(load.tpot, std::chrono::milliseconds(200));
  EXPECT_EQ(load.seed, 7U);
}

// The file above with one line changed is refused for this.
void refused(const std::string &from, const std::string &to, const std::string &message) {
  std::string text = kWhole;
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const absl::StatusOr<FleetSpec> fleet = parseFleet(text, "f.toml");
  ASSERT_FALSE(fleet.ok()) << to;
  EXPECT_THAT(std::string(fleet.status().message()), HasSubstr(message)) << to;
}

TEST(FleetFile, ABusOfWhichOnlyOneDirectionIsSaidLimitsNoOther) {
  std::string text = kWhole;
  text.erase(text.find("d2h_bandwidth"),
             std::string("d2h_bandwidth = \"20GB/s\"\nduplex_bandwidth = \"30GB/s\"\n").size());
  const absl::StatusOr<FleetSpec> fleet = parseFleet(text, "f.toml");
  ASSERT_TRUE(fleet.ok()) << fleet.status();
  EXPECT_TRUE(std::isinf(fleet->busD2hBandwidth) && std::isinf(fleet->busDuplexBandwidth));
}

TEST(FleetFile, RefusesByLineAndKey) {
  refused("bandwidth = \"24GB/s\"\n", "", "bus.bandwidth");
  refused("24GB/s", "0GB/s", "bandwidth");
  refused("d2h_bandwidth = \"20GB/s\"", "d2h_bandwidth = \"0GB/s\"", "f.toml:3: bus.d2h_bandwidth");
  refused("d2h_bandwidth = \"20GB/s\"", "d2h_bandwidth = 0", "f.toml:3: bus.d2h_bandwidth");
  refused("duplex_bandwidth = \"30GB/s\"", "duplex_bandwidth = \"0GB/s\"", "f.toml:4: bus.duplex_bandwidth");
  refused("30GB/s", "23GB/s", "bus.duplex_bandwidth = \"23GB/s\": expected at least the larger of bandwidth and");
  refused("at = \"3s\"", "at = \"1s\"", "f.toml:9: change.at = \"1s\": expected a time that is not before");
  refused("at = \"2s\"", "at = \"-2s\"", "change.at");
  refused("throughput", "speed", "coordinator.objective = \"speed\": expected \"freed-memory\"");
  refused("role = \"prefill\"", "role = \"encode\"", "device.role = \"encode\"");
  refused("name = \"gpu0\"", "name = \"device1\"", "no other device has");
  refused("job = \"a.toml\"", "job = \"a.toml\"\nplan = \"a.plan\"", "either plan or job");
  refused("job = \"a.toml\"\n", "", "either plan or job");
  refused("[32, 128]", "[128, 32]", "requests.input_len");
  refused("[32, 128]", "[32]", "[least, most]");
  refused("batch = 8", "batch = 0", "requests.batch = 0");
  refused("tpot = \"200ms\"", "tpot = \"0ms\"", "requests.tpot");
  refused("tpot = \"200ms\"", "tpot = nan", "requests.tpot");
  refused("ttft = \"2s\"\n", "", "requests.ttft");
  refused("count = 100", "count = -1", "requests.count = -1");
  refused("seed = 7", "seeds = 7", "seeds");
  refused("model = \"opt-13b\"\n", "", "requests.model");
}

TEST(FleetFile, RefusesAFileWithoutDevicesOrRequests) {
  for (const char *text :
       {"", "[bus]\nbandwidth = \"1GB/s\"\n", "bus = 3\n", "[bus]\nbandwidth = \"1GB/s\"\ndevice = 4\n"})
    EXPECT_FALSE(parseFleet(text, "f.toml").ok()) << text;
}

} // namespace
} // namespace headrace::model
