// SPDX-License-Identifier: Apache-2.0
//
// What a step takes: measured, or the roofline where nothing was measured.
//
//   compute  max(flops / (peak x efficiency), bytes / (bandwidth x efficiency)) + launch overhead
//   copy     latency + bytes / (bandwidth x efficiency)
//
// Prefill and decode are priced separately by construction: work depends on the rows and the context of the bucket.
#pragma once

#include <cstdint>

#include "kernels/Kernels.h"
#include "runtime/model/Hardware.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::cost {

// The bucket a step is priced for.
struct Shape {
  int64_t tokens = 1;     // rows
  int64_t sequences = 1;
  int64_t context = 1;    // tokens in the cache of each sequence once this iteration's are appended
};

// What a step does, in amounts.
struct Work {
  uint64_t flops = 0;
  uint64_t deviceBytes = 0; // read and written in device memory
  uint64_t linkBytes = 0;   // read over the link by a direct op
};

// Which linear op; the sizes follow from the model.
struct OpSite {
  kernels::Op op = kernels::Op::Linear;
  model::UnitRole unit = model::UnitRole::Qkv; // Norm and Linear: whose weights
};

Work workOf(const model::ModelSpec &spec, const OpSite &site, const Shape &shape, model::DType activation,
            model::DType kv, bool direct);

class CostModel {
public:
  virtual ~CostModel() = default;
  virtual uint64_t computeNs(const OpSite &site, const Shape &shape, bool direct) const = 0;
  virtual uint64_t copyNs(uint64_t bytes, bool hostToDevice) const = 0;
};

// The roofline over a hardware profile; the plainest model, and the fallback outside a record's grid.
class Roofline final : public CostModel {
public:
  Roofline(const model::ModelSpec &spec, const model::Hardware &hardware, model::DType activation, model::DType kv);
  uint64_t computeNs(const OpSite &site, const Shape &shape, bool direct) const override;
  uint64_t copyNs(uint64_t bytes, bool hostToDevice) const override;

private:
  model::ModelSpec spec_;
  model::Hardware hardware_;
  model::DType activation_, kv_;
};

} // namespace headrace::cost
