// SPDX-License-Identifier: Apache-2.0
//
// Plans stay what they are, byte for byte: a hash of each plan file, and what it says in words, as committed beside
// this file. Left out of the hash, as they are words or depend on where the project lies: the compiler's version, the
// reason and the names of placements (plan-texts.txt has these two), and the folders of the model and of a record.
//
//   HEADRACE_WRITE_PLAN_HASHES=1 plan_hashes     writes both files anew; a commit that does changes nothing else
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/plan/PlanFile.h"
#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

using Words = std::vector<std::string>;

// Of profile --device sim, but for `interference` and `spread`, where sim has none: a compute step takes 1.25 times as
// long beside copies, a copy starts 3 us late, and the slowest iterations take 1.1 times their prediction.
constexpr const char *kRecord = "llama-7.record.toml";

struct Case {
  std::string source; // as the command line has it; a golden's name begins with "golden/", its hardware is the host
  std::string flags;
  std::string name() const { return absl::StrCat(source, " ", flags); }
};

std::vector<Case> goldens() {
  std::vector<Case> cases;
  for (const char *model : {"llama-12-tied-bias-bf16-sharded", "llama-7-gqa-llama3-f32", "mistral-12-head-dim-f32",
                            "mistral-7-gqa-f16", "opt-12-gelu-f16", "opt-7-tied-f32", "qwen2-12-gqa-bf16",
                            "qwen2-7-tied-f32", "qwen3-12-tied-bias-bf16", "qwen3-7-gqa-f32"})
    for (const char *placement :
         {"--interval none", "--interval 1 --start-rule eager", "--interval 1 --start-rule paper",
          "--interval 3 --start-rule eager", "--interval 3 --start-rule paper",
          "--offload-layers 4 --slots 2 --start-rule eager", "--offload-layers 4 --slots 2 --start-rule paper",
          "--offload-layers 2 --offload-embedding on --offload-head on --start-rule eager",
          "--offload-layers 2 --offload-embedding on --offload-head on --start-rule paper",
          "--policy headrace --slo-factor 1.5", "--policy select-n --slo-factor 2 --placements 3"})
      cases.push_back({absl::StrCat("golden/", model), absl::StrCat("--batch 2 --context 64 ", placement)});
  return cases;
}

// On a device and beside a host in which every shape fits.
std::vector<Case> shapes() {
  std::vector<Case> cases;
  for (const char *model : {"llama-13b", "llama-2-13b", "llama-2-70b", "llama-2-7b", "llama-3.1-405b", "llama-3.1-70b",
                            "llama-3.1-8b", "llama-30b", "llama-65b", "opt-13b", "opt-30b", "opt-6.7b", "opt-66b",
                            "qwen1.5-7b", "qwen2.5-7b", "qwen3-32b", "qwen3-8b", "tinyllama-1.1b"})
    for (const char *policy : {"--interval 4", "--interval 4 --start-rule paper", "--policy none", "--policy deepspeed",
                               "--policy flexgen --slo-factor 1.5", "--policy flexgen-nobus --slo-factor 1.5",
                               "--policy select-n --slo-factor 1.5", "--policy headrace --slo-factor 1.5",
                               "--policy vllm-prefetch --slo-factor 5"})
      cases.push_back({model, absl::StrCat("--hardware h200 --memory 2TiB --host-memory 8TiB --batch 8 --context 256 "
                                           "--new-tokens 8,64 --sequences 8 --contexts 256 ",
                                           policy)});
  return cases;
}

// Several buckets and placements, objectives of both classes, little memory, caches that grow.
std::vector<Case> others() {
  const std::string opt = "--hardware a10 --batch 128 --context 72 ";
  return {{"opt-6.7b", opt + "--tpot 85ms"},
          {"opt-6.7b", opt + "--policy accelerate --device-memory 16GiB"},
          {"llama-3.1-8b", "--hardware a10 --batch 4 --context 512 --policy accelerate --device-memory 12GiB"},
          {"qwen3-8b", "--hardware a10 --batch 4 --context 512 --policy vllm-prefetch --slo-factor 2"},
          {"opt-30b", "--hardware a100-40 --batch 64 --mini-batches 4 --context 192 --input-len 64 --output-len 128 "
                      "--policy flexgen-throughput"},
          {"golden/opt-12-gelu-f16", "--batch 8 --context 64 --policy flexgen-throughput --percent 55,45,50,50,0,100"},
          {"opt-30b", "--hardware a100-40 --batch 64 --context 192 --sequences 64 --contexts 192 --policy lm-offload "
                      "--allow-quantized weights"},
          {"opt-6.7b", opt + "--tpot 85ms --instances apart"},
          {"opt-6.7b", opt + "--tpot 85ms --ttft 2s --instances apart --placements 6"},
          {"opt-6.7b", opt + "--policy select-n --slo-factor 1.4 --instances apart"},
          {"opt-6.7b", opt + "--device-memory 12GiB"},
          {"opt-6.7b", opt + "--device-memory 16GiB --policy headrace --slo-factor 2"},
          {"llama-2-13b", "--hardware a10 --batch 1 --context 2048"},
          {"llama-3.1-8b", "--hardware rtx4090 --memory 24GB --host-memory 882GB --device-memory 8GiB --batch 8 "
                           "--context 2048 --kv-dtype f16"},
          {"golden/llama-7-gqa-llama3-f32", "--policy headrace --slo-factor 3 --placements 4 --elastic-kv on --batch 4 "
                                            "--context 128"},
          {"golden/opt-12-gelu-f16", "--policy select-n --slo-factor 3 --placements 3 --elastic-kv on --batch 4 "
                                     "--context 96"}};
}

