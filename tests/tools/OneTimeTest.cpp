// SPDX-License-Identifier: Apache-2.0
//
// One time for one thing: a batch of equal lengths, greedy, all at once, takes the same to the nanosecond in bench, in
// simulate and in bench serve, whatever the model, the hardware and the lengths. So do the gaps between its tokens
// where weights are offloaded; what is in the slots before the first token is not the same in all three then.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "tests/support/LongRun.h"
#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

class OneTime : public CommandLine {};

struct Load {
  std::vector<std::string> words; // the model, the hardware and sizes, as each of the commands takes them
  std::string policy;
  int64_t batch = 1, input = 2, output = 2;
  bool offloads() const { return policy != "none"; }
};

// What a batch took, ns: to its first tokens, and all the gaps behind them.
struct Took {
  int64_t first = 0, gaps = 0;
  bool operator==(const Took &) const = default;
};
std::ostream &operator<<(std::ostream &out, const Took &took) {
  return out << took.first << " ns, then " << took.gaps << " ns";
}

class Draw {
public:
  explicit Draw(uint32_t seed) : random_(seed) {}

  Load load() {
    Load out;
    const bool chunks = among<bool>({false, false, true}); // of one prompt; of more others would decode beside it
    out.batch = chunks ? 1 : among<int64_t>({1, 2, 3, 8, 16});
    out.input = chunks ? between(2100, 6000) : between(2, 2048 / out.batch);
    out.output = between(2, 12);
    out.policy = among<std::string>({"none", "none", "deepspeed", "accelerate"});
    const int64_t head = among<int64_t>({64, 128}), kvHeads = among<int64_t>({1, 2, 4});
    const int64_t heads = kvHeads * among<int64_t>({1, 2}), context = out.input + out.output;
    const bool host = among<bool>({false, false, false, true});
    out.words = {"--family", "llama", "--layers", text(between(2, 6)), "--hidden", text(heads * head), "--heads",
                 text(heads), "--kv-heads", text(kvHeads), "--intermediate", text(64 * between(4, 40)), "--vocab",
                 text(64 * between(4, 500)), "--max-positions", "8192", "--dtype", host ? "f32" : "f16", "--hardware",
                 host ? "host" : among<std::string>({"a10", "h100", "gh200", "v100-16-power9"}), "--h2d-bandwidth",
                 text(between(1, 60)) + "GB/s",
                 // Room enough that nobody waits for a block.
                 "--kv-tokens", text(2 * out.batch * (context + 16)), "--context", text(context)};
    return out;
  }

private:
  template <class Value> Value among(const std::vector<Value> &values) {
    return values[static_cast<size_t>(between(0, static_cast<int64_t>(values.size()) - 1))];
  }
  int64_t between(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }
  static std::string text(int64_t number) { return std::to_string(number); }

  std::mt19937 random_;
};

int64_t nanoseconds(double ms) { return std::llround(ms * 1e6); }

class Commands {
public:
  Commands(const Load &load, std::function<nlohmann::json(std::vector<std::string>)> json)
      : load_(load), json_(std::move(json)) {}

  Took bench() const {
    const nlohmann::json row =
        json_(with({"bench"}, {"--device", "sim", "--instances", "together", "--policies", load_.policy, "--batches",
                               std::to_string(load_.batch), "--input-len", std::to_string(load_.input), "--output-len",
                               std::to_string(load_.output), "--rounds", "1", "--json"}))["rows"][0];
    const nlohmann::json &prefill = row["prefill"], &decode = row["decode"];
    EXPECT_EQ(prefill["p50_ms"], prefill["p99_ms"]);
    return {nanoseconds(prefill["p99_ms"]),
            std::llround(decode["samples"].get<double>() * static_cast<double>(load_.batch) /
                         decode["tokens_per_second"].get<double>() * 1e9)};
  }

  Took simulate() const {
    const nlohmann::json run =
        json_(with({"simulate"},
                   sizes({"--random-input-len", std::to_string(load_.input), "--num-prompts",
                          std::to_string(load_.batch), "--max-new-tokens", std::to_string(load_.output), "--json"})));
    return {nanoseconds(run["ttft_ms"]), nanoseconds(run["tpot_ms"].get<double>() * gaps())};
  }

  Took serve() const {
    const nlohmann::json run = json_(with(
        {"bench", "serve"}, sizes({"--device", "sim", "--random-input-len", std::to_string(load_.input),
                                   "--num-prompts", std::to_string(load_.batch), "--random-output-len",
                                   std::to_string(load_.output), "--request-rate", "inf", "--json"})))["results"][0];
    const int64_t first = nanoseconds(run["ttft_ms"]["max"]); // of all of them
    return {first, nanoseconds(run["e2el_ms"]["max"]) - first};
  }

private:
  double gaps() const { return static_cast<double>(load_.output - 1); }

  std::vector<std::string> with(std::vector<std::string> command, const std::vector<std::string> &flags) const {
    command.insert(command.end(), load_.words.begin(), load_.words.end());
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }

  std::vector<std::string> sizes(std::vector<std::string> flags) const {
    flags.insert(flags.end(), {"--policy", load_.policy, "--batch", std::to_string(load_.batch)});
    return flags;
  }

  const Load &load_;
  const std::function<nlohmann::json(std::vector<std::string>)> json_;
};

TEST_F(OneTime, BenchSimulateAndBenchServeAgreeToTheNanosecond) {
  Draw draw(20);
  for (int i = 0; i < casesOf(20, 200); ++i) {
    const Load load = draw.load();
    SCOPED_TRACE(testing::Message() << i << ": " << load.policy << ", " << load.batch << " of " << load.input << " + "
                                    << load.output << ": " << testing::PrintToString(load.words));
    const Commands commands(load, [](std::vector<std::string> words) { return json(std::move(words)); });
    const Took bench = commands.bench(), simulate = commands.simulate(), serve = commands.serve();
    EXPECT_GT(bench.gaps, 0);
    EXPECT_EQ(bench.gaps, simulate.gaps);
    EXPECT_EQ(bench.gaps, serve.gaps);
    if (!load.offloads()) {
      EXPECT_EQ(bench, simulate);
      EXPECT_EQ(bench, serve);
    }
  }
}

} // namespace
} // namespace headrace::tools
