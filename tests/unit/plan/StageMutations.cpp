// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

bool isStream(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Residual;
}
bool isSum(Plan &plan, const Spot &spot) {
  return stepAt(plan, spot).kind == StepKind::Compute && part(plan, spot, Arg::Residual) != nullptr;
}
// Copies of a mini-batch's stream that are the first of their schedule; or the last, from its slot.
std::vector<Spot> copiesOfStage(Plan &plan, Lane lane) {
  std::vector<Spot> out;
  if (lane == Lane::H2D ? !plan.receives() : !plan.sends())
    return out;
  for (uint32_t schedule = 0; schedule < plan.schedules.size(); ++schedule) {
    std::vector<uint32_t> of(plan.miniBatches, kNone);
    const Schedule &s = plan.schedules[schedule];
    for (uint32_t i = 0; i < s.steps.size(); ++i)
      if (s.steps[i].kind == StepKind::Copy && s.steps[i].lane == lane &&
          isStream(plan, s.operands[s.steps[i].firstOperand].buffer))
        if (uint32_t &step = of[s.steps[i].miniBatch]; step == kNone || lane == Lane::D2H)
          step = i;
    for (const uint32_t step : of)
      if (step != kNone)
        out.push_back({schedule, step});
  }
  return out;
}
std::vector<Spot> receives(Plan &plan) { return copiesOfStage(plan, Lane::H2D); }
std::vector<Spot> sends(Plan &plan) { return copiesOfStage(plan, Lane::D2H); }
std::vector<Spot> publishes(Plan &plan) {
  return spots(plan, [&](const Spot &spot) { return stepAt(plan, spot).kind == StepKind::Publish; });
}

bool sameEnds(const Edge &a, const Edge &b) { return a.from == b.from && a.to == b.to; }
// A step stands elsewhere, and its edges and durations with it, as far as edges still go forwards.
void moveStep(Plan &plan, const Spot &spot, uint32_t to) {
  Schedule &s = scheduleAt(plan, spot);
  const auto shift = [&](auto &list) {
    if (spot.step < to)
      std::rotate(list.begin() + spot.step, list.begin() + spot.step + 1, list.begin() + to + 1);
    else
      std::rotate(list.begin() + to, list.begin() + spot.step, list.begin() + spot.step + 1);
  };
  shift(s.steps);
  for (Variant &v : plan.variants)
    if (v.schedule == spot.schedule)
      shift(v.durationsNs);
  for (Edge &edge : s.edges)
    for (uint32_t *end : {&edge.from, &edge.to})
      if (*end == spot.step)
        *end = to;
      else if (spot.step < to)
        *end -= *end > spot.step && *end <= to ? 1 : 0;
      else
        *end += *end >= to && *end < spot.step ? 1 : 0;
  std::erase_if(s.edges, [](const Edge &edge) { return edge.from >= edge.to; });
  sortEdges(s);
}

// --- receive ---------------------------------------------------------------------------------------------------------

// By what stands before its copy, or may begin before that has ended.
bool readBeforeItHasCome(Plan &plan, Random &random) {
  std::vector<Spot> all = receives(plan);
  if (all.empty())
    return false;
  const Spot receive = pick(random, all);
  Schedule &s = scheduleAt(plan, receive);
  uint32_t reader = kNone;
  for (uint32_t i = receive.step + 1; i < s.steps.size() && reader == kNone; ++i)
    for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k)
      if (const Operand &o = s.operands[k];
          s.steps[i].kind == StepKind::Compute && o.buffer == source(plan, receive).buffer && o.access != Access::Write)
        reader = i;
  if (reader == kNone)
    return false;
  if (coin(random)) {
    moveStep(plan, receive, reader);
    if (coin(random)) { // in this order
      s.edges.push_back({reader - 1, reader, EdgeKind::War});
      s.edges.push_back({reader, reader + 1, EdgeKind::Raw});
      std::erase_if(s.edges, [&](const Edge &edge) { return s.steps[edge.from].lane == s.steps[edge.to].lane; });
      sortEdges(s);
      s.edges.erase(std::unique(s.edges.begin(), s.edges.end(), sameEnds), s.edges.end());
    }
    return true;
  }
  const auto waits = [&](const Edge &edge) {
    return edge.from >= receive.step && s.steps[edge.from].lane == Lane::H2D;
  };
  std::erase_if(s.edges, [&](const Edge &edge) { return edge.to <= reader && waits(edge); });
  return true;
}
bool leaveReceiveOut(Plan &plan, Random &random) {
  std::vector<Spot> all = receives(plan);
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}
// In place of the copy: a step that embeds into the slot, by what weights the first layer has.
bool embedWhereRowsCome(Plan &plan, Random &random) {
  std::vector<Spot> norms = spots(plan, [&](const Spot &spot) {
    const Operand *x = part(plan, spot, Arg::X);
    return stepAt(plan, spot).kind == StepKind::Compute && stepAt(plan, spot).op == Op::Norm &&
           isStream(plan, x->buffer);
  });
  if (!plan.receives() || norms.empty())
    return false;
  const Spot norm = pick(random, norms);
  Step step = stepAt(plan, norm);
  Operand x = *part(plan, norm, Arg::X), table = *part(plan, norm, Arg::NormWeights);
  x.access = Access::Write;
  table.arg = Arg::Table;
  step.op = Op::Embed;
  step.part = Part::Embedding;
  if (coin(random))
    step.layer = -1;
  insertStep(plan, {norm.schedule, norm.step - 1}, step,
             {*part(plan, norm, Arg::Meta), table, ioRange(plan, norm, Io::Sampled, Arg::Sampled, Access::Read),
              ioRange(plan, norm, Io::History, Arg::History, Access::Write), x});
  return true;
}

