// SPDX-License-Identifier: Apache-2.0
//
// What `headrace bench serve` asks the compiler for, where it has a model and no plan: what flags and the job leave
// open, by the traffic that comes.
//
//   requests of up to 1,500 tokens     --batch 256 --context 1500 --kv-tokens auto --input-len 900 --output-len 200
//   no more than 16 at a time          --batch 16 ...
//   prompts whole, up to 5,000 tokens  ... --new-tokens 16,32,...,4096,5000
#pragma once

#include "absl/status/status.h"
#include "tools/commands/Commands.h"
#include "tools/commands/JobFlags.h"
#include "tools/commands/ServeTraffic.h"

namespace headrace::tools {

// As many seats as requests may take at a time, the longest request, the mean request's lengths, a KV cache of what
// memory is left, and iterations of as many rows as flags say; of a job that states one of these, that. What misses its
// objectives is served nevertheless. Refuses flags that no plan of these sizes allows.
absl::Status askForTraffic(const BenchServeOptions &options, const ServeTraffic &traffic, AssembledJob &assembled);

} // namespace headrace::tools
