// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Packing.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

using model::AllowQuantized;

constexpr int kCodeBits[] = {8, 4};

bool allowsWeights(const model::Goal &goal) {
  return goal.allowQuantized == AllowQuantized::Weights || goal.allowQuantized == AllowQuantized::Both;
}
bool allowsKv(const model::Goal &goal) {
  return goal.allowQuantized == AllowQuantized::Kv || goal.allowQuantized == AllowQuantized::Both;
}

} // namespace

std::vector<model::WeightEncodings> allowedWeights(const CompileRequest &request) {
  std::vector<model::WeightEncodings> allowed(1);
  if (allowsWeights(request.goal))
    for (const int bits : kCodeBits)
      if (model::WeightEncodings packed = model::packedIn(bits, request.model); packed.any())
        allowed.push_back(std::move(packed));
  return allowed;
}

std::vector<std::optional<model::Encoding>> allowedKv(const CompileRequest &request) {
  std::vector<std::optional<model::Encoding>> allowed(1);
  if (allowsKv(request.goal))
    for (const int bits : kCodeBits)
      if (const model::Encoding packed = model::Encoding::groups(bits);
          model::kvEncodingFor(packed, request.model->headDim))
        allowed.push_back(packed);
  return allowed;
}

CompileRequest asChosen(const CompileRequest &request, const Choice &choice) {
  CompileRequest of = request;
  of.policy.attention = choice.attendsOnCpu ? model::Attention::Cpu : model::Attention::Device;
  if (choice.attendsOnCpu)
    of.goal.kvDeviceMemory = 0;
  const Encodings &encodings = choice.encodings;
  of.goal.allowQuantized = AllowQuantized::Nothing;
  if (encodings.kv)
    of.goal.kvEncoding = encodings.kv;
  if (encodings.weights.any()) {
    of.model->encodings = model::ofModel(encodings.weights, of.model);
    if (request.hashOf)
      of.modelHash = request.hashOf(of.model);
  }
  return of;
}

absl::Status checkAllowed(const CompileRequest &request) {
  const model::Goal &goal = request.goal;
  if (goal.allowQuantized == AllowQuantized::Nothing)
    return absl::OkStatus();
  const auto refuse = [&](auto &&...expected) {
    return absl::InvalidArgumentError(absl::StrCat("goal.allow_quantized = \"",
                                                   std::string(model::allowQuantizedName(goal.allowQuantized)),
                                                   "\": expected ", expected...));
  };
  if (request.costs != nullptr)
    return refuse("no record beside it: a record is of one encoding");
  if (goal.expansion == model::kAutoExpansion)
    return refuse("an expansion that is stated beside it: \"auto\" has a placement for each of several");
  if (allowsWeights(goal) && request.model->encodings.any())
    return refuse("no weight_encoding beside it, which is ", model::weightEncodingText(request.model));
  if (allowsKv(goal) && goal.kvEncoding)
    return refuse("no kv_dtype beside it, which is ", model::kvEncodingText(*goal.kvEncoding));
  if (allowsWeights(goal) && allowedWeights(request).size() == 1)
    return refuse("a model with an operand whose input features groups of 32, 64 or 128 divide");
  if (allowsKv(goal) && allowedKv(request).size() == 1)
    return refuse("heads that groups of 64 or 32 divide: those of ", request.model->name, " are of ",
                  request.model->headDim);
  return absl::OkStatus();
}

} // namespace headrace::compiler