// --- send ------------------------------------------------------------------------------------------------------------

// It waits for what computes before the sum.
bool sendBeforeTheSum(Plan &plan, Random &random) {
  std::vector<Spot> all = sends(plan);
  if (all.empty())
    return false;
  const Spot send = pick(random, all);
  Schedule &s = scheduleAt(plan, send);
  uint32_t sum = kNone;
  for (const Spot &spot : spots(plan, [&](const Spot &spot) { return isSum(plan, spot); }))
    if (spot.schedule == send.schedule && spot.step < send.step &&
        part(plan, spot, Arg::Y)->buffer == source(plan, send).buffer)
      sum = spot.step;
  if (sum == kNone)
    return false;
  moveStep(plan, send, sum);
  s.edges.push_back({sum - 1, sum, EdgeKind::Raw});
  if (coin(random))
    s.edges.push_back({sum, sum + 1, EdgeKind::War});
  std::erase_if(s.edges, [&](const Edge &edge) { return s.steps[edge.from].lane == s.steps[edge.to].lane; });
  sortEdges(s);
  s.edges.erase(std::unique(s.edges.begin(), s.edges.end(), sameEnds), s.edges.end());
  return true;
}
bool leaveSendOut(Plan &plan, Random &random) {
  std::vector<Spot> all = sends(plan);
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}
// From the slot of another mini-batch, or as another's, to its home.
bool sendAnothers(Plan &plan, Random &random) {
  std::vector<Spot> all = sends(plan);
  if (all.empty())
    return false;
  const Spot send = pick(random, all);
  std::vector<Spot> others = all;
  std::erase_if(others, [&](const Spot &o) { return o.schedule != send.schedule || o.step == send.step; });
  if (others.empty())
    return false;
  const Spot other = pick(random, others);
  if (source(plan, other).address != source(plan, send).address && coin(random)) {
    source(plan, send).address = source(plan, other).address;
    return true;
  }
  for (const size_t side : {0, 1})
    (&source(plan, send))[side].buffer = (&source(plan, other))[side].buffer;
  destination(plan, send).address = destination(plan, other).address;
  if (coin(random))
    stepAt(plan, send).miniBatch = stepAt(plan, other).miniBatch;
  return true;
}

// --- publish ---------------------------------------------------------------------------------------------------------

