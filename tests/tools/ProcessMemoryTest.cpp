// SPDX-License-Identifier: Apache-2.0
//
// The memory of a whole run of the headrace binary, as the system counts it: the two arenas, and beyond them no more
// than kBeyondBytes: code, the compiler's structures, the plan and its graphs, and the unit being loaded.
#include <fstream>

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/Process.h"

extern char **environ;

namespace headrace::tools {
namespace {

// The largest unit of the model below, gate and up: 2 x 1408 x 512 x 4 bytes and a norm of 512 x 4.
constexpr uint64_t kLargestUnitBytes = 5'769'216;
// As docs/architecture.md states it: a loading unit may be there a second time, rearranged for its device.
constexpr uint64_t kBeyondBytes = (uint64_t{32} << 20) + kLargestUnitBytes;

struct Measured {
  nlohmann::json report;
  uint64_t peakBytes = 0; // the largest resident set
  uint64_t arenaBytes = 0, slabBytes = 0;
};

// A llama of 8 layers of 512, F32: (4 x 512 x 512 + 3 x 512 x 1408) x 4 = 12.8 MB a layer, 103 MB of layers.
class ProcessMemory : public CommandLine {
protected:
  static constexpr int64_t kLayers = 8, kHidden = 512, kIntermediate = 1408, kVocab = 2048;

  Measured run(std::vector<std::string> arguments) const {
    std::vector<std::string> words = {HEADRACE_BINARY, "run"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    for (const char *word : {"--hardware", "host", "--prompt-ids", "1,2,3", "--max-new-tokens", "4", "--json"})
      words.emplace_back(word);
    std::vector<char *> argv;
    for (std::string &word : words)
      argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = path("out.json"), err = path("err.txt");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    int status = -1;
    rusage usage{};
    EXPECT_EQ(::posix_spawn(&child, HEADRACE_BINARY, &actions, nullptr, argv.data(), environ), 0);
    EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(status, 0) << readFile(err);
    Measured measured;
    measured.report = nlohmann::json::parse(readFile(out), nullptr, false);
    if (measured.report.is_discarded() || status != 0)
      return measured;
    measured.peakBytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024; // Linux counts in KiB
    measured.arenaBytes = measured.report["manifest"]["device_arena_bytes"];
    measured.slabBytes = measured.report["manifest"]["host_slab_bytes"];
    return measured;
  }

  static void expectBounded(const Measured &m) {
    const uint64_t arenas = m.arenaBytes + m.slabBytes;
    RecordProperty("bytes_beyond_the_arenas", std::to_string(static_cast<int64_t>(m.peakBytes - arenas)));
    EXPECT_GT(m.arenaBytes, 0u);
    EXPECT_GE(m.peakBytes, arenas) << "both arenas are in use, so both are counted";
#ifndef HEADRACE_SANITIZED // shadow memory is not the program's
    EXPECT_LE(m.peakBytes, arenas + kBeyondBytes);
#endif
  }

  std::string shape() const {
    writeText(path("shape.toml"), "family = \"llama\"\nlayers = 8\nhidden = 512\nheads = 8\nkv_heads = 8\n"
                                  "intermediate = 1408\nvocab = 2048\nmax_positions = 512\ndtype = \"f32\"\n");
    return path("shape.toml");
  }

  // The same model as a Hugging Face folder, every weight zero: a file with a header and a hole.
  std::string checkpoint() const {
    const std::string folder = path("model");
    std::filesystem::create_directory(folder);
    writeText(folder + "/config.json", nlohmann::json{{"model_type", "llama"},
                                                      {"architectures", {"LlamaForCausalLM"}},
                                                      {"num_hidden_layers", kLayers},
                                                      {"hidden_size", kHidden},
                                                      {"num_attention_heads", 8},
                                                      {"num_key_value_heads", 8},
                                                      {"intermediate_size", kIntermediate},
                                                      {"vocab_size", kVocab},
                                                      {"max_position_embeddings", 512},
                                                      {"rms_norm_eps", 1e-5},
                                                      {"hidden_act", "silu"},
                                                      {"tie_word_embeddings", false},
                                                      {"torch_dtype", "float32"}}
                                           .dump());
    nlohmann::json header;
    int64_t at = 0;
    const auto add = [&](const std::string &name, std::vector<int64_t> dims) {
      int64_t bytes = 4;
      for (const int64_t dim : dims)
        bytes *= dim;
      header[name] = {{"dtype", "F32"}, {"shape", dims}, {"data_offsets", {at, at + bytes}}};
      at += bytes;
    };
    add("model.embed_tokens.weight", {kVocab, kHidden});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      add(prefix + "input_layernorm.weight", {kHidden});
      for (const char *name : {"q", "k", "v", "o"})
        add(prefix + "self_attn." + name + "_proj.weight", {kHidden, kHidden});
      add(prefix + "post_attention_layernorm.weight", {kHidden});
      add(prefix + "mlp.gate_proj.weight", {kIntermediate, kHidden});
      add(prefix + "mlp.up_proj.weight", {kIntermediate, kHidden});
      add(prefix + "mlp.down_proj.weight", {kHidden, kIntermediate});
    }
    add("model.norm.weight", {kHidden});
    add("lm_head.weight", {kVocab, kHidden});
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    std::string start(8, '\0');
    for (int byte = 0; byte < 8; ++byte)
      start[static_cast<size_t>(byte)] = static_cast<char>(text.size() >> (8 * byte) & 0xff);
    const std::string file = folder + "/model.safetensors";
    writeText(file, start + text);
    std::filesystem::resize_file(file, 8 + text.size() + static_cast<uint64_t>(at));
    return folder;
  }
};

TEST_F(ProcessMemory, UnderABudgetIsTheTwoArenasAndABoundedRest) {
  const Measured measured = run({shape(), "--synthetic-weights", "1", "--device-memory", "64MiB"});
  ASSERT_FALSE(measured.report.is_discarded());
  EXPECT_GT(measured.slabBytes, uint64_t{32} << 20) << "about half of the 103 MB is offloaded";
  expectBounded(measured);
}

TEST_F(ProcessMemory, OfAResidentModelIsTheArenaAndABoundedRest) {
  const Measured measured = run({shape(), "--synthetic-weights", "1", "--interval", "none"});
  ASSERT_FALSE(measured.report.is_discarded());
  EXPECT_EQ(measured.slabBytes, 0u);
  expectBounded(measured);
}

TEST_F(ProcessMemory, HoldsNoCheckpointBesideItsHomes) {
  const Measured measured = run({checkpoint(), "--device-memory", "64MiB"});
  ASSERT_FALSE(measured.report.is_discarded());
  expectBounded(measured);
}

} // namespace
} // namespace headrace::tools
