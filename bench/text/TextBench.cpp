// SPDX-License-Identifier: Apache-2.0
//
// Encoding and decoding on one thread, for each golden tokenizer (tests/golden/text): 1 MB of prose and code, and what
// a merge that is not linear would be slow on: as long a text of one letter, of spaces, of digits, of "a b".
//
// HEADRACE_BENCH_TEXT names the file that is encoded, as scripts/bench-tokenizers does, which runs the `tokenizers`
// package beside; without it the text is this tree's own documents and sources. HEADRACE_BENCH_TOKENIZERS: a folder of
// folders instead of tests/golden/text.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/text/tokenizer/TextStream.h"
#include "tests/support/SourceDir.h"

namespace headrace::text {
namespace {

constexpr size_t kSize = 1'000'000; // bytes

std::string read(const std::filesystem::path &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Documents and sources in the order of their names, each in turn cut into the whole, up to kSize bytes.
std::string ownText() {
  std::vector<std::filesystem::path> files{sourceDir() + "/README.md", sourceDir() + "/CONTRIBUTING.md"};
  for (const char *folder : {"docs", "runtime", "compiler"})
    for (const auto &entry : std::filesystem::recursive_directory_iterator(absl::StrCat(sourceDir(), "/", folder)))
      if (const std::string name = entry.path().filename();
          absl::EndsWith(name, ".md") || absl::EndsWith(name, ".h") || absl::EndsWith(name, ".cpp"))
        files.push_back(entry.path());
  std::sort(files.begin() + 2, files.end());
  std::string text;
  for (const auto &path : files)
    if (text.size() < kSize)
      text += read(path);
  text.resize(std::min(text.size(), kSize));
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) // whole characters
    text.pop_back();
  return text;
}

const std::string &proseAndCode() {
  static const std::string text = [] {
    const char *path = std::getenv("HEADRACE_BENCH_TEXT");
    return path != nullptr ? read(path) : ownText();
  }();
  return text;
}

std::string repeated(std::string_view unit) {
  std::string text;
  while (text.size() + unit.size() <= kSize)
    text += unit;
  return text;
}

void count(benchmark::State &state, size_t bytes, size_t tokens) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  state.counters["tokens"] = static_cast<double>(tokens);
}

void encode(benchmark::State &state, const Tokenizer &tokenizer, const std::string &text) {
  size_t tokens = 0;
  for (auto _ : state) {
    const auto ids = tokenizer.encode(text);
    if (!ids.ok())
      return state.SkipWithError(ids.status().ToString().c_str());
    tokens = ids->size();
  }
  count(state, text.size(), tokens);
}

// By a tokenizer that has not seen a word yet.
void encodeFirst(benchmark::State &state, const std::string &folder) {
  size_t tokens = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto tokenizer = Tokenizer::open(folder);
    state.ResumeTiming();
    const auto ids = (*tokenizer)->encode(proseAndCode());
    tokens = ids.ok() ? ids->size() : 0;
    state.PauseTiming();
    tokenizer->reset();
    state.ResumeTiming();
  }
  count(state, proseAndCode().size(), tokens);
}

void decode(benchmark::State &state, const Tokenizer &tokenizer, bool streamed) {
  const auto ids = tokenizer.encode(proseAndCode());
  if (!ids.ok())
    return state.SkipWithError(ids.status().ToString().c_str());
  size_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    if (!streamed) {
      bytes = tokenizer.decode(*ids).size();
      continue;
    }
    TextStream stream(tokenizer);
    for (const int32_t id : *ids)
      bytes += stream.push(id).size();
    bytes += stream.finish().size();
  }
  count(state, bytes, ids->size());
}

void registerAll() {
  const char *given = std::getenv("HEADRACE_BENCH_TOKENIZERS");
  std::vector<std::filesystem::path> folders;
  for (const auto &entry :
       std::filesystem::directory_iterator(given != nullptr ? given : sourceDir() + "/tests/golden/text"))
    if (entry.is_directory())
      folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const auto &folder : folders) {
    const std::string name = folder.filename();
    const auto opened = Tokenizer::open(folder);
    const auto add = [&](const std::string &what, auto run) {
      benchmark::RegisterBenchmark(absl::StrCat(what, "/", name).c_str(), [=](benchmark::State &state) {
        if (!opened.ok())
          return state.SkipWithError(opened.status().ToString().c_str());
        run(state, **opened);
      })->Unit(benchmark::kMillisecond);
    };
    add("Encode", [](auto &state, const Tokenizer &t) { encode(state, t, proseAndCode()); });
    add("EncodeFirst", [folder](auto &state, const Tokenizer &) { encodeFirst(state, folder); });
    add("Decode", [](auto &state, const Tokenizer &t) { decode(state, t, false); });
    add("Stream", [](auto &state, const Tokenizer &t) { decode(state, t, true); });
    for (const auto &[what, unit] : {std::pair("Letter", "l"), {"Spaces", " "}, {"Digits", "7"}, {"Words", "a b"}})
      add(absl::StrCat("Encode", what),
          [text = repeated(unit)](auto &state, const Tokenizer &t) { encode(state, t, text); });
  }
}

// One word of a million letters whose tokens are runs of 1, 2, 4 ... 4096 of them: each merge makes room for another.
void encodeRuns(benchmark::State &state) {
  nlohmann::json vocab = {{"a", 0}}, merges = nlohmann::json::array();
  for (std::string run = "a"; run.size() < 4096; run += run) {
    merges.push_back({run, run});
    vocab[run + run] = vocab.size();
  }
  const nlohmann::json file = {{"pre_tokenizer", nullptr},
                               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  const auto tokenizer = Tokenizer::parse(file.dump(), "runs");
  if (!tokenizer.ok())
    return state.SkipWithError(tokenizer.status().ToString().c_str());
  encode(state, **tokenizer, std::string(static_cast<size_t>(state.range(0)), 'a'));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(encodeRuns)
    ->Name("EncodeRuns")
    ->Unit(benchmark::kMillisecond)
    ->RangeMultiplier(4)
    ->Range(1 << 14, 1 << 20)
    ->Complexity(benchmark::oN);

const bool registered = (registerAll(), true);

} // namespace
} // namespace headrace::text