// It stands before the send, or does not wait for it.
bool publishBeforeTheSend(Plan &plan, Random &random) {
  std::vector<Spot> all = sends(plan);
  if (all.empty())
    return false;
  const Spot send = pick(random, all);
  Schedule &s = scheduleAt(plan, send);
  uint32_t publish = send.step;
  while (publish < s.steps.size() && s.steps[publish].kind != StepKind::Publish)
    ++publish;
  if (publish == s.steps.size())
    return false;
  if (coin(random)) {
    moveStep(plan, {send.schedule, publish}, send.step);
    return true;
  }
  const auto waits = [&](const Edge &edge) { return edge.to == publish && s.steps[edge.from].lane == Lane::D2H; };
  return std::erase_if(s.edges, waits) > 0;
}
// Of a stage whose stream leaves: what an earlier layer has left at home, and nothing of the last.
bool publishEarlierRows(Plan &plan, Random &random) {
  std::vector<Spot> all = sends(plan);
  if (all.empty())
    return false;
  const uint32_t schedule = pick(random, all).schedule;
  std::erase_if(all, [&](const Spot &send) { return send.schedule != schedule; });
  std::sort(all.begin(), all.end(), [](const Spot &a, const Spot &b) { return a.step > b.step; });
  for (const Spot &send : all)
    eraseStep(plan, send);
  all = sends(plan);
  std::erase_if(all, [&](const Spot &send) { return send.schedule != schedule; });
  if (all.size() < plan.miniBatches)
    return false;
  Schedule &s = plan.schedules[schedule];
  uint32_t last = 0, publish = 0;
  for (const Spot &send : all)
    last = std::max(last, send.step);
  while (s.steps[publish].kind != StepKind::Publish)
    ++publish;
  moveStep(plan, {schedule, publish}, last + 1);
  std::erase_if(s.edges, [&](const Edge &edge) { return edge.to == last + 1; });
  s.edges.push_back({last, last + 1, EdgeKind::Raw});
  sortEdges(s);
  return true;
}
// One left out, twice, or before another's; or a part, or what is in a slot.
bool publishOtherRows(Plan &plan, Random &random) {
  std::vector<Spot> all = publishes(plan);
  if (!plan.sends() || all.empty())
    return false;
  const Spot publish = pick(random, all);
  Schedule &s = scheduleAt(plan, publish);
  Step &step = stepAt(plan, publish);
  std::vector<uint32_t> rows;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    if (s.operands[k].arg == Arg::Residual)
      rows.push_back(k);
  const uint32_t one = pick(random, rows), other = pick(random, rows);
  switch (below(random, 5)) {
  case 0: // the last takes its place
    std::swap(s.operands[one], s.operands[step.firstOperand + step.operandCount - 1]);
    --step.operandCount;
    return true;
  case 1:
    std::swap(s.operands[one], s.operands[other]);
    return one != other;
  case 2:
    s.operands[one] = s.operands[other];
    return one != other;
  case 3:
    s.operands[one].bytes -= 64;
    return true;
  default:
    s.operands[one].space = Space::Device;
    s.operands[one].address = source(plan, sends(plan).front()).address;
    return true;
  }
}
// Of a stage with a head, or of a model that is no stage: where rows have a home.
bool publishRowsBesideTokens(Plan &plan, Random &random) {
  std::vector<Spot> all = publishes(plan);
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (isStream(plan, i))
      rows.push_back(i);
  if (plan.sends() || rows.empty() || all.empty())
    return false;
  const Spot publish = pick(random, all);
  Schedule &s = scheduleAt(plan, publish);
  Step &step = stepAt(plan, publish);
  std::vector<Operand> operands(s.operands.begin() + step.firstOperand,
                                s.operands.begin() + step.firstOperand + step.operandCount);
  const uint32_t buffer = pick(random, rows);
  for (const Extent &e : plan.placements[s.placement].extents)
    if (e.buffer == buffer)
      operands.push_back({buffer, Space::Host, Access::Read, Arg::Residual, 0, e.bytes, e.address});
  step.firstOperand = static_cast<uint32_t>(s.operands.size());
  ++step.operandCount;
  s.operands.insert(s.operands.end(), operands.begin(), operands.end());
  return true;
}
// What is in a slot goes home once more, behind the publish, with what it waits for or not.
bool writeHomeBehindThePublish(Plan &plan, Random &random) {
  std::vector<Spot> all = publishes(plan);
  if (!plan.model->isStage() || all.empty())
    return false;
  const Spot publish = pick(random, all);
  const Schedule &s = scheduleAt(plan, publish);
  const Operand *last = nullptr; // a slot that a step writes
  for (uint32_t i = 0; i < publish.step; ++i)
    for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k)
      if (const Operand &o = s.operands[k];
          isStream(plan, o.buffer) && o.access != Access::Read && o.space == Space::Device)
        last = &o;
  if (last == nullptr)
    return false;
  Operand from = *last, to;
  from.access = Access::Read;
  from.arg = Arg::Source;
  to = from;
  to.access = Access::Write;
  to.arg = Arg::Destination;
  to.space = Space::Host;
  for (const Extent &e : plan.placements[s.placement].extents)
    if (e.buffer == to.buffer)
      to.address = e.address;
  Step step;
  step.kind = StepKind::Copy;
  step.lane = Lane::D2H;
  step.part = Part::Movement;
  step.miniBatch = static_cast<uint8_t>(plan.buffers[from.buffer].index);
  step.resizable = true;
  step.linkBytes = from.bytes;
  insertCopy(plan, publish.schedule, publish.step + 1, step, from, to);
  if (below(random, 4) != 0)
    scheduleAt(plan, publish).edges.push_back({publish.step, publish.step + 1, EdgeKind::War});
  sortEdges(scheduleAt(plan, publish));
  return true;
}

// --- what a stage has not --------------------------------------------------------------------------------------------

