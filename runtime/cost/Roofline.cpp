// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "runtime/cost/CostModel.h"

namespace headrace::cost {
namespace {

uint64_t toNs(double seconds) { return wholeNs(seconds * 1e9); }

double secondsFor(uint64_t amount, double rate) { return amount == 0 ? 0.0 : static_cast<double>(amount) / rate; }

} // namespace

uint64_t wholeNs(double ns) {
  if (!(ns < static_cast<double>(kLongestStepNs)))
    return kLongestStepNs;
  return ns <= 0 ? 0 : static_cast<uint64_t>(std::llround(ns));
}

Roofline::Roofline(const model::ModelSpec &spec, const model::Hardware &hardware, model::DType activation,
                   model::DType kv)
    : spec_(spec), hardware_(hardware), activation_(activation), kv_(kv) {}

double Roofline::seconds(const OpSite &site, const Rows &rows, bool direct) const {
  const Work work = workOf(spec_, site, rows, activation_, kv_, direct);
  const double peak = hardware_.flops(activation_ == model::DType::F32);
  return std::max({secondsFor(work.flops, peak * hardware_.flopsEfficiency),
                   secondsFor(work.deviceBytes, hardware_.bandwidth() * hardware_.memoryEfficiency),
                   linkSeconds(work.linkBytes, !work.toHost)});
}

uint64_t Roofline::computeNs(const OpSite &site, const Bucket &bucket, bool direct) const {
  return toNs(seconds(site, rowsOf(bucket), direct) + hardware_.launchOverhead);
}

uint64_t Roofline::directNs(const OpSite &site, const Bucket &bucket) const {
  const Work work = workOf(spec_, site, bucket, activation_, kv_, true);
  return toNs(linkSeconds(work.linkBytes, !work.toHost) + hardware_.launchOverhead);
}

double Roofline::linkSeconds(uint64_t bytes, bool hostToDevice) const {
  return secondsFor(bytes, (hostToDevice ? hardware_.h2dBandwidth : hardware_.d2hBandwidth) * hardware_.linkEfficiency);
}

uint64_t Roofline::copyNs(uint64_t bytes, bool hostToDevice) const {
  return toNs(hardware_.copyLatency + linkSeconds(bytes, hostToDevice));
}

double Roofline::duplexShare() const { return hardware_.duplexShare(); }

} // namespace headrace::cost
