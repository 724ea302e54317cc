// SPDX-License-Identifier: Apache-2.0
//
// Of packed weights and caches: another encoding, and what only another would have.
#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

using model::UnitRole;

constexpr UnitRole kRoles[] = {UnitRole::Qkv, UnitRole::Out, UnitRole::Up, UnitRole::Down, UnitRole::Head};

// A role whose weights are packed.
std::optional<UnitRole> packedRole(const Plan &plan, Random &random) {
  std::vector<UnitRole> roles;
  for (const UnitRole role : kRoles)
    if (plan.model->encodings[role])
      roles.push_back(role);
  return roles.empty() ? std::nullopt : std::optional(pick(random, roles));
}
bool setEncoding(Plan &plan, UnitRole role, const std::optional<model::Encoding> &encoding) {
  model::ModelSpec spec = plan.model;
  spec.encodings[role] = encoding;
  plan.model = spec;
  return true;
}

bool otherBits(Plan &plan, Random &random) {
  const std::optional<UnitRole> role = packedRole(plan, random);
  if (!role)
    return false;
  const model::Encoding of = *plan.model->encodings[*role];
  return setEncoding(plan, *role, model::Encoding::groups(of.codeBits == 4 ? 8 : 4, of.group));
}
bool otherGroup(Plan &plan, Random &random) {
  const std::optional<UnitRole> role = packedRole(plan, random);
  if (!role)
    return false;
  const model::Encoding of = *plan.model->encodings[*role];
  std::vector<int32_t> groups;
  for (const int32_t group : model::kGroups)
    if (group != of.group && model::inFeatures(plan.model, *role) % group == 0)
      groups.push_back(group);
  return !groups.empty() && setEncoding(plan, *role, model::Encoding::groups(of.codeBits, pick(random, groups)));
}
bool notPacked(Plan &plan, Random &random) {
  const std::optional<UnitRole> role = packedRole(plan, random);
  return role && setEncoding(plan, *role, std::nullopt);
}
bool packedInstead(Plan &plan, Random &random) {
  std::vector<UnitRole> roles;
  for (const UnitRole role : kRoles)
    if (const int64_t features = model::inFeatures(plan.model, role);
        features > 0 && features % 32 == 0 && !plan.model->encodings[role])
      roles.push_back(role);
  return !roles.empty() && setEncoding(plan, pick(random, roles), model::Encoding::groups(coin(random) ? 4 : 8, 32));
}

// A unit that is packed: its number.
std::optional<uint32_t> packedUnit(const Plan &plan, Random &random) {
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  std::vector<uint32_t> buffers;
  for (uint32_t b = 0; b < plan.buffers.size(); ++b)
    if (plan.buffers[b].kind == BufferKind::Weight && plan.model->encodings[layout.units[plan.buffers[b].index].role])
      buffers.push_back(b);
  return buffers.empty() ? std::nullopt : std::optional(pick(random, buffers));
}

// All that says how many bytes the unit has says what another encoding would take.
bool bytesOfAnother(Plan &plan, Random &random) {
  const std::optional<uint32_t> buffer = packedUnit(plan, random);
  if (!buffer)
    return false;
  const uint32_t index = plan.buffers[*buffer].index;
  const UnitRole role = model::layoutWeights(plan.model).units[index].role;
  const model::Encoding of = *plan.model->encodings[role];
  Plan other = plan;
  setEncoding(other, role, model::Encoding::groups(of.codeBits == 4 ? 8 : 4, of.group));
  const uint64_t from = plan.buffers[*buffer].bytes, to = model::layoutWeights(other.model).units[index].bytes;
  plan.buffers[*buffer].bytes = to;
  for (Placement &placement : plan.placements)
    for (Extent &extent : placement.extents)
      if (extent.buffer == *buffer && extent.bytes == from)
        extent.bytes = to;
  for (Schedule &s : plan.schedules)
    for (Step &step : s.steps)
      for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
        if (Operand &o = s.operands[k]; step.kind == StepKind::Copy && o.buffer == *buffer && o.bytes == from) {
          o.bytes = to;
          step.linkBytes = to;
        }
  return true;
}