// Behind a norm of the stream, whose result it writes again: nobody's loss.
bool gatherRowsWithoutAHead(Plan &plan, Random &random) {
  std::vector<Spot> norms = spots(plan, [&](const Spot &spot) {
    return stepAt(plan, spot).kind == StepKind::Compute && stepAt(plan, spot).op == Op::Norm;
  });
  if (!plan.sends() || norms.empty())
    return false;
  const Spot norm = pick(random, norms);
  Step step = stepAt(plan, norm);
  step.op = Op::GatherRows;
  if (coin(random)) {
    step.layer = -1;
    step.part = Part::Head;
  }
  insertStep(plan, {norm.schedule, norm.step - 1}, step,
             {*part(plan, norm, Arg::Meta), *part(plan, norm, Arg::X), *part(plan, norm, Arg::Y)});
  return true;
}
// Of the rows of q, k and v, in place of logits.
bool sampleWithoutAHead(Plan &plan, Random &random) {
  std::vector<Spot> linears = spots(plan, [&](const Spot &spot) {
    return stepAt(plan, spot).kind == StepKind::Compute && stepAt(plan, spot).op == Op::Linear && !isSum(plan, spot);
  });
  if (!plan.sends() || linears.empty())
    return false;
  const Spot linear = pick(random, linears);
  Step step = stepAt(plan, linear);
  Operand logits = *part(plan, linear, Arg::Y);
  logits.access = Access::Read;
  logits.arg = Arg::X;
  step.op = Op::Sample;
  step.part = Part::Head;
  std::vector<Operand> operands = {*part(plan, linear, Arg::Meta), logits,
                                   ioRange(plan, linear, Io::History, Arg::History, Access::Read),
                                   ioRange(plan, linear, Io::Sampled, Arg::Sampled, Access::ReadWrite),
                                   ioRange(plan, linear, Io::Output, Arg::Output, Access::Write)};
  if (const Operand *workspace = part(plan, linear, Arg::Workspace))
    operands.push_back(*workspace);
  insertStep(plan, linear, step, operands);
  return true;
}

// At home behind all others, on the device or on the host.
bool addAbsentWeight(Plan &plan, Random &random) {
  if (!plan.model->isStage())
    return false;
  const bool head = plan.sends() && (!plan.receives() || coin(random));
  const auto units = static_cast<uint32_t>(model::unitCount(plan.model->layers));
  const auto buffer = static_cast<uint32_t>(plan.buffers.size());
  Buffer weight{head ? "head" : "embedding", BufferKind::Weight, -1, model::kAlign, head ? units - 1 : 0};
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      o.buffer += o.buffer >= buffer ? 1 : 0;
  plan.buffers.push_back(weight);
  const bool host = coin(random);
  uint64_t &end = host ? plan.hostBytes : plan.arenaBytes;
  for (Placement &p : plan.placements)
    p.extents.push_back({buffer, host ? Space::Host : Space::Device, false, 0, weight.bytes, end});
  end += weight.bytes;
  plan.deviceMemory = std::max(plan.deviceMemory, plan.arenaBytes);
  return true;
}
// The last one, or not; the first one, or not; no stage.
bool anotherStage(Plan &plan, Random &random) {
  if (!plan.model->isStage())
    return false;
  model::Stage &stage = plan.model->stage;
  const int64_t end = stage.first + plan.model->layers;
  switch (below(random, 3)) {
  case 0:
    stage.of = plan.sends() ? end : end + 1;
    return stage.of > plan.model->layers;
  case 1:
    stage.of += plan.receives() ? 0 : 1;
    stage.first = plan.receives() ? 0 : 1;
    return true;
  default:
    stage = {};
    return true;
  }
}

} // namespace

const std::vector<Mutation> &stageMutations() {
  static const std::vector<Mutation> all = {{"read the stream before it has come", readBeforeItHasCome},
                                            {"leave the receive out", leaveReceiveOut},
                                            {"embed where rows come", embedWhereRowsCome},
                                            {"send before the last sum", sendBeforeTheSum},
                                            {"leave the send out", leaveSendOut},
                                            {"send another mini-batch's rows", sendAnothers},
                                            {"publish before the send", publishBeforeTheSend},
                                            {"publish earlier rows", publishEarlierRows},
                                            {"publish other rows", publishOtherRows},
                                            {"publish rows beside tokens", publishRowsBesideTokens},
                                            {"write a home behind the publish", writeHomeBehindThePublish},
                                            {"gather rows without a head", gatherRowsWithoutAHead},
                                            {"sample without a head", sampleWithoutAHead},
                                            {"a weight of another stage", addAbsentWeight},
                                            {"another stage", anotherStage}};
  return all;
}

} // namespace headrace::plan::test