// KV caches that are split between device and host: stated, by themselves, within objectives, in several placements.
std::vector<Case> splitCaches() {
  const std::string llama =
      "--hardware a10 --batch 4 --context 65536 --sequences 4 --contexts 256,65536 --new-tokens 64 ";
  std::vector<Case> cases = {{"llama-3.1-8b", llama + "--device-memory 20GiB"},
                             {"llama-3.1-8b", llama + "--kv-device-memory 4929MiB --interval 4"},
                             {"llama-3.1-8b", llama + "--tpot 1160ms"},
                             {"llama-3.1-8b", llama + "--placements 4"},
                             {"llama-3.1-8b", llama + "--kv-device-memory 4929MiB --policy headrace --tpot 2s"},
                             {"llama-3.1-8b", llama + "--kv-device-memory 4929MiB --kv-write-back dirty"},
                             {"llama-3.1-8b", llama + "--kv-device-memory 0B --kv-write-back all"},
                             {"llama-3.1-8b", llama + "--kv-device-memory 4993MiB --kv-places 4 --kv-write-back all"},
                             {"llama-3.1-8b", llama + "--policy pie"}};
  for (const auto &[model, memory] : {std::pair("llama-7-gqa-llama3-f32", "381KiB"),
                                      {"opt-12-gelu-f16", "452KiB"},
                                      {"qwen3-12-tied-bias-bf16", "516KiB"}})
    for (const char *flags : {"", " --interval 3", " --placements 3"})
      cases.push_back(
          {absl::StrCat("golden/", model), absl::StrCat("--batch 8 --context 64 --kv-device-memory ", memory, flags)});
  return cases;
}

// Layers that are passed for several mini-batches: weights away, caches split and written back, several placements.
std::vector<Case> miniBatches() {
  return {
      {"opt-30b", "--hardware a10 --batch 64 --mini-batches 4 --context 512 --sequences 16 --contexts 512 "
                  "--new-tokens 16,64 --interval 1 --kv-device-memory 0B --kv-write-back all"},
      {"llama-3.1-8b", "--hardware a10 --batch 16 --mini-batches 2 --context 2048 --sequences 8 --contexts 2048 "
                       "--new-tokens 64 --policy headrace --device-memory 12GiB --slo-factor 3"},
      {"golden/llama-7-gqa-llama3-f32", "--batch 8 --context 64 --mini-batches 4 --interval 3"},
      {"golden/opt-12-gelu-f16", "--batch 8 --context 64 --mini-batches 2 --kv-device-memory 294KiB --placements 3"},
      {"golden/llama-7-gqa-llama3-f32", "--batch 8 --context 64 --mini-batches 4 --interval 1 --residuals host"}};
}

