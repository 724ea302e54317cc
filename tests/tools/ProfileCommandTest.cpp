// SPDX-License-Identifier: Apache-2.0
//
// headrace profile and headrace record show.
#include <gmock/gmock.h>

#include <tuple>

#include "runtime/cost/RecordFile.h"
#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count(const std::string &text, const std::string &what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size()))
    ++n;
  return n;
}

// By the medians of its sites, whatever the verdict on the layers.
uint64_t iterationNs(const cost::Record &record, cost::Cell cell) {
  cell.layerNs.clear();
  return cost::restComputeNs(cell) + cost::layerComputeNs(cell) * static_cast<uint64_t>(record.layersRun);
}

class ProfileCommand : public CommandLine {
protected:
  std::vector<std::string> simulated(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"profile",   "opt-6.7b", "--hardware",  "a10",    "--device", "sim",
                                      "--batches", "1,2",      "--sequences", "64,128", "-o",       record};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void replace(const std::string &from, const std::string &to) const {
    std::string text = readFile(record);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    writeText(record, text.replace(at, from.size(), to));
  }
  // As if it had been interrupted before its last pair.
  void dropLastCell() const {
    const std::string text = readFile(record);
    const size_t cell = text.rfind("[[cell]]"), end = text.find("[end]"), cells = text.find("cells = ", end);
    const auto left = std::stoi(text.substr(cells + 8)) - 1;
    writeText(record, text.substr(0, cell) + text.substr(end, cells + 8 - end) + std::to_string(left) + "\n");
  }
  const std::string record = path("record.toml");
};

TEST_F(ProfileCommand, TheWholeGridOfASevenBillionModelInVirtualTime) {
  const nlohmann::json j =
      json({"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim", "-o", record, "--seed", "3"});
  EXPECT_EQ(j["complete"], true);
  EXPECT_EQ(j["device"]["name"], "a10 (sim)");
  EXPECT_EQ(j["layers_equal"], true);
  const nlohmann::json &waiting = j["iterations"]["waiting_for_copies"];
  EXPECT_EQ(waiting["p99_ns"], waiting["median_ns"]); // virtual time
  EXPECT_EQ(j["iterations"]["slowest_factor"], 1.0);
  EXPECT_EQ(j["layers_run"], 32);
  EXPECT_EQ(j["grid"]["batch"].size() * j["grid"]["sequence"].size(), 8u * 6);
  for (const char *phase : {"prefill", "decode"}) {
    const nlohmann::json &pairs = j["pairs"][phase];
    EXPECT_GT(pairs["measured"], 0);
    EXPECT_EQ(pairs["missing"], 0);
    EXPECT_EQ(pairs["measured"].get<int>() + pairs["settled"].get<int>() + pairs["left_out"].get<int>(), 48);
  }
  EXPECT_GT(j["pairs"]["prefill"]["settled"], 0); // 4096 tokens compute longer than a layer is copied
  EXPECT_EQ(j["pairs"]["decode"]["settled"], 0);  // decoding never does
  EXPECT_GT(j["pairs"]["decode"]["left_out"], 0); // 24 GB hold 13.3 GB of weights and a cache of 16384 tokens
  EXPECT_EQ(j["spread"]["worst"], 0);
  EXPECT_EQ(j["transfers"].back()["bytes"], j["model"]["layer_bytes"]);
  // The same in, the same out, byte for byte.
  const std::string first = readFile(record);
  EXPECT_EQ(headrace({"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim", "-o", record, "--force"}).status,
            0);
  EXPECT_EQ(readFile(record), first);
}