// An operand ends where the codes would, if no scales and minima lay between them.
bool coversCodesAlone(Plan &plan, Random &random) {
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  Schedule &s = pick(random, plan.schedules);
  std::vector<std::pair<uint32_t, uint64_t>> shorter; // operand, bytes of scales
  for (uint32_t k = 0; k < s.operands.size(); ++k) {
    const Buffer &buffer = plan.buffer(s, s.operands[k].buffer);
    if (buffer.kind != BufferKind::Weight || s.operands[k].arg != Arg::Weight)
      continue;
    const model::Tensor *matrix = layout.units[buffer.index].find(model::TensorRole::Matrix);
    if (matrix != nullptr && matrix->encoding.packed())
      shorter.emplace_back(k, static_cast<uint64_t>(matrix->paddedRows * (matrix->cols / matrix->encoding.group) * 4));
  }
  if (shorter.empty())
    return false;
  const auto &[operand, scales] = pick(random, shorter);
  // To what is aligned.
  s.operands[operand].bytes -= std::max<uint64_t>(256, scales / 256 * 256);
  return true;
}

// ---- caches

bool otherCacheBits(Plan &plan, Random &) {
  plan.kvEncoding.codeBits = plan.kvEncoding.codeBits == 4 ? 8 : 4;
  return plan.kvEncoding.packed();
}
bool otherCacheGroup(Plan &plan, Random &random) {
  const bool packed = plan.kvEncoding.packed();
  constexpr int32_t kOthers[] = {16, 32, 64, 128};
  const int32_t was = plan.kvEncoding.group;
  plan.kvEncoding.group = kOthers[below(random, std::size(kOthers))];
  return packed && plan.kvEncoding.group != was;
}
bool cacheNotPacked(Plan &plan, Random &random) {
  const bool packed = plan.kvEncoding.packed();
  plan.kvEncoding = static_cast<model::DType>(below(random, 3));
  return packed;
}
bool cachePacked(Plan &plan, Random &random) {
  const bool packed = plan.kvEncoding.packed();
  plan.kvEncoding = model::Encoding::groups(coin(random) ? 4 : 8, 32);
  return !packed;
}
// As large as if scales and minima were not there.
bool cacheOfCodesAlone(Plan &plan, Random &random) {
  if (!plan.kvEncoding.packed())
    return false;
  const uint64_t from = plan.buffers[plan.kvBuffer(0)].bytes;
  const auto group = static_cast<uint64_t>(plan.kvEncoding.group), codes = group * plan.kvEncoding.codeBits / 8;
  const uint64_t to = model::alignUp(from / (codes + 4) * codes);
  Buffer &cache = plan.buffers[plan.kvBuffer(static_cast<int64_t>(below(random, plan.model->layers)))];
  for (Placement &placement : plan.placements)
    for (Extent &extent : placement.extents)
      if (&plan.buffers[extent.buffer] == &cache && extent.bytes == from)
        extent.bytes = to;
  cache.bytes = to;
  return to != from;
}
} // namespace

const std::vector<Mutation> &packedMutations() {
  static const std::vector<Mutation> all = {
      {"codes of other bits", otherBits},
      {"groups of another size", otherGroup},
      {"a role is not packed", notPacked},
      {"a role is packed", packedInstead},
      {"a unit has the bytes of another encoding", bytesOfAnother},
      {"an operand covers codes, but not scales", coversCodesAlone},
      {"a cache's codes of other bits", otherCacheBits},
      {"a cache's groups of another size", otherCacheGroup},
      {"a cache is not packed", cacheNotPacked},
      {"a cache is packed", cachePacked},
      {"a cache has the bytes of codes alone", cacheOfCodesAlone},
  };
  return all;
}

} // namespace headrace::plan::test
