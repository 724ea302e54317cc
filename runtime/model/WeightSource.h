// SPDX-License-Identifier: Apache-2.0
//
// Where weight bytes come from when a plan is loaded: a checkpoint's safetensors files, or a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/Pieces.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {

class WeightSource {
public:
  virtual ~WeightSource() = default;
  // Writes all unit.bytes bytes of one unit to `out` (out.size() == unit.bytes): linear operands in `order`, other
  // matrices RowMajor, packed ones packed, vectors widened to F32, padding rows and gaps between tensors zero. `out`
  // needs no alignment. kInvalidArgument names the file, the tensor and the place of a value that cannot be packed.
  // Thread-safe for different `out`. kInvalidArgument if the unit is not one of the layout the source was opened for.
  virtual absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const = 0;
  // The same bytes, warnings and error, with whatever threads `each` has: a source that cannot share its work has it
  // done by the caller's.
  virtual absl::Status fillBy(Each /*each*/, const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const {
    return fill(unit, order, out);
  }
  // What fill() would write, where the source has it in memory for as long as it lives: whoever copies it to a device
  // need not have it filled first. Empty where it has not.
  virtual absl::Span<const std::byte> held(const Unit & /*unit*/, MatrixOrder /*order*/) const { return {}; }
};

class CheckpointFiles; // CheckpointFiles.h: a folder's files, opened once and shared

// Checks that every tensor the layout names is in the files with the expected shape and element type: matrices all the
// layout's, vectors any of F32, F16, BF16. Names may lack the leading "model." (exports of the base model); tensors the
// layout does not name are ignored (but see checkCheckpoint). Every refusal names the file and the tensor: kNotFound
// for what is missing, kInvalidArgument for a tensor of another shape or type.
//
// fill() hands `warn` one line for each tensor that has values which are not finite: the file, the tensor, how many,
// and where the first stands. It is called on the thread that calls fill().
using Warn = std::function<void(const std::string &)>;
absl::StatusOr<std::unique_ptr<WeightSource>> openCheckpoint(std::shared_ptr<const CheckpointFiles> files,
                                                             const WeightLayout &layout, Warn warn = {});

// Whether a checkpoint is the model's and nothing but: openCheckpoint's refusals, and kInvalidArgument for
// what says that config.json is another model's: a tensor of a layer beyond the last, or an lm_head.weight other than
// the table that the head is tied to. Returns a line, or none, of tensors that nothing uses; those that real
// checkpoints have and no model computes with (rotary frequencies, position ids, a version, a tied head's copy) are not
// named.
absl::StatusOr<std::vector<std::string>> checkCheckpoint(const CheckpointFiles &files, const ModelSpec &spec,
                                                         const WeightLayout &layout);

// A hash of each unit's bytes as the checkpoint has them, in the order of the layout: XXH64 of every source tensor in
// turn, the first with seed 0, each other with the hash so far as its seed.
absl::StatusOr<std::vector<uint64_t>>
hashCheckpoint(const CheckpointFiles &files, const WeightLayout &layout,
               const std::function<void(uint64_t done, uint64_t total)> &progress);

// The element type of the checkpoint's matrices, as its token table has it.
absl::StatusOr<DType> checkpointDtype(const CheckpointFiles &files, const WeightLayout &layout);

// Weights from a counter-based generator on (seed, unit, tensor, element): matrices uniform in +-sqrt(3 / cols), so
// that a linear op keeps its input's variance, norm weights uniform in 1 +- 0.1, biases in +-0.1; the same for every
// placement and element order. Never fails for a unit of layoutWeights().
std::unique_ptr<WeightSource> syntheticWeights(uint64_t seed);

} // namespace headrace::model