TEST_F(ProfileCommand, TableOneForAnySlo) {
  ASSERT_EQ(headrace({"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim", "-o", record}).status, 0);
  const nlohmann::json j = json({"record", "show", record, "--slo-factor", "1.5"});
  int last = 32;
  for (const auto &entry : j["table"]["prefill"]) {
    const int interval = entry["interval"].get<int>(),
              tokens = entry["batch"].get<int>() * entry["sequence"].get<int>();
    if (tokens == 1024) { // Figure 11's prefill, and as in Table 1 the product decides
      EXPECT_EQ(interval, 3);
      EXPECT_EQ(entry["offloaded_layers"], 10);
    }
    if (tokens >= 8192) {
      EXPECT_EQ(interval, 1);
    }
    last = entry["sequence"] == 64 ? 32 : last; // a new row
    EXPECT_LE(interval, last);
    last = interval;
  }
  bool figure11 = false;
  for (const auto &entry : j["table"]["decode"])
    if (entry["batch"] == 128 && entry["sequence"] == 64) {
      figure11 = true;
      EXPECT_EQ(entry["interval"], 8);
    }
  EXPECT_TRUE(figure11);
  const Outcome text = headrace({"record", "show", record, "--slo", "101ms"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("prefill, SLO 101 ms, in steps of 2 ms"));
  EXPECT_THAT(text.out, HasSubstr("decode, SLO 101 ms, in steps of 2 ms"));
  EXPECT_THAT(text.out, HasSubstr("batch\\seq"));
  // 101 and 100 ms are the same step, 99 is not.
  const auto table = [&](const char *slo) { return json({"record", "show", record, "--slo", slo})["table"]; };
  EXPECT_EQ(table("101ms"), table("100ms"));
  EXPECT_NE(table("99ms"), table("100ms"));
  const Outcome plain = headrace({"record", "show", record});
  EXPECT_THAT(plain.out, HasSubstr("opt-6.7b, 32 layers"));
  EXPECT_THAT(plain.out, HasSubstr("h2d beside compute"));
  EXPECT_THAT(plain.out, HasSubstr("where layers wait for copies: objectives keep 0.0% free")); // virtual time
  EXPECT_THAT(plain.out, Not(HasSubstr("batch\\seq")));
}

// T_init is what loading took: of a folder's weights, not of a shape's.
TEST_F(ProfileCommand, LoadingIsMeasuredWhereWeightsAreFiles) {
  const std::string model = copyModel("opt-7-tied-f32");
  ASSERT_EQ(headrace({"profile", model, "--hardware", "host", "-o", record, "--batches", "1", "--sequences", "16",
                      "--seconds-per-pair", "0.01"})
                .status,
            0);
  const nlohmann::json loading = json({"record", "show", record})["loading"];
  const double bytes = loading["bytes"], rate = bytes / loading["ns"].get<double>(); // bytes/ns
  EXPECT_GT(bytes, 0);
  EXPECT_THAT(headrace({"record", "show", record}).out, HasSubstr("\nloading        "));
  const std::vector<std::string> compile = {"compile",   model, "--hardware", "host", "--batch",   "1",
                                            "--context", "16",  "--record",   record, "--dry-run", "--explain"};
  std::vector<std::string> asJson = compile;
  asJson.emplace_back("--json");
  const nlohmann::json form = json(asJson)["closed_form"];
  const double init = form["t_init_s"];
  // Its bytes at the record's rate: those of the file without norms and biases, which are a sixth of this model.
  const double ofForm = init * 1e9 * rate;
  EXPECT_LE(ofForm, bytes);
  EXPECT_GE(ofForm, 0.8 * bytes);
  EXPECT_GE(form["t_s"].get<double>(), init);
  EXPECT_THAT(headrace(compile).out, Not(HasSubstr("T_init is not measured")));
  ASSERT_EQ(headrace(simulated({"--force"})).status, 0);
  EXPECT_THAT(headrace({"record", "show", record}).out, Not(HasSubstr("\nloading  ")));
}

TEST_F(ProfileCommand, AKilledProfileIsContinued) {
  // 2.6 million weights over a link of 100 MB/s: no layer computes longer than it is copied, all 20 pairs are measured.
  writeText(path("model.toml"), "family = \"llama\"\nlayers = 4\nhidden = 256\nheads = 4\nintermediate = 512\n"
                                "vocab = 2000\nmax_positions = 256\ndtype = \"f32\"\n");
  const std::vector<std::string> words = {"profile",
                                          path("model.toml"),
                                          "--hardware",
                                          "host",
                                          "-o",
                                          record,
                                          "--batches",
                                          "1,2",
                                          "--sequences",
                                          "4,8,16,32,64",
                                          "--h2d-bandwidth",
                                          "10MB/s",
                                          "--device-memory",
                                          "64MiB",
                                          "--d2h-bandwidth",
                                          "10MB/s",
                                          "--duplex-bandwidth",
                                          "10MB/s",
                                          "--seconds-per-pair",
                                          "0.15"};
  const Outcome killed = headraceKilled(words, [&] { return count(readFile(record), "[[cell]]") >= 2; });
  ASSERT_EQ(killed.status, 128 + 9) << killed.err;
  const nlohmann::json before = json({"record", "show", record}); // whole, whenever it was killed
  EXPECT_EQ(before["complete"], false);
  const auto written = cost::readRecord(record);
  ASSERT_TRUE(written.ok()) << written.status();
  const size_t there = written->cells.size();
  EXPECT_GE(there, 2u);
  EXPECT_LT(there, 20u);
  const Outcome second = headrace(words);
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("continued; " + std::to_string(before["transfers"].size()) +
                                    " sizes of copies and " + std::to_string(there) + " pairs are there already"));
  const nlohmann::json after = json({"record", "show", record});
  EXPECT_EQ(after["complete"], true);
  EXPECT_EQ(after["transfers"], before["transfers"]);
  const auto finished = cost::readRecord(record);
  ASSERT_TRUE(finished.ok()) << finished.status();
  // As they were; what was disturbed is measured again, and kept where it took less.
  for (size_t i = 0; i < there; ++i) {
    const cost::Cell &was = written->cells[i], &is = finished->cells[i];
    EXPECT_EQ(std::tuple(is.phase, is.batch, is.sequence), std::tuple(was.phase, was.batch, was.sequence)) << i;
    if (is.sites != was.sites || is.repetitions != was.repetitions) {
      EXPECT_LT(iterationNs(*finished, is), iterationNs(*written, was)) << i;
    }
  }
  refused(words, 2, "is a complete record of this already; --force measures anew");
}

