// SPDX-License-Identifier: Apache-2.0
//
// Which coordinates a request leaves free, and what choice coordinates stand for.
#pragma once

#include <vector>

#include "compiler/choice/CompileRequest.h"
#include "compiler/search/Scored.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

class Choices {
public:
  // Which coordinates a search may move along.
  struct Free {
    bool miniBatches = false, act = false, actAway = false, layers = true, embedding = true, head = true, slots = true,
         kvSlots = true, writeBack = true, kv = true, chunk = false; // kv: caches may be split
  };

  Choices(const CompileRequest &request, const model::WeightLayout &layout);

  const Free &free() const { return free_; }
  Coordinates origin() const;                 // nothing on the host but what is stated
  Choice common(const Coordinates &at) const; // what of it all placements have alike
  int64_t list(Candidate weights);            // its number among those that are listed
  void listAs(const Choices &other) { listed_ = other.listed_; }
  Candidate weights(const Coordinates &at, const Choice &common) const; // with all of KV on the device
  // So many blocks of each cache on the device, of more than that.
  void setTails(const Coordinates &at, int64_t resident, Candidate &candidate) const;

private:
  const CompileRequest &request_;
  const model::WeightLayout &layout_;
  const bool oneCut_; // the circles of all classes are cut alike, so that nothing is brought between them
  Free free_;
  std::vector<Candidate> listed_;
};

} // namespace headrace::compiler
