// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/Explain.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::string msText(uint64_t ns) { return absl::StrFormat("%.3f ms", static_cast<double>(ns) / 1e6); }

} // namespace

std::string bytesText(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 30)
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << 30));
  if (bytes >= uint64_t{1} << 20)
    return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << 20));
  return absl::StrFormat("%.2f KiB", static_cast<double>(bytes) / 1024.0);
}

std::string explainChoice(const model::ModelSpec &spec, const Target &target, const model::Policy &policy,
                          const Candidate &chosen, uint64_t arenaBytes, const Candidate *before, uint64_t beforeBytes,
                          const plan::Variant &decode) {
  const bool asked = policy.none || policy.interval || policy.offloadLayers || !chosen.units.empty();
  std::string text = absl::StrCat(chosen.describe(), " of ", spec.name, "'s ", spec.layers, " layers: ");
  if (asked)
    absl::StrAppend(&text, "as asked for");
  else if (chosen.offloadsNothing())
    absl::StrAppend(&text, "everything fits");
  else
    absl::StrAppend(&text, "the fewest that fit");
  absl::StrAppend(&text, "; takes ", arenaBytes, " of ", target.budget, " bytes (", bytesText(arenaBytes), " of ",
                  bytesText(target.budget), ")");
  if (before)
    absl::StrAppend(&text, ", ", before->describe(), " would take ", beforeBytes);
  absl::StrAppend(&text, ". Decode of ", decode.sequences, " at context ", decode.context, ": ",
                  msText(decode.predictedNs), " an iteration, compute alone ", msText(decode.computeAloneNs),
                  ", link alone ", msText(decode.linkAloneNs));
  return text;
}

std::string explainExhausted(const model::ModelSpec &spec, const Target &target, const model::Policy &policy,
                             const Candidate &smallest, const MemoryNeed &need) {
  std::string text =
      absl::StrCat("device memory of ", target.budget, " bytes (", bytesText(target.budget), ") cannot hold ",
                   spec.name, " at batch ", target.batch, " and context ", target.context, ": the minimum is ",
                   need.describe(), "; with ", smallest.describe(), ". What would do: a device memory of ", need.bytes,
                   " bytes, a smaller KV cache (a shorter context, a smaller batch, fewer kv_tokens)");
  if (!target.mixed.empty())
    absl::StrAppend(&text, ", smaller new-token buckets");
  if (smallest.layers < spec.layers && (policy.interval || policy.offloadLayers))
    absl::StrAppend(&text, ", more layers offloaded");
  return text;
}

std::string explainHostExhausted(const model::ModelSpec &spec, const model::Hardware &hardware, uint64_t hostBytes) {
  return absl::StrCat("host memory of ", hardware.hostMemoryBytes, " bytes (", bytesText(hardware.hostMemoryBytes),
                      ") of ", hardware.name, " cannot hold what is offloaded of ", spec.name, ": the minimum is ",
                      hostBytes, " bytes (", bytesText(hostBytes),
                      "), pinned, with this policy at this device memory. What would do: a host memory of ", hostBytes,
                      " bytes, more device memory, a smaller KV cache");
}

} // namespace headrace::compiler
