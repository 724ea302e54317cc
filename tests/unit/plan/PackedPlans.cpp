// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {

std::vector<NamedOptions> packedPlans() {
  constexpr const char *kEncodings[] = {"q4:32", "q8:32", "qkv=q4,up=q8:128", "out=q8:32,down=q4,head=q8:32"};
  std::vector<NamedOptions> out = variedPlans();
  for (std::vector<NamedOptions> more : {splitPlans(), actPlans(), residualPlans()}) {
    more.resize(4, {});
    out.insert(out.end(), more.begin(), more.end());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    model::ModelSpec &model = out[i].options.model;
    model.hidden = model.intermediate = 128; // which all groups divide; out's 32 in features one alone
    std::string expected;
    const char *text = kEncodings[i % std::size(kEncodings)];
    model.encodings = *model::weightEncodingsFromText(text, model, expected);
    out[i].name += std::string(", packed ") + text;
    if (i % 2 == 0)
      continue;
    model.headDim = i % 4 == 1 ? 64 : 32;
    out[i].options.kvEncoding = model::Encoding::groups(i % 8 < 4 ? 4 : 8, static_cast<int32_t>(model.headDim));
    out[i].name += ", caches too";
  }
  return out;
}

} // namespace headrace::plan::test
