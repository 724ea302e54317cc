// SPDX-License-Identifier: Apache-2.0
//
// Which coordinates a request leaves free, and what choice coordinates stand for.
#pragma once

#include <vector>

#include "compiler/choice/CompileRequest.h"
#include "compiler/search/Generator.h"
#include "compiler/search/Scored.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

class Choices {
public:
  // Which coordinates a search may move along.
  struct Free {
    bool miniBatches = false, act = false, actAway = false, layers = true, embedding = true, head = true, slots = true,
         kvSlots = true, writeBack = true, kv = true, chunk = false, attention = false; // kv: caches may be split
    int64_t actStep = 4;                                                                // parts of a share
    int64_t weightEncodings = 1, kvEncodings = 1; // how many are allowed, as it is among them
    bool encodings() const { return weightEncodings > 1 || kvEncodings > 1; }
  };

  // `inOrder`: a policy whose candidates are taken in their order, so that weights are no coordinate; or null.
  Choices(const CompileRequest &request, const model::WeightLayout &layout, const Generator *inOrder = nullptr);

  const Free &free() const { return free_; }
  Coordinates origin() const;                 // nothing on the host but what is stated, and nothing packed
  std::vector<Coordinates> origins() const;   // that, and the same of each other encoding and attention that may be
  Choice common(const Coordinates &at) const; // what of it all placements have alike
  // The next larger or smaller number of mini-batches that divides the batch; itself where there is none.
  int64_t nextMiniBatches(int64_t count, int64_t way) const;
  bool actsMayLeave(const Coordinates &at) const; // for the host: activation blocks, of which it has some
  int64_t list(Candidate weights);                // its number among those that are listed
  void listAs(const Choices &other) { listed_ = other.listed_; }
  Candidate weights(const Coordinates &at, const Choice &common) const; // with all of KV on the device
  // So many blocks of each cache on the device, of more than that.
  void setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const;

private:
  const CompileRequest &request_;
  const model::WeightLayout &layout_;
  const Generator *const inOrder_;
  const bool oneCut_; // the circles of all classes are cut alike, so that nothing is brought between them
  Free free_;
  const std::vector<model::WeightEncodings> weightEncodings_;
  const std::vector<std::optional<model::Encoding>> kvEncodings_;
  std::vector<Candidate> listed_;
};

} // namespace headrace::compiler
