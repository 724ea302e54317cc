// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CpuLane.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/threads/Threads.h"

namespace headrace::cuda {
namespace {

struct Needs {
  bool any = false;
  uint64_t workspaceBytes = 0; // the most of a step
};
Needs needsOf(const plan::Plan &plan) {
  Needs needs;
  for (const plan::Schedule &schedule : plan.schedules)
    for (const plan::Step &step : schedule.steps) {
      if (step.lane != plan::Lane::Cpu)
        continue;
      needs.any = true;
      for (uint32_t i = 0; i < step.operandCount; ++i)
        if (const plan::Operand &operand = schedule.operands[step.firstOperand + i];
            operand.arg == plan::Arg::Workspace)
          needs.workspaceBytes = std::max(needs.workspaceBytes, operand.bytes);
    }
  return needs;
}

const kernels::IterationMeta *metaOf(const core::BoundStep &bound) {
  if (const auto *append = std::get_if<kernels::AppendArgs>(&bound.args))
    return append->meta;
  return std::get<kernels::AttentionArgs>(bound.args).meta; // planGraph() has no others here
}

} // namespace

void CpuLane::Count::raise() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeps_.load(std::memory_order_seq_cst) != 0)
    threads::futexWake(value_);
}

// No wake-up is lost: who waits says that it sleeps before it looks once more, who raises looks for it afterwards.
void CpuLane::Count::await(uint32_t value, int64_t spinNs) {
  for (const int64_t endNs = threads::monotonicNs() + spinNs; threads::monotonicNs() < endNs;)
    for (int i = 0; i < 32; ++i) {
      if (this->value() == value)
        return;
      threads::pauseSpinning();
    }
  sleeps_.store(1, std::memory_order_seq_cst);
  for (uint32_t now; (now = value_.load(std::memory_order_seq_cst)) != value;)
    threads::futexWait(value_, now, threads::kNever);
  sleeps_.store(0, std::memory_order_relaxed);
}

absl::Status CpuLane::start(const plan::Plan &plan) {
  const Needs needs = needsOf(plan);
  if (!needs.any)
    return absl::OkStatus();
  if (options_.threads < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("cuda device: threads = ", options_.threads, ", expected at least 1"));
  const model::ModelSpec &spec = *plan.model;
  pool_ = std::make_unique<threads::ThreadPool>(1, options_.threads);
  RETURN_IF_ERROR(pool_->attach(0, {.workspaceBytes = needs.workspaceBytes,
                                    .sharedBytes = kernels::hostTeamBytes(spec.heads, spec.kvHeads, spec.headDim),
                                    .unitNs = options_.unitNs,
                                    .cores = options_.helperCores}));
  RETURN_IF_ERROR(threads::startThread(thread_, "cpu lane", [this] { work(); }));
  return threads::pinThread(thread_, options_.core, "cpu lane");
}

void CpuLane::stop() {
  if (!started())
    return;
  step_ = nullptr;
  posted_.raise();
  thread_.join();
}

void CpuLane::work() {
  for (uint32_t posted = 1;; ++posted) {
    posted_.await(posted, threads::kPoolSpinNs);
    if (step_ == nullptr)
      return;
    execute(*step_);
    ended_.raise();
  }
}

CpuSteps CpuLane::stepsOf(const GraphPlan &plan) {
  CpuSteps steps(plan.nodes.size());
  for (uint32_t n = 0; n < plan.nodes.size(); ++n) {
    const GraphNode &node = plan.nodes[n];
    if (node.kind != NodeKind::Host)
      continue;
    steps[n] = std::make_unique<CpuStep>();
    CpuStep &step = *steps[n];
    step.lane = this;
    step.node = n;
    step.step = node.step;
    step.name = absl::StrCat(plan.name, ", step ", node.step, " (", kernels::opName(node.host.bound.op), ")");
    step.bound = node.host.bound;
    step.kernel = options_.kernelOf(step.bound.op);
    step.meta = metaOf(step.bound);
    step.bucket = plan.bucket;
  }
  return steps;
}

void CpuLane::callback(void *step) {
  CpuStep &own = *static_cast<CpuStep *>(step);
  own.lane->run(own);
}

void CpuLane::run(CpuStep &step) {
  const uint32_t ended = ended_.value() + 1;
  step_ = &step;
  posted_.raise();
  ended_.await(ended, threads::kSpinNs);
}

void CpuLane::execute(CpuStep &step) {
  if (hasFailed_.load(std::memory_order_relaxed)) // this thread writes it
    return;
  step.time.startNs = threads::monotonicNs();
  // Rows and tables are followed into host memory: they have come over the link, so they are looked at.
  if (absl::Status fits = core::checkFits(step.name, step.bucket, *step.meta); !fits.ok()) {
    failure_ = absl::InternalError(
        absl::StrCat(std::string(fits.message()), ": what the launch's rows are has not come to the host as it was"));
    hasFailed_.store(true, std::memory_order_release);
    return;
  }
  pool_->run(0, step.kernel, step.bound.argsPointer());
  step.time.endNs = threads::monotonicNs();
}

absl::Status CpuLane::failed() const {
  return hasFailed_.load(std::memory_order_acquire) ? failure_ : absl::OkStatus();
}

} // namespace headrace::cuda