TEST_F(ProfileCommand, WritesOverNothingThatItCannotContinue) {
  ASSERT_EQ(headrace(simulated()).status, 0);
  refused(simulated(), 2, record + ": is a complete record of this already; --force measures anew");
  const auto with = [&](const std::string &flag, const std::string &value) {
    std::vector<std::string> words = simulated();
    if (const auto at = std::find(words.begin(), words.end(), flag); at != words.end())
      *(at + 1) = value;
    else
      words.insert(words.end(), {flag, value});
    return words;
  };
  refused(with("--hardware", "h100"), 2, "device = a10 (sim): this record is of another device, expected h100 (sim)");
  refused(with("--h2d-bandwidth", "12GB/s"), 2, "hardware.h2d_bandwidth = \"24GB/s\": this record was measured under");
  refused(with("--layers", "16"), 2, "this record is of another model");
  refused(with("--kv-dtype", "f32"), 2, "kv = f16: this record is of another model, expected f32");
  refused(with("--batches", "1,2,4"), 2, "grid.batch = [1, 2]: this record has another grid, expected [1, 2, 4]");
  refused(with("--sequences", "64"), 2, "grid.sequence = [64, 128]: this record has another grid, expected [64]");
  refused(with("--device-memory", "14GiB"), 2, "this record has another grid, expected");
  std::vector<std::string> other = simulated();
  other[1] = "llama-2-7b";
  refused(other, 2, "this record is of another model");
  const std::string whole = readFile(record);
  writeText(record, whole.substr(0, whole.size() / 2));
  refused(simulated(), 2, record);
  writeText(record, whole.substr(0, whole.find("[end]")));
  refused(simulated(), 2, "was cut off");
  refused({"record", "show", record}, 2, "was cut off");
  writeText(record, whole);
  replace("version = 1", "version = 7");
  refused(simulated(), 2, "version = 7: expected an integer from 1 to 1; --force measures anew");
  refused({"record", "show", record}, 2, "version = 7");
  writeText(record, "something that somebody needs\n");
  refused(simulated(), 2, record);
  EXPECT_EQ(headrace(simulated({"--overwrite"})).status, 0);
  EXPECT_EQ(readFile(record), whole);
}

TEST_F(ProfileCommand, MeasuresOnlyWhatAGridWithHolesLacks) {
  ASSERT_EQ(headrace(simulated()).status, 0);
  const std::string whole = readFile(record);
  dropLastCell();
  refused({"record", "show", record, "--slo", "100ms"}, 2,
          "the grid has holes: 1 of 8 cells are missing, first decode batch 2 sequence 128; run the same headrace "
          "profile again");
  const Outcome shown = headrace({"record", "show", record});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("3 pairs measured, 1 still missing"));
  const Outcome again = headrace(simulated());
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("and 7 pairs are there already"));
  EXPECT_EQ(readFile(record), whole);
}

