// SPDX-License-Identifier: Apache-2.0
//
// ZeRO-Inference as LM-Offload compares with it (section 5.1): weights in 4 bits, all of them on the device, or where
// they do not fit there all layers', brought one by one; KV on the host, where the CPU attends to it; the whole batch
// at once.
//
//   memory      weights in q4      layers away
//   24 GB       17.6 GB            none
//   12 GB       17.6 GB            all
#include "absl/strings/str_cat.h"
#include "compiler/choice/Packing.h"
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/WholeLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr int kBits = 4;

absl::StatusOr<std::vector<CompileRequest>> requests(const CompileRequest &asked) {
  const auto refuse = [](const absl::AlphaNum &of, absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(of, ": expected ", expected));
  };
  if (asked.goal.autoMiniBatches || asked.goal.miniBatches > 1)
    return refuse(absl::StrCat("goal.mini_batches = ",
                               asked.goal.autoMiniBatches ? "\"auto\"" : absl::StrCat(asked.goal.miniBatches)),
                  "1 beside policy.name \"zero-inference\", which passes the whole batch at once");
  if (asked.goal.allowQuantized != model::AllowQuantized::Nothing)
    return refuse(absl::StrCat("goal.allow_quantized = \"",
                               std::string(model::allowQuantizedName(asked.goal.allowQuantized)), "\""),
                  "none beside policy.name \"zero-inference\", which packs weights in 4 bits");
  if (asked.policy.attentionStated && asked.policy.attention == model::Attention::Device)
    return refuse("policy.attention = \"device\"",
                  "\"cpu\" or none beside policy.name \"zero-inference\", whose KV is on the host");
  if (asked.goal.kvDeviceMemory.value_or(0) > 0)
    return refuse(absl::StrCat("goal.kv_device_memory = ", *asked.goal.kvDeviceMemory),
                  "0B or none beside policy.name \"zero-inference\", which has KV on the host");
  Choice choice;
  choice.attendsOnCpu = true;
  if (!asked.model->encodings.any()) // else as they are stated
    choice.encodings.weights = model::packedIn(kBits, asked.model);
  return std::vector<CompileRequest>{asChosen(asked, choice)};
}

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  model::Policy policy = in.request.policy;
  policy.none = true;
  std::vector<Candidate> found = wholeLayers(policy, in.request.model, in.layout);
  policy.none = false;
  policy.interval = 1;
  appendNew(found, wholeLayers(policy, in.request.model, in.layout));
  return found;
}

} // namespace

extern const Generator kZeroInferenceGenerator;
const Generator kZeroInferenceGenerator = {
    .name = "zero-inference",
    .summary = "ZeRO-Inference: weights in q4, on the device or else layer by layer; KV on the host, where the CPU "
               "attends to it",
    .splitsCaches = true,
    .colour = 14,
    .requests = requests,
    .candidates = candidates,
};

} // namespace headrace::compiler
