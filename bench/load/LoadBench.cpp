// SPDX-License-Identifier: Apache-2.0
//
// Filling homes from a checkpoint in the page cache, one thread: two layers of TinyLlama-1.1B, as the checkpoint has
// them, as q8 and as q4, in turns. Of each the shortest turn counts:
//
//   GB/s         of the checkpoint, as it is
//   q8_x, q4_x   as many times as long
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/cleanup/cleanup.h"
#include <time.h>

#include "runtime/base/HalfFloat.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightEncodings.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/model/WeightSource.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

using model::ModelSpec;

double threadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

ModelSpec specOf(model::DType dtype) {
  ModelSpec spec = model::openModel(sourceDir() + "/examples/models/tinyllama-1.1b.toml")->spec;
  spec.layers = 2;
  spec.vocab = 512;
  spec.dtype = dtype;
  return spec;
}

// A safetensors file of a spec's tensors: values from -1/16 to 1/16.
void writeCheckpoint(const ModelSpec &spec, const std::string &file) {
  std::string header = "{";
  uint64_t end = 0;
  const model::WeightLayout layout = model::layoutWeights(spec);
  for (const model::Unit &unit : layout.units)
    for (const model::Tensor &tensor : unit.tensors)
      for (size_t s = 0; s < tensor.sources.size(); ++s) {
        const uint64_t bytes = static_cast<uint64_t>(tensor.sourceRows[s] * tensor.cols) * 2, begin = end;
        end += bytes;
        const bool vector = tensor.cols == 1;
        header += (header.size() > 1 ? ",\"" : "\"") + tensor.sources[s] + R"(":{"dtype":")" +
                  (spec.dtype == model::DType::BF16 ? "BF16" : "F16") + R"(","shape":[)" +
                  std::to_string(tensor.sourceRows[s]) + (vector ? "" : "," + std::to_string(tensor.cols)) +
                  R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
      }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::vector<uint16_t> values(end / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto random = static_cast<uint32_t>(i * 0x9E3779B97F4A7C15ull >> 40);
    const float value = (static_cast<float>(random) / static_cast<float>(1u << 24) - 0.5f) / 8;
    model::narrowFromF32(spec.dtype, &value, 1, reinterpret_cast<std::byte *>(&values[i]));
  }
  std::ofstream out(file, std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char *>(&length), sizeof(length));
  out.write(header.data(), static_cast<std::streamsize>(length));
  out.write(reinterpret_cast<const char *>(values.data()), static_cast<std::streamsize>(end));
}

void BM_Load(benchmark::State &state) {
  const ModelSpec spec = specOf(state.range(0) == 0 ? model::DType::BF16 : model::DType::F16);
  std::string folder = (std::filesystem::temp_directory_path() / "headrace-bench-load-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return state.SkipWithError("no temporary folder");
  const absl::Cleanup removed = [&folder] { std::filesystem::remove_all(folder); };
  writeCheckpoint(spec, folder + "/model.safetensors");
  const auto files = model::CheckpointFiles::open(folder);
  std::array<ModelSpec, 3> specs = {spec, spec, spec};
  std::string expected;
  specs[1].encodings = *model::weightEncodingsFromText("q8", spec, expected);
  specs[2].encodings = *model::weightEncodingsFromText("q4", spec, expected);
  std::array<double, 3> least;
  least.fill(std::numeric_limits<double>::infinity());
  uint64_t bytes = 0;
  for (auto _ : state) {
    double all = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
      const model::WeightLayout layout = model::layoutWeights(specs[i]);
      const auto source = model::openCheckpoint(*files, layout);
      std::vector<std::vector<std::byte>> homes;
      for (const model::Unit &unit : layout.units)
        homes.emplace_back(unit.bytes, std::byte{1}); // touched
      const double start = threadSeconds();
      for (size_t u = 0; u < layout.units.size(); ++u)
        if (!(*source)->fill(layout.units[u], model::MatrixOrder::Panel16, absl::MakeSpan(homes[u])).ok())
          state.SkipWithError("a unit that cannot be filled");
      const double seconds = threadSeconds() - start;
      least[i] = std::min(least[i], seconds);
      all += seconds;
      if (i == 0)
        bytes = layout.totalBytes();
    }
    state.SetIterationTime(all);
  }
  state.counters["GB/s"] = static_cast<double>(bytes) / 1e9 / least[0];
  state.counters["q8_x"] = least[1] / least[0];
  state.counters["q4_x"] = least[2] / least[0];
}
BENCHMARK(BM_Load)->ArgName("f16")->Arg(0)->Arg(1)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(7);

} // namespace
} // namespace headrace::bench