TEST_F(ProfileCommand, MeasuresPairsThatNeedNotBeIfAsked) {
  const auto profile = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"profile",   "opt-6.7b", "--hardware",  "a10",       "--device", "sim",
                                      "--batches", "1,2,4,8",  "--sequences", "1024,2048", "-o",       record};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  EXPECT_GT(json(profile({}))["pairs"]["prefill"]["settled"], 0);
  const nlohmann::json all = json(profile({"--all"})); // complete, but not of all pairs
  EXPECT_EQ(all["pairs"]["prefill"]["settled"], 0);
  EXPECT_EQ(all["pairs"]["prefill"]["measured"], 8);
  refused(profile({"--all"}), 2, "is a complete record of this already");
}

TEST_F(ProfileCommand, SaysWhatDoesNotFit) {
  // A third of OPT-13B's layers leave room for batches on 24 GB.
  const Outcome cut = headrace({"profile", "opt-13b", "--hardware", "a10", "--device", "sim", "-o", record});
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_THAT(cut.err, HasSubstr("of the 40 layers are run"));
  EXPECT_THAT(cut.out, HasSubstr("layers run"));
  EXPECT_THAT(cut.err, HasSubstr("left out: they do not fit the device memory"));
  refused(simulated({"--device-memory", "700MiB"}), 1, "device memory of 734003200 bytes: copies of a layer");
  refused(simulated({"--device-memory", "1500MiB"}), 1, "not even batch 1 sequence 64 with 2 of the 32 layers fits");
}

TEST_F(ProfileCommand, BadUsageIsRefusedByName) {
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  refused(with({}), 2, "no --output FILE: expected one");
  refused(with({"-o", path("no/such/folder/r.toml")}), 2, "cannot write");
  refused(with({"-o", folder}), 2, "a folder: expected a file's name");
  refused(with({"-o", record, "--batches", "1,3"}), 2,
          "--batches = \"1,3\": expected powers of two, each twice the one before");
  refused(with({"-o", record, "--batches", "4,2"}), 2, "--batches = \"4,2\": expected powers of two");
  refused(with({"-o", record, "--batches", "1,4"}), 2, "--batches = \"1,4\": expected powers of two, each twice");
  refused(with({"-o", record, "--batches", "0"}), 2, "--batches");
  refused(with({"-o", record, "--sequences", "many"}), 2, "--sequences");
  refused(with({"-o", record, "--sequences", "96"}), 2, "--sequences = \"96\": expected powers of two");
  refused(with({"-o", record, "--sequences", "4096"}), 2, "sequence 4096: expected at most the 2048 positions");
  for (const char *seconds : {"0", "-1", "nan", "1e9"})
    refused(with({"-o", record, "--seconds-per-pair", seconds}), 2, "--seconds-per-pair");
  refused(with({"-o", record, "--context", "64"}), 2, "--context");
  refused({"profile", "opt-6.7b", "--hardware", "a10", "--device", "tpu", "-o", record}, 2,
          "--device = \"tpu\": expected host, sim or cuda");
  refused({"profile", "no-such-model", "-o", record}, 2, "no-such-model");
  refused({"profile", "-o", record}, 2, "no model");
  // The host device cannot run what is for a GPU.
  refused({"profile", "opt-6.7b", "--hardware", "a10", "--device", "host", "-o", record}, 1, "the plan is for cuda");
}

TEST_F(ProfileCommand, BadSlosAreRefusedByName) {
  ASSERT_EQ(headrace(simulated()).status, 0);
  for (const char *slo : {"0", "0ms", "1ms", "-5ms", "nan", "inf", "soon", "1e12"})
    refused({"record", "show", record, std::string("--slo=") + slo}, 2, "--slo");
  for (const char *factor : {"0", "0.99", "-2", "nan", "inf", "x"})
    refused({"record", "show", record, std::string("--slo-factor=") + factor}, 2, "--slo-factor");
  refused({"record", "show", record, "--slo", "50ms", "--slo-factor", "2"}, 2, "--slo beside --slo-factor");
  refused({"record"}, 2, "subcommand");
  refused({"record", "show"}, 2, "record");
  refused({"record", "show", path("missing.toml")}, 2, path("missing.toml"));
  refused({"record", "show", golden("opt-7-tied-f32") + "/config.json"}, 2, "config.json");
}

} // namespace
} // namespace headrace::tools