// Activation blocks: shares that are stated and found, their home, in one mini-batch and in four.
std::vector<Case> activations() {
  const std::string opt = "--hardware a10 --batch 16 --context 1024 --contexts 1024 --new-tokens 16,64 ";
  std::vector<Case> cases;
  for (const char *home : {"device", "host", "auto"})
    for (const int miniBatches : {1, 4}) {
      const std::string how = absl::StrCat(" --act-home ", home, " --mini-batches ", miniBatches);
      for (const std::string ratio : {"0.5", "1", "auto"}) {
        const char *const memory = miniBatches == 4 ? "180KiB" : ratio == "auto" ? "381KiB" : "237KiB";
        cases.push_back(
            {"golden/llama-7-gqa-llama3-f32", absl::StrCat("--batch 8 --context 64 --interval 3 --kv-device-memory ",
                                                           memory, " --act-ratio ", ratio, how)});
      }
      cases.push_back(
          {"golden/opt-12-gelu-f16", absl::StrCat("--batch 8 --context 64 --kv-device-memory ",
                                                  miniBatches == 4 ? "294KiB" : "389KiB", " --act-ratio 0.5", how)});
      cases.push_back({"opt-6.7b", absl::StrCat(opt, "--sequences ", miniBatches == 4 ? "4" : "4,16",
                                                " --kv-device-memory 0B --act-ratio 0.25", how)});
    }
  cases.insert(cases.end(),
               {{"opt-6.7b", opt + "--sequences 4,16 --policy hybridserve --device-memory 16GiB"},
                {"opt-6.7b", opt + "--sequences 4 --mini-batches 4 --policy hybridserve --device-memory 16GiB"},
                {"opt-13b", "--hardware rtx4090-hybridserve --batch 32 --mini-batches 2 --context 512 --sequences 16 "
                            "--contexts 512 --new-tokens 16 --policy hybridserve --act-ratio 0.5"},
                {"golden/opt-12-gelu-f16", "--batch 8 --context 64 --kv-device-memory 400KiB --policy hybridserve"}});
  return cases;
}

// An expansion, stated and found, alone and under pie.
std::vector<Case> expansions() {
  std::vector<Case> cases;
  for (const std::string expansion : {"1.5", "auto"})
    for (const std::string policy : {"", " --policy pie"})
      cases.insert(
          cases.end(),
          {{"llama-3.1-8b", "--hardware a10 --batch 4 --context 8192 --sequences 4 --contexts 256,8192 --new-tokens 64 "
                            "--device-memory 18GiB --expansion " +
                                expansion + policy},
           {"golden/opt-7-tied-f32",
            "--batch 8 --context 64 --kv-device-memory 200KiB --expansion " + expansion + policy}});
  return cases;
}

// What cycles: places in an order, written back whole and where dirty; residuals on the host beside tails; units that
// are brought for several mini-batches.
std::vector<Case> cycles() {
  const std::string small = "--batch 8 --context 64 ";
  std::vector<Case> cases;
  struct OfModel {
    const char *model, *two, *three, *four; // places
  };
  for (const OfModel &of : {OfModel{"golden/llama-7-gqa-llama3-f32", "303KiB", "381KiB", "459KiB"},
                            {"golden/opt-12-gelu-f16", "452KiB", "615KiB", "777KiB"},
                            {"golden/qwen3-12-tied-bias-bf16", "516KiB", "702KiB", "888KiB"}})
    for (const auto &[memory, flags] : {std::pair(of.two, "--kv-places 2 --kv-write-back all"),
                                        {of.four, "--kv-places 4 --kv-write-back all"},
                                        {of.three, "--kv-places 3 --kv-write-back dirty --interval 3"}})
      cases.push_back({of.model, absl::StrCat(small, "--kv-device-memory ", memory, " ", flags)});
  for (const auto &[model, memory] :
       {std::pair("golden/llama-7-gqa-llama3-f32", "210KiB"), {"golden/opt-12-gelu-f16", "294KiB"}})
    for (const std::string &tails : {std::string(), absl::StrCat(" --kv-device-memory ", memory)})
      for (const char *interval : {"none", "1", "3"})
        cases.push_back({model, absl::StrCat(small, "--mini-batches 2 --residuals host --interval ", interval, tails)});
  for (const auto &[miniBatches, memory] : {std::pair("2", "440KiB"), {"4", "293KiB"}})
    for (const std::string &flags :
         {std::string("--interval 1"), absl::StrCat("--offload-layers 2 --kv-device-memory ", memory)})
      cases.push_back({"golden/opt-7-tied-f32", absl::StrCat(small, flags, " --offload-embedding on --offload-head on ",
                                                             "--mini-batches ", miniBatches)});
  return cases;
}

