// SPDX-License-Identifier: Apache-2.0
//
// Operands against what the model says they are. The sizes are worked out here from the model and the op,
// as the table below has them; nothing is taken from the steps' own amounts.
//
// The operands of a step, at most one of each Arg but for a publish, in any order. T, S: the schedule's maxTokens and
// maxSequences. "if": only where the model has it. Activations are of Plan::activationDtype, but the residual stream
// (Embed's X, Norm's and GatherRows' X, GatherRows' Y, Residual and the Y that goes with it) and logits are F32. They
// begin at byte 0; sizes are lower bounds.
//
//   Copy        Source R, Destination W: the same bytes of the same buffer; the host side is the buffer's home
//   Embed       Meta R, Table R (TokenTable of the embedding), Positions R if learned (PositionTable), Sampled R,
//               History W or RW, X W [T, hidden]
//   Norm        Meta R, X R, NormWeights R (of qkv, up or head: from NormWeight to the end of NormBias if there is one,
//               else of NormWeight), Y W; rows are T, of the head's S
//   Linear      Meta R, X R, Weight R (the unit's Matrix; for a tied head the embedding's TokenTable), Bias R if the
//               unit has one, Residual R if one is added (may be the very range of Y), Y W, Workspace W if
//               linearWorkspaceBytes() > 0; rows are T, of the head S
//   RopeAppend  Meta R, X RW [T, qkvRows], NormWeights R (the qkv unit's HeadNorms) if q and k have norms, Kv W or RW,
//               KvTail RW if there is one, KvHome RW if there is one, KvRebuilt RW where there are activation blocks
//   Attention   Meta R, X R [T, qkvRows], Kv R, KvTail R if there is one, KvRebuilt R where there are activation
//               blocks, Y W [T, qRows], Workspace W if attentionWorkspaceBytes() > 0
//   Rotate      Meta R, X RW [T, qkvRows], NormWeights R (the qkv unit's HeadNorms) if q and k have norms
//   Append      Meta R, X R [T, qkvRows], KvHome RW: in lane cpu
//   Attention   in lane cpu: Meta R, X R [T, qkvRows], KvHome R, Y W [T, qRows], Workspace W as the host's kernels need
//               one
//   FetchRows   Meta R, X R [T, qRows] on the host, Y W the same buffer on the device
//   ActAppend   Meta R, X R [T, hidden], Act W or RW
//   RebuildKv Meta R, Act R, Weight R (the qkv unit's Matrix), Bias R if the unit has one, NormWeights R (its
//   HeadNorms)
//               if k has a norm, Y W (actBlocks x kvBlockBytes), Workspace W if rebuildWorkspaceBytes() > 0
//   Activate    Meta R, X R [T, 2 * intermediate], Y W [T, intermediate]
//   GatherRows  Meta R, X R [T, hidden], Y W [S, hidden]
//   KeepIds     Meta R, Sampled R, History W or RW
//   Sample      Meta R, X R [S, vocab], History R, Sampled W or RW, Output W or RW, Workspace W if
//               sampleWorkspaceBytes() > 0
//   Publish     Output R, Meta R if wanted; on the compute lane. Of a stage that sends (Plan::sends) Residual R of each
//               mini-batch in their order: all of it, at its home on the host
//
// A stage that receives has no Embed, one that sends no GatherRows and no Sample, and neither has the others' weights.
// A stage that receives and has a head has KeepIds of each mini-batch before its Sample; no other plan has any, since
// Embed keeps ids as well.
//
// Where residual streams leave (Plan::residualsLeave), the stream of T rows - Embed's X, Norm's and GatherRows' X,
// Residual and its Y - is no transient but the whole residual of the step's mini-batch, on the device; what the head
// has of it, S rows, stays one.
//
// Steps of the cpu lane attend where the whole cache is at home on the host, KvHome all of it that may be in use, and
// there are no activation blocks.
//
// Act is a whole buffer, the step's layer's and mini-batch's; KvRebuilt is the Y of the RebuildKv before it of
// both (VerifyCaches.cpp). Kv is a whole buffer; of a cache that is split what is at home on the device, interleaved.
// KvTail is what else of it may be in use (CacheHomes::bytesInUse), as one run on the device, KvHome what may be in use
// and is mirrored, on the host: all of it, or, where copies write the tail back, the blocks that are at home on the
// device. What has no blocks is no operand. Output is a whole buffer, and so are Meta, Sampled and History; of several
// mini-batches the range of the step's own (Plan::ioRangeBytes()), of Meta from its header to the buffer's end, as
// block tables are behind all arrays. Caches and transients are the step's mini-batch's. Weights cover the bytes of
// their tensors (WeightLayout.h), packed ones of scales and minima as well as of codes; the matrices' are worked out
// here (UnitBytes.h). Table and Positions of a step marked direct are in host memory. A Workspace holds nothing before
// or after its step.
#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/TakenOperands.h"
#include "runtime/plan/proof/VerifyParts.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::plan {
namespace {

using model::TensorRole;
using model::UnitRole;

// The operands of one step against its op.
class OperandCheck : TakenOperands {
public:
  using TakenOperands::TakenOperands;

