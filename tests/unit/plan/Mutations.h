// SPDX-License-Identifier: Apache-2.0
//
// Small changes to a plan, most of which break a rule. Each keeps what else would give it away in step: a buffer that
// moves takes its operands along, a truncated copy its amounts.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

using Random = std::mt19937_64;

struct Mutation {
  std::string name;
  bool (*apply)(Plan &plan, Random &random); // false: the plan has nothing of the kind
};

const std::vector<Mutation> &mutations();
// Of plans whose caches are split.
const std::vector<Mutation> &splitMutations();
// Of tails that copies write back.
const std::vector<Mutation> &writeBackMutations();
// Of states that are ahead of their homes, and of cycles.
const std::vector<Mutation> &cycleMutations();
// Of packed weights.
const std::vector<Mutation> &packedMutations();
// Of what each mini-batch has of its own.
const std::vector<Mutation> &miniBatchMutations();
// Of residuals that leave the device.
const std::vector<Mutation> &residualMutations();
// Of what stages receive, send and have not.
const std::vector<Mutation> &stageMutations();
// Of the ids that a stage keeps for what samples.
const std::vector<Mutation> &idMutations();
// Of what the cpu lane does, is brought and leaves.
const std::vector<Mutation> &cpuMutations();
// Of activation blocks, and of what is rebuilt from them; those of them of numbers, sizes, operands and places.
const std::vector<Mutation> &actMutations();
const std::vector<Mutation> &actSizeMutations();
// Of those at home on the host, and of the slots that they are brought to.
const std::vector<Mutation> &actHomeMutations();

} // namespace headrace::plan::test
