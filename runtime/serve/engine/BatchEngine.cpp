// SPDX-License-Identifier: Apache-2.0
//
// A batch run to its end, in the placement that the runtime has or that the request asks for: as many iterations in
// flight as the request allows, so that the device never waits for the host.
#include "runtime/serve/engine/BatchEngine.h"

#include "runtime/base/StatusMacros.h"
#include "runtime/serve/engine/BatchRun.h"

namespace headrace::serve {
namespace {

absl::Status runToEnd(core::Runtime &runtime, const GenerateRequest &request, BatchRun &run) {
  for (;;) {
    uint32_t placement = runtime.placement();
    if (request.placementOf && run.inFlight() < run.depth())
      if (const plan::IterationSize size = run.nextSize(placement); size.tokens > 0)
        placement = request.placementOf(size);
    ASSIGN_OR_RETURN(launched, run.launchNext(placement));
    if (launched)
      continue;
    if (run.inFlight() == 0)
      return absl::OkStatus();
    RETURN_IF_ERROR(run.readOldest());
  }
}

} // namespace

absl::StatusOr<GenerateResult> generate(core::Runtime &runtime, const GenerateRequest &request) {
  RETURN_IF_ERROR(checkRequest(runtime.plan(), request, runtime.placement()));
  BatchRun run(runtime);
  RETURN_IF_ERROR(run.begin(request));
  absl::Status status = runToEnd(runtime, request, run);
  // After a failure too: nothing of this call is left in flight.
  if (absl::Status ended = run.end(); status.ok())
    status = ended;
  if (absl::Status drained = runtime.device().drain(); status.ok())
    status = drained;
  if (!status.ok())
    return status;
  return run.takeResult();
}

} // namespace headrace::serve
