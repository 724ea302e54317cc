// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/CpuPool.h"

#include <algorithm>
#include <cassert>

namespace headrace::sim {

void CpuPool::ask(size_t device, const TimedStep &step, int64_t readyNs) {
  assert(!has(device));
  asked_[device] = {&step, readyNs};
  readyNs_ = std::min(readyNs_, readyNs);
}

bool CpuPool::start(int64_t ns) {
  if (atWork_ != kNobody || readyNs_ > ns)
    return false;
  for (size_t d = 0; d < asked_.size(); ++d)
    if (has(d) && (atWork_ == kNobody || asked_[d].readyNs < asked_[atWork_].readyNs))
      atWork_ = d;
  startNs_ = sinceNs_ = ns;
  left_ = Progress{step(atWork_).ns} * kFullRate;
  rate_ = 0;
  predict();
  return true;
}

void CpuPool::setRate(uint64_t rate, int64_t ns) {
  if (rate == rate_)
    return;
  pass(ns);
  rate_ = rate;
  predict();
}

bool CpuPool::ended(int64_t ns) {
  if (atWork_ == kNobody || endNs_ != ns)
    return false;
  pass(ns);
  if (left_ == 0)
    return true;
  predict(); // longer than one wait
  return false;
}

void CpuPool::end() {
  asked_[atWork_].step = nullptr;
  atWork_ = kNobody;
  readyNs_ = kNeverNs;
  for (const Asked &asked : asked_)
    if (asked.step != nullptr)
      readyNs_ = std::min(readyNs_, asked.readyNs);
}

void CpuPool::pass(int64_t ns) {
  left_ -= std::min(left_, Progress{rate_} * static_cast<uint64_t>(ns - sinceNs_));
  sinceNs_ = ns;
}

void CpuPool::predict() {
  if (left_ != 0 && rate_ == 0)
    endNs_ = kNeverNs; // until it has a rate
  else
    endNs_ = sinceNs_ + static_cast<int64_t>(std::min<Progress>(left_ == 0 ? 0 : nsLeft(left_, rate_), kLongestWaitNs));
}

} // namespace headrace::sim
