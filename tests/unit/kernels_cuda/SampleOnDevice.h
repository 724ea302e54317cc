// SPDX-License-Identifier: Apache-2.0
//
// Runs Op::Sample on the device of the tests.
#pragma once

#include "tests/unit/kernels/SampleRows.h"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::kernels {

// One token for each row of logits, as `sampled` gets them, in a bucket with one sequence more, whose logits are NaNs.
// What is published is the same, but the marker for each row with a logit that is not finite. The first row's address
// is a multiple of 16 bytes, and `shift` floats.
inline std::vector<int32_t> sampleRows(const std::vector<Floats> &logits, const std::vector<SampleRequest> &requests,
                                       uint64_t order = 0, size_t shift = 0) {
  const size_t n = logits.size(), vocab = logits[0].size();
  SampleRows rows(requests);
  DeviceMeta meta(rows.meta);
  DeviceArray<int32_t> history(rows.history);
  Floats flat(shift, kNan);
  for (const Floats &row : logits)
    flat.insert(flat.end(), row.begin(), row.end());
  flat.resize(shift + (n + 1) * vocab, kNan);
  DeviceArray<float> deviceLogits(flat);
  DeviceArray<int32_t> sampled(2 * n + 2, -7), output(n + 1, -7);
  DeviceArray<uint8_t> workspace(
      std::vector<uint8_t>(sampleWorkspaceBytes(Backend::Cuda, static_cast<int64_t>(n) + 1, vocab), 0xff));
  const SampleArgs args{.meta = meta.get(),
                        .logits = deviceLogits.get() + shift,
                        .history = history.get(),
                        .sampled = sampled.get(),
                        .output = output.get(),
                        .workspace = workspace.get(),
                        .vocab = static_cast<int64_t>(vocab),
                        .blockTokens = SampleRows::kBlockTokens};
  runOp(Op::Sample, args, {static_cast<int64_t>(n) + 1, static_cast<int64_t>(n) + 1, 64}, order);
  std::vector<int32_t> tokens;
  for (size_t s = 0; s < n; ++s) {
    const bool finite = std::all_of(logits[s].begin(), logits[s].end(), [](float v) { return std::isfinite(v); });
    tokens.push_back(sampled[2 * s + 1]);
    EXPECT_EQ(output[s], finite ? tokens[s] : kNotFinite);
    EXPECT_EQ(sampled[2 * s], -7);
    EXPECT_TRUE(tokens[s] >= 0 && tokens[s] < static_cast<int32_t>(vocab)) << tokens[s];
  }
  EXPECT_EQ(output[n], -7);
  for (size_t i = 0; i < n * vocab; ++i) // penalties leave the model's logits
    EXPECT_EQ(std::memcmp(&deviceLogits[shift + i], &logits[i / vocab][i % vocab], sizeof(float)), 0);
  return tokens;
}
inline int32_t sampleOne(const Floats &logits, const SampleRequest &request) {
  return sampleRows({logits}, {request})[0];
}

} // namespace headrace::kernels