  void check(uint32_t step);

private:
  void rowsSent();
  void embed();
  void keepIds();
  void norm();
  void linear();
  void rebuildKv();
  void rotate();
  void ropeAppend();
  void attention();
  void attendOnCpu();
  void fetchRows();

  uint64_t sampled_ = 0, kept_ = 0; // mini-batches that steps so far have sampled, and kept the ids of
};

void OperandCheck::rowsSent() {
  uint32_t miniBatch = 0; // of the next
  for (uint32_t i = 0; i < step_->operandCount; ++i) {
    const Operand &o = schedule_.operands[step_->firstOperand + i];
    if (o.arg != Arg::Residual)
      continue;
    const uint32_t buffer = miniBatch < plan_.miniBatches ? buffers_.residual(miniBatch) : kNone;
    if (buffer == kNone)
      return fail("operand ", argName(o.arg), " is there ", miniBatch + 1, " times, expected one of each of ",
                  plan_.miniBatches, " mini-batches");
    if (o.buffer != buffer || o.bufferOffset != 0 || o.bytes != plan_.buffers[buffer].bytes || o.space != Space::Host ||
        o.access != Access::Read)
      return fail("operand ", argName(o.arg), " ", miniBatch, " is ",
                  describe(plan_, schedule_, o.buffer, o.bufferOffset, o.bytes), " in space ",
                  static_cast<int>(o.space), ", expected all of ", plan_.buffers[buffer].name,
                  " to be read on the host");
    ++miniBatch;
  }
  if (miniBatch < plan_.miniBatches)
    fail("the rows of mini-batch ", miniBatch, " are not published");
  note(Arg::Residual);
}

void OperandCheck::embed() {
  if (plan_.receives())
    return fail("the stage's rows come from another, expected none that it embeds");
  const model::Unit *table = unit(Arg::Table);
  if (table) {
    covers(Arg::Table, *table, table->find(TensorRole::TokenTable));
    if (spec_.learnedPositions)
      covers(Arg::Positions, *table, table->find(TensorRole::PositionTable));
  }
  range(Arg::Sampled, kR, Io::Sampled);
  range(Arg::History, kW | kRW, Io::History);
  stream(Arg::X, kW, spec_.hidden);
}

void OperandCheck::keepIds() {
  if (!plan_.receives())
    return fail("the plan embeds, expected ids that embed keeps");
  if (plan_.sends())
    return fail("the stage has no head");
  range(Arg::Sampled, kR, Io::Sampled);
  range(Arg::History, kW | kRW, Io::History);
  kept_ |= uint64_t{1} << step_->miniBatch;
}

void OperandCheck::norm() {
  const model::Unit *weights = unit(Arg::NormWeights);
  if (!weights)
    return;
  covers(Arg::NormWeights, *weights, weights->find(TensorRole::NormWeight));
  if (spec_.norm == model::NormKind::LayerNorm)
    covers(Arg::NormWeights, *weights, weights->find(TensorRole::NormBias));
  const bool head = weights->role == UnitRole::Head;
  const int64_t count = head ? sequences_ : tokens_;
  if (head)
    rowsF32(Arg::X, kR, count, spec_.hidden);
  else
    stream(Arg::X, kR, spec_.hidden);
  rows(Arg::Y, kW, count, spec_.hidden);
}

void OperandCheck::linear() {
  const model::Unit *weights = unit(Arg::Weight);
  if (!weights)
    return;
  const bool head = weights->role == UnitRole::Head || weights->role == UnitRole::Embedding;
  const model::Tensor *matrix =
      weights->find(weights->role == UnitRole::Embedding ? TensorRole::TokenTable : TensorRole::Matrix);
  covers(Arg::Weight, *weights, matrix);
  if (!matrix)
    return;
  if (const model::Tensor *bias = weights->find(TensorRole::Bias))
    covers(Arg::Bias, *weights, bias);
  const int64_t count = head ? sequences_ : tokens_;
  rows(Arg::X, kR, count, matrix->cols);
  const bool onto = find(Arg::Residual) != nullptr;
  if (head && onto)
    rowsF32(Arg::Residual, kR, count, matrix->rows);
  else if (onto)
    stream(Arg::Residual, kR, matrix->rows);
  if (head)
    rowsF32(Arg::Y, kW, count, matrix->rows);
  else if (onto)
    stream(Arg::Y, kW, matrix->rows);
  else
    rows(Arg::Y, kW, count, matrix->rows);
  workspace(kernels::linearWorkspaceBytes(
      backend(), count, matrix->rows, matrix->cols,
      matrix->encoding.packed() ? static_cast<int64_t>(model::dtypeBytes(plan_.activationDtype)) : 0));
}

void OperandCheck::rotate() {
  rows(Arg::X, kRW, tokens_, spec_.qkvRows());
  headNorms();
  if (!spec_.qkNorm && !spec_.rope.enabled)
    fail("rows of the model are neither rotated nor normalised");
}

void OperandCheck::ropeAppend() {
  rows(Arg::X, kRW, tokens_, spec_.qkvRows());
  headNorms();
  cache(kW | kRW);
  tail(kRW);
  rebuilt(kRW);
  home();
}

void OperandCheck::attention() {
  rows(Arg::X, kR, tokens_, spec_.qkvRows());
  cache(kR);
  tail(kR);
  rebuilt(kR);
  rows(Arg::Y, kW, tokens_, spec_.qRows());
  workspace(kernels::attentionWorkspaceBytes(backend(), sequences_, spec_.heads, spec_.headDim, schedule_.maxContext));
}

void OperandCheck::attendOnCpu() {
  if (!caches_.mirrors() || caches_.residentBytes(schedule_.placement) > 0 || caches_.mirrorBegin() > 0)
    return fail("the step is of lane cpu, expected where the whole cache is at home on the host");
  if (plan_.actBlocks > 0)
    return fail("the step is of lane cpu, expected in a plan without activation blocks");
  const bool appends = step_->op == kernels::Op::Append;
  rows(Arg::X, kR, tokens_, spec_.qkvRows());
  blocks(Arg::KvHome, appends ? kRW : kR, Space::Host, 0, caches_.bytesInUse(schedule_));
  if (appends)
    return;
  rows(Arg::Y, kW, tokens_, spec_.qRows());
  workspace(kernels::attentionWorkspaceBytes(backend(), sequences_, spec_.heads, spec_.headDim, schedule_.maxContext));
}

void OperandCheck::fetchRows() {
  rows(Arg::X, kR, tokens_, spec_.qRows());
  rows(Arg::Y, kW, tokens_, spec_.qRows());
  const Operand *x = find(Arg::X), *y = find(Arg::Y);
  if (x && y && (x->buffer != y->buffer || x->space != Space::Host || y->space != Space::Device))
    fail("it brings ", plan_.buffer(schedule_, x->buffer).name, " to ", plan_.buffer(schedule_, y->buffer).name,
         ", expected what is on the host of a buffer to where it is on the device");
}

void OperandCheck::rebuildKv() {
  if (!needsAct())
    return;
  act(kR);
  if (const Operand *operand = find(Arg::Act); operand && operand->space != Space::Device)
    fail("operand ", argName(Arg::Act), " is in space ", static_cast<int>(operand->space), ", expected on the device");
  const model::Unit *weights = unit(Arg::Weight);
  if (!weights)
    return;
  if (weights->role != UnitRole::Qkv)
    fail("operand ", argName(Arg::Weight), " is ", weights->name, ", expected the layer's qkv");
  covers(Arg::Weight, *weights, weights->find(TensorRole::Matrix));
  if (const model::Tensor *bias = weights->find(TensorRole::Bias))
    covers(Arg::Bias, *weights, bias);
  headNorms();
  local(Arg::Y, kW, rebuiltBytes());
  workspace(kernels::rebuildWorkspaceBytes(backend(), plan_.actBlocks * plan_.blockTokens,
                                           spec_.qkvRows() - spec_.qRows() + spec_.qRows() % model::kPanelRows,
                                           spec_.hidden, static_cast<int64_t>(model::dtypeBytes(plan_.activationDtype)),
                                           spec_.encodings[UnitRole::Qkv].has_value()));
}

void OperandCheck::check(uint32_t number) {
  begin(number);
  if (step_->kind == StepKind::Copy)
    return; // PlanStructure has seen to it
  if (step_->kind == StepKind::Publish) {
    for (uint32_t i = 0; i < plan_.miniBatches && !plan_.sends(); ++i)
      if (!(sampled_ >> i & 1))
        fail("no step before it samples mini-batch ", i);
    if (plan_.sends())
      rowsSent();
    whole(Arg::Output, kR, buffers_.io(Io::Output));
    if (find(Arg::Meta))
      meta();
  } else {
    meta();
    switch (step_->op) {
    case kernels::Op::Embed:
      embed();
      break;
    case kernels::Op::Norm:
      norm();
      break;
    case kernels::Op::Linear:
      linear();
      break;
    case kernels::Op::RopeAppend:
    case kernels::Op::Attention:
    case kernels::Op::Rotate:
    case kernels::Op::Append:
      if (step_->layer < 0)
        fail("the step is of no layer");
      else if (step_->op == kernels::Op::Rotate)
        rotate();
      else if (step_->lane == Lane::Cpu || step_->op == kernels::Op::Append)
        attendOnCpu();
      else
        step_->op == kernels::Op::RopeAppend ? ropeAppend() : attention();
      break;
    case kernels::Op::FetchRows:
      fetchRows();
      break;
    case kernels::Op::ActAppend:
      if (!needsAct())
        break;
      rows(Arg::X, kR, tokens_, spec_.hidden);
      act(kW | kRW);
      break;
    case kernels::Op::RebuildKv:
      rebuildKv();
      break;
    case kernels::Op::Activate:
      rows(Arg::X, kR, tokens_, 2 * spec_.intermediate);
      rows(Arg::Y, kW, tokens_, spec_.intermediate);
      break;
    case kernels::Op::GatherRows:
      if (plan_.sends()) {
        fail("the stage has no head");
        break;
      }
      stream(Arg::X, kR, spec_.hidden);
      rowsF32(Arg::Y, kW, sequences_, spec_.hidden);
      break;
    case kernels::Op::KeepIds:
      keepIds();
      break;
    case kernels::Op::Sample:
      if (plan_.sends()) {
        fail("the stage has no head");
        break;
      }
      if (plan_.receives() && !(kept_ >> step_->miniBatch & 1))
        fail("no step before it keeps the ids of mini-batch ", step_->miniBatch);
      rowsF32(Arg::X, kR, sequences_, spec_.vocab);
      range(Arg::History, kR, Io::History);
      range(Arg::Sampled, kW | kRW, Io::Sampled);
      whole(Arg::Output, kW | kRW, buffers_.io(Io::Output));
      sampled_ |= uint64_t{1} << step_->miniBatch;
      workspace(kernels::sampleWorkspaceBytes(backend(), sequences_, spec_.vocab));
      break;
    }
  }
  // A workspace may be given where none is needed.
  for (uint32_t i = 0; i < step_->operandCount; ++i) {
    const Operand &operand = schedule_.operands[step_->firstOperand + i];
    if (operand.arg == Arg::Workspace && !isTaken(Arg::Workspace))
      local(Arg::Workspace, kW | kRW, 0);
    else if (!isTaken(operand.arg))
      fail("operand ", argName(operand.arg), " is not one of the op's");
  }
}

} // namespace

std::string describe(const Plan &plan, const Schedule &schedule, uint32_t buffer, uint64_t offset, uint64_t bytes) {
  return absl::StrCat(plan.buffer(schedule, buffer).name, " [", offset, ", ", offset + bytes, ")");
}

void verifyOperands(const Plan &plan, const model::WeightLayout &layout, const BufferIndex &buffers,
                    const CacheHomes &caches, uint32_t schedule, Report &report) {
  OperandCheck check(plan, layout, buffers, caches, schedule, report);
  for (uint32_t step = 0; step < plan.schedules[schedule].steps.size() && !report.full(); ++step)
    check.check(step);
}

} // namespace headrace::plan
