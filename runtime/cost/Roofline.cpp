// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/AttentionSizes.h"
#include "kernels/CudaWorkspace.h"
#include "kernels/Kernels.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {
namespace {

uint64_t toNs(double seconds) { return wholeNs(seconds * 1e9); }

bool isProduct(kernels::Op op) { return op == kernels::Op::Linear || op == kernels::Op::RebuildKv; }

double orAll(double ofClass, double ofAll) { return ofClass > 0 ? ofClass : ofAll; }

// A few rows of 16 bits, on CUDA.
bool unpacksOnTheWay(const model::Hardware &hardware, model::DType activation, const OpSite &site, const Rows &rows,
                     const Work &work) {
  const uint64_t ofOp = site.unit == model::UnitRole::Head ? rows.sampled : rows.tokens;
  return hardware.kind == model::DeviceKind::Cuda && work.packedRows > 0 && site.op == kernels::Op::Linear &&
         kernels::CudaWorkspace::unpacksOnTheWay(static_cast<int64_t>(std::min<uint64_t>(ofOp, uint64_t{1} << 32)),
                                                 static_cast<int64_t>(model::dtypeBytes(activation)));
}

// About five instructions a weight: shifted, masked, made a number in two, rounded as half of a pair. As many take as
// long as ten flops of F32.
double unpackFlopsSeconds(const model::Hardware &hardware, const Work &work) {
  const double weights = static_cast<double>(work.packedRows) * static_cast<double>(work.packedCols);
  return hardware.flops(true) > 0 ? 10 * weights / hardware.flops(true) : 0;
}

double secondsFor(uint64_t amount, double rate) { return amount == 0 ? 0.0 : static_cast<double>(amount) / rate; }

} // namespace

uint64_t wholeNs(double ns) {
  if (!(ns < static_cast<double>(kLongestStepNs)))
    return kLongestStepNs;
  return ns <= 0 ? 0 : static_cast<uint64_t>(std::llround(ns));
}

Roofline::Roofline(const model::ModelSpec &spec, const model::Hardware &hardware, model::DType activation,
                   const model::Encoding &kv)
    : spec_(spec), hardware_(hardware), activation_(activation), kv_(kv) {}

double Roofline::seconds(const OpSite &site, const Rows &rows, bool direct) const {
  Work work = workOf(spec_, site, rows, activation_, kv_, direct);
  const double ahead = unpackAheadSeconds(site, rows, work);
  const double onTheWay =
      unpacksOnTheWay(hardware_, activation_, site, rows, work) ? unpackFlopsSeconds(hardware_, work) : 0;
  const double unpacking = unpackingSeconds(work.unpackFlops);
  const uint64_t flops = unpacking > 0 ? work.flops - work.unpackFlops : work.flops;
  return ahead + std::max({onTheWay, flopsSeconds(site.op, flops, rows) + unpacking + keptSeconds(work),
                           memorySeconds(site.op, work.deviceBytes), linkSeconds(work.linkBytes, !work.toHost)});
}

// A CUDA device writes packed weights unpacked, a part at a time, in front of the library's product, which reads them:
// packed bytes are the unpacking's, unpacked ones the product's. Each part is two launches. The host's tiles unpack as
// they multiply, and so does the kernel for a few rows.
double Roofline::unpackAheadSeconds(const OpSite &site, const Rows &rows, Work &work) const {
  using kernels::CudaWorkspace;
  if (hardware_.kind != model::DeviceKind::Cuda || work.packedRows == 0 ||
      unpacksOnTheWay(hardware_, activation_, site, rows, work))
    return 0;
  const auto element = static_cast<int64_t>(model::dtypeBytes(activation_));
  const int64_t rowsOfPart = CudaWorkspace::unpackedRows(work.packedRows, work.packedCols, element);
  const auto parts = static_cast<double>((work.packedRows + rowsOfPart - 1) / rowsOfPart);
  const double passes = site.op == kernels::Op::RebuildKv // of so many rows
                            ? std::ceil(static_cast<double>(rows.actRows) / CudaWorkspace::kRebuildRows)
                            : 1;
  const double unpacked =
      passes * static_cast<double>(work.packedRows) * static_cast<double>(work.packedCols * element);
  const double inMemory =
      memorySeconds(site.op, static_cast<uint64_t>(passes * static_cast<double>(work.packedBytes) + unpacked));
  const bool overLink = work.linkBytes > 0 && !work.toHost; // not among the device's bytes
  work.deviceBytes += static_cast<uint64_t>(unpacked) - (overLink ? 0 : work.packedBytes);
  return inMemory + (2 * passes * parts - 1) * hardware_.launchOverhead;
}