// Caches that grow as placements give memory back, instances that are planned apart, and prices of a record by which
// compute and copies disturb each other.
std::vector<Case> priced() {
  const std::string model = "golden/llama-7-gqa-llama3-f32";
  std::vector<Case> cases = {
      {"opt-6.7b", "--hardware a10 --batch 16 --context 256 --policy select-n --slo-factor 3 --placements 3 "
                   "--elastic-kv on"},
      {"llama-3.1-8b", "--hardware a10 --batch 16 --context 256 --policy headrace --slo-factor 3 --placements 3 "
                       "--elastic-kv on"},
      {"opt-6.7b", "--hardware a10 --batch 16 --context 2048 --kv-tokens 4096 --policy select-n --slo-factor 3 "
                   "--placements 3 --elastic-kv on"},
      {"llama-3.1-8b", "--hardware a10 --batch 16 --context 4096 --kv-tokens 8192 --policy headrace --slo-factor 3 "
                       "--placements 3 --elastic-kv on"}};
  for (const std::string &golden :
       {model, std::string("golden/opt-7-tied-f32"), std::string("golden/qwen2-7-tied-f32")})
    for (const char *placements : {"2", "3"})
      cases.push_back({golden, absl::StrCat("--batch 4 --context 96 --policy headrace --slo-factor 3 --elastic-kv on "
                                            "--placements ",
                                            placements)});
  for (const char *golden : {"golden/llama-7-gqa-llama3-f32", "golden/opt-12-gelu-f16"})
    for (const char *policy : {"headrace", "select-n"})
      cases.push_back({golden, absl::StrCat("--batch 4 --context 96 --instances apart --placements 4 --slo-factor 2 ",
                                            "--policy ", policy)});
  for (const char *policy :
       {"headrace --slo-factor 2", "select-n --slo-factor 2", "interval --interval 3",
        "interval --kv-device-memory 105KiB --kv-write-back dirty", "pie --kv-device-memory 60KiB", "hybridserve"})
    cases.push_back({model, absl::StrCat("--batch 2 --context 64 --record ", kRecord, " --policy ", policy)});
  return cases;
}

struct Fixed {
  std::string hash, text;
};

std::string pathOf(const std::string &file) { return absl::StrCat(sourceDir(), "/tests/plans/", file); }

Fixed fixedOf(const Case &one) {
  char folder[] = "/tmp/headrace-plan-XXXXXX";
  EXPECT_NE(mkdtemp(folder), nullptr);
  const std::string file = absl::StrCat(folder, "/plan");
  const std::string golden = "golden/";
  Words words = {"compile", one.source};
  if (one.source.rfind(golden, 0) == 0)
    words = {"compile", absl::StrCat(sourceDir(), "/tests/", one.source), "--hardware", "host"};
  for (const std::string &word : Words(absl::StrSplit(one.flags, ' ')))
    words.push_back(word == kRecord ? pathOf(word) : word);
  words.insert(words.end(), {"--allow-missed", "-o", file});
  const Outcome made = headrace(words);
  Fixed fixed;
  if (made.status != 0) {
    fixed = {absl::StrCat("exit ", made.status), made.err};
  } else if (absl::StatusOr<plan::Plan> plan = plan::readPlan(file); plan.ok()) {
    const auto name = [](const plan::Placement &placement) { return placement.name; };
    fixed.text =
        absl::StrCat(plan->reason, "\n    ", plan->limitingResource, "; ",
                     absl::StrJoin(plan->placements, ", ",
                                   [&](std::string *out, const plan::Placement &p) { absl::StrAppend(out, name(p)); }),
                     "\n");
    fixed.hash = plan::planHash(*plan);
  } else {
    ADD_FAILURE() << one.name() << ": " << plan.status();
  }
  std::filesystem::remove_all(folder);
  return fixed;
}

TEST(PlanHashes, AreThoseCommitted) {
  std::vector<Case> cases = goldens();
  for (const std::vector<Case> &more :
       {shapes(), others(), splitCaches(), miniBatches(), activations(), expansions(), cycles(), priced()})
    cases.insert(cases.end(), more.begin(), more.end());
  std::string hashes, texts;
  for (const Case &one : cases) {
    const Fixed fixed = fixedOf(one);
    absl::StrAppend(&hashes, fixed.hash, "  ", one.name(), "\n");
    absl::StrAppend(&texts, one.name(), "\n    ", fixed.text);
  }
  if (std::getenv("HEADRACE_WRITE_PLAN_HASHES") != nullptr) {
    writeText(pathOf("plan-hashes.txt"), hashes);
    writeText(pathOf("plan-texts.txt"), texts);
    GTEST_SKIP() << "written anew";
  }
  // Line by line: which plans changed is what one wants to see.
  for (const auto &[file, made] : {std::pair("plan-hashes.txt", hashes), std::pair("plan-texts.txt", texts)}) {
    const Words was = absl::StrSplit(readFile(pathOf(file)), '\n'), now = absl::StrSplit(made, '\n');
    EXPECT_EQ(was.size(), now.size()) << file;
    for (size_t line = 0; line < std::min(was.size(), now.size()); ++line)
      EXPECT_EQ(was[line], now[line]) << file << ":" << line + 1;
  }
}

} // namespace
} // namespace headrace::tools