double Roofline::unpackSeconds(const OpSite &site, const Rows &rows) const {
  Work work = workOf(spec_, site, rows, activation_, kv_, /*direct=*/false);
  if (hardware_.kind == model::DeviceKind::Cuda && work.packedRows > 0)
    return unpacksOnTheWay(hardware_, activation_, site, rows, work) ? unpackFlopsSeconds(hardware_, work)
                                                                     : unpackAheadSeconds(site, rows, work);
  const uint64_t flops = work.unpackFlops;
  return hardware_.classes.unpackFlopsEfficiency > 0 ? unpackingSeconds(flops) : flopsSeconds(site.op, flops, rows);
}

double Roofline::unpackingSeconds(uint64_t flops) const {
  const double efficiency = hardware_.classes.unpackFlopsEfficiency;
  return efficiency > 0 ? secondsFor(flops, hardware_.flops(activation_ == model::DType::F32) * efficiency) : 0;
}

// Read, widened, laid out: of prompts next to nothing, as many queries share it.
double Roofline::keptSeconds(const Work &work) const {
  const double efficiency = hardware_.classes.readKvFlopsEfficiency,
               peak = hardware_.flops(activation_ == model::DType::F32);
  return efficiency > 0 ? 2 * secondsFor(work.keptValues, peak * efficiency) : 0;
}

bool Roofline::plainAttention() const {
  return hardware_.classes.plainAttentionFlopsEfficiency > 0 &&
         (activation_ == model::DType::F32 || (!kv_.packed() && kv_ != activation_) ||
          kernels::tensorCoreHead(spec_->headDim) < 0);
}

double Roofline::flopsSeconds(kernels::Op op, uint64_t flops, const Rows &rows) const {
  const model::OpClasses &classes = hardware_.classes;
  const double peak = hardware_.flops(activation_ == model::DType::F32);
  if (op != kernels::Op::Attention)
    return secondsFor(flops, peak * (isProduct(op) ? orAll(classes.productFlopsEfficiency, hardware_.flopsEfficiency)
                                                   : hardware_.flopsEfficiency));
  if (plainAttention()) // whose arithmetic is F32's
    return secondsFor(flops, hardware_.flops(true) * classes.plainAttentionFlopsEfficiency);
  const double seconds =
      secondsFor(flops, peak * orAll(classes.prefillAttentionFlopsEfficiency, hardware_.flopsEfficiency));
  // Rows that decode have their contexts cut into splits: none walks one alone.
  const bool prompts = rows.pairs > rows.contexts;
  return prompts && classes.prefillAttentionRamp > 0 ? seconds + std::sqrt(seconds * classes.prefillAttentionRamp)
                                                     : seconds;
}

double Roofline::memorySeconds(kernels::Op op, uint64_t bytes) const {
  const model::OpClasses &classes = hardware_.classes;
  const double ofClass = isProduct(op)                  ? classes.productMemoryEfficiency
                         : op == kernels::Op::Attention ? classes.decodeAttentionMemoryEfficiency
                                                        : classes.rowMemoryEfficiency;
  return secondsFor(bytes, hardware_.bandwidth() * orAll(ofClass, hardware_.memoryEfficiency));
}

double Roofline::launchSeconds(kernels::Op op) const {
  return op == kernels::Op::Attention ? orAll(hardware_.classes.attentionOverhead, hardware_.launchOverhead)
                                      : hardware_.launchOverhead;
}

uint64_t Roofline::computeNs(const OpSite &site, const Bucket &bucket, bool direct) const {
  return ns(site, bucket, direct ? How::Direct : How::OnDevice);
}

double Roofline::seconds(const OpSite &site, const Rows &rows, How how) const {
  if (!besideDevice(how))
    return seconds(site, rows, how == How::Direct);
  const Work work = workOf(spec_, site, rows, activation_, kv_, /*direct=*/false);
  return std::max(secondsFor(work.flops, hardware_.cpu.flops), secondsFor(work.deviceBytes, hardware_.cpu.bandwidth()));
}

double Roofline::launchSeconds(kernels::Op op, How how) const {
  return besideDevice(how) ? kHostNodeSeconds : launchSeconds(op);
}

uint64_t Roofline::ns(const OpSite &site, const Bucket &bucket, How how) const {
  return toNs(seconds(site, rowsOf(bucket), how) + launchSeconds(site.op, how));
}

uint64_t Roofline::cpuNs(const OpSite &site, const Bucket &bucket) const { return ns(site, bucket, How::OnCpu); }

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
Sharing Roofline::sharing() const { return sharingOf(hardware_); }

Sharing sharingOf(const model::Hardware &hardware, double linkBandwidth) {
  Sharing sharing(hardware.duplexShare());
  if (!hardware.cpu.known())
    return sharing;
  const auto ofLink = [&](double bandwidth) {
    return linkBandwidth > 0 ? linkBandwidth : bandwidth * hardware.linkEfficiency;
  };
  sharing.hostMemory = hardware.cpu.memoryBandwidth;
  sharing.asked = {ofLink(hardware.h2dBandwidth), ofLink(hardware.d2hBandwidth), hardware.cpu.bandwidth()};
  return sharing;
}

} // namespace headrace::cost
