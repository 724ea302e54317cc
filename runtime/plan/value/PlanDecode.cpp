// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "flatbuffers/flatbuffers.h"
#include "kernels/Kernels.h"
#include "plan_generated.h"
#include "runtime/base/EnumCount.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/job/InputsText.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlanBytes.h"

namespace headrace::plan {
namespace {

// Walks the tables of verified bytes. The first thing that does not fit is kept in `status`; what is decoded after that
// is not used.
class Decoder {
public:
  Decoder(const std::string &where, uint64_t bytes) : where_(where), left_(bytes) {}

  const absl::Status &status() const { return status_; }

  Plan plan(const fb::Plan &p);

private:
  bool ok() const { return status_.ok(); }

  template <typename... Parts> void fail(const Parts &...parts) {
    if (ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", parts...));
  }

  // Every byte of a file is claimed once. FlatBuffers allows two offsets to name the same bytes, and so a small file to
  // unfold into a huge plan: claims are counted against the file's size, and more is refused.
  bool claim(uint64_t bytes) {
    if (bytes > left_) {
      fail("the same bytes are used by more than one field");
      return false;
    }
    left_ -= bytes;
    return ok();
  }

  std::string text(const flatbuffers::String *s) {
    return claim(s->size() + sizeof(flatbuffers::uoffset_t)) ? s->str() : std::string();
  }

  template <typename E, typename... Path> E enumerator(uint8_t raw, const Path &...path) {
    constexpr int kCount = model::enumCount<E>();
    if (raw >= kCount)
      fail(path..., " is ", static_cast<int>(raw), ", expected 0 to ", kCount - 1);
    return static_cast<E>(raw);
  }
  template <typename... Path> bool flag(uint8_t raw, const Path &...path) {
    if (raw > 1)
      fail(path..., " is ", static_cast<int>(raw), ", expected 0 or 1");
    return raw != 0;
  }

  // Fixed structs or scalars: claimed, then converted one by one. `one` gets the element and its index.
  template <typename To, typename Vec, typename One>
  std::vector<To> fixed(const Vec *vec, const std::string &path, One one) {
    using Element = std::remove_cv_t<std::remove_pointer_t<typename Vec::return_type>>;
    std::vector<To> out;
    // The FlatBuffers verifier checks the alignment of a vector's length only; the builder does not align an empty one.
    if (vec->size() > 0 && reinterpret_cast<uintptr_t>(vec->Data()) % alignof(Element) != 0) {
      fail(path, " is not aligned");
      return out;
    }
    if (!claim(sizeof(flatbuffers::uoffset_t) + uint64_t{vec->size()} * sizeof(Element)))
      return out;
    out.reserve(vec->size());
    for (flatbuffers::uoffset_t i = 0; i < vec->size() && ok(); ++i) {
      if constexpr (std::is_pointer_v<typename Vec::return_type>)
        out.push_back(one(*vec->Get(i), i));
      else
        out.push_back(one(vec->Get(i), i));
    }
    return out;
  }

  // Tables: an offset in the vector, and at least the offset to the vtable in the table itself.
  template <typename To, typename Vec, typename One>
  std::vector<To> tables(const Vec *vec, const std::string &path, One one) {
    std::vector<To> out;
    for (flatbuffers::uoffset_t i = 0; i < vec->size(); ++i) {
      if (!claim(sizeof(flatbuffers::uoffset_t) + sizeof(flatbuffers::soffset_t)))
        break;
      out.push_back(one(*vec->Get(i), absl::StrCat(path, "[", i, "]")));
    }
    return out;
  }

  std::vector<uint64_t> durations(const flatbuffers::Vector<uint64_t> *vec, const std::string &path) {
    return fixed<uint64_t>(vec, absl::StrCat(path, ".durations_ns"), [](uint64_t ns, uint32_t) { return ns; });
  }

  void inputs(const std::string &text, Plan &out);
  Buffer buffer(const fb::Buffer &b, const std::string &path);
  Placement placement(const fb::Placement &p, const std::string &path);
  State state(const fb::State &s, const std::string &path);
  Schedule schedule(const fb::Schedule &s, const std::string &path);

  const std::string &where_;
  uint64_t left_;
  absl::Status status_;
};

// And what follows from them.
void Decoder::inputs(const std::string &text, Plan &out) {
  if (!ok())
    return;
  absl::StatusOr<model::Inputs> inputs = model::parseInputs(text, where_ + ": inputs");
  if (!inputs.ok()) {
    status_ = inputs.status();
    return;
  }
  out.model = std::move(inputs->model);
  out.hardware = std::move(inputs->hardware);
  out.goal = std::move(inputs->goal);
  out.policy = std::move(inputs->policy);
  const std::optional<model::Encoding> kv =
      model::kvEncodingFor(out.goal.kvEncoding.value_or(model::DType::F32), out.model->headDim);
  if (!out.goal.deviceMemory || !out.goal.kvEncoding || !kv || out.goal.autoMiniBatches || out.goal.autoKvTokens ||
      (out.policy.actRatio && out.policy.actRatio->isAuto())) {
    fail("inputs: expected goal.device_memory, goal.kv_dtype for heads of ", out.model->headDim,
         ", and no \"auto\" in goal.mini_batches, goal.kv_tokens and policy.act_ratio");
    return;
  }
  out.deviceMemory = *out.goal.deviceMemory;
  out.miniBatches = static_cast<uint32_t>(out.goal.miniBatches);
  out.blockTokens = out.goal.blockTokens;
  out.goal.kvEncoding = out.kvEncoding = *kv;
  out.actRatio = out.policy.actRatio.value_or(model::ActRatio());
}

Buffer Decoder::buffer(const fb::Buffer &b, const std::string &path) {
  Buffer out;
  out.name = text(b.name());
  out.kind = enumerator<BufferKind>(b.kind(), path, ".kind");
  out.layer = b.layer();
  out.bytes = b.bytes();
  out.index = b.index();
  return out;
}

Placement Decoder::placement(const fb::Placement &p, const std::string &path) {
  Placement out;
  out.name = text(p.name());
  out.interval = p.interval();
  out.startRule = enumerator<model::StartRule>(p.start_rule(), path, ".start_rule");
  out.startItems = p.start_items();
  out.extents = fixed<Extent>(p.extents(), absl::StrCat(path, ".extents"), [&](const fb::Extent &e, uint32_t i) {
    Extent extent;
    extent.buffer = e.buffer();
    extent.space = enumerator<Space>(e.space(), path, ".extents[", i, "].space");
    extent.direct = flag(e.direct(), path, ".extents[", i, "].direct");
    extent.interleaved = flag(e.interleaved(), path, ".extents[", i, "].interleaved");
    extent.bufferOffset = e.buffer_offset();
    extent.bytes = e.bytes();
    extent.address = e.address();
    return extent;
  });
  out.slots = fixed<Slot>(p.slots(), absl::StrCat(path, ".slots"), [](const fb::Slot &slot, uint32_t) {
    return Slot{slot.address(), slot.bytes()};
  });
  out.kvBlocks = p.kv_blocks();
  return out;
}

State Decoder::state(const fb::State &s, const std::string &path) {
  State out;
  out.placement = s.placement();
  out.contents =
      fixed<Content>(s.contents(), absl::StrCat(path, ".contents"), [&](const fb::Content &content, uint32_t i) {
        return Content{content.buffer(), content.buffer_offset(), content.bytes(), content.address(),
                       flag(content.dirty(), path, ".contents[", i, "].dirty")};
      });
  return out;
}

Schedule Decoder::schedule(const fb::Schedule &s, const std::string &path) {
  Schedule out;
  out.name = text(s.name());
  out.placement = s.placement();
  out.iterationClass = enumerator<IterationClass>(s.iteration_class(), path, ".iteration_class");
  out.maxTokens = s.max_tokens();
  out.maxSequences = s.max_sequences();
  out.maxContext = s.max_context();
  out.entryState = s.entry_state();
  out.exitState = s.exit_state();
  out.fromPlacement = s.from_placement();
  out.kvBlocks = s.kv_blocks();
  out.phase = s.phase();
  out.period = s.period();
  out.steps = fixed<Step>(s.steps(), absl::StrCat(path, ".steps"), [&](const fb::Step &x, uint32_t i) {
    Step step;
    step.kind = enumerator<StepKind>(x.kind(), path, ".steps[", i, "].kind");
    step.lane = enumerator<Lane>(x.lane(), path, ".steps[", i, "].lane");
    step.op = enumerator<kernels::Op>(x.op(), path, ".steps[", i, "].op");
    step.part = enumerator<Part>(x.part(), path, ".steps[", i, "].part");
    step.layer = x.layer();
    step.miniBatch = x.mini_batch();
    step.direct = flag(x.direct(), path, ".steps[", i, "].direct");
    step.resizable = flag(x.resizable(), path, ".steps[", i, "].resizable");
    step.dirtyOnly = flag(x.dirty_only(), path, ".steps[", i, "].dirty_only");
    step.firstOperand = x.first_operand();
    step.operandCount = x.operand_count();
    step.flops = x.flops();
    step.deviceBytes = x.device_bytes();
    step.linkBytes = x.link_bytes();
    return step;
  });
  out.operands = fixed<Operand>(s.operands(), absl::StrCat(path, ".operands"), [&](const fb::Operand &o, uint32_t i) {
    Operand operand;
    operand.buffer = o.buffer();
    operand.space = enumerator<Space>(o.space(), path, ".operands[", i, "].space");
    operand.access = enumerator<Access>(o.access(), path, ".operands[", i, "].access");
    operand.arg = enumerator<Arg>(o.arg(), path, ".operands[", i, "].arg");
    operand.interleaved = flag(o.interleaved(), path, ".operands[", i, "].interleaved");
    operand.bufferOffset = o.buffer_offset();
    operand.bytes = o.bytes();
    operand.address = o.address();
    return operand;
  });
  out.edges = fixed<Edge>(s.edges(), absl::StrCat(path, ".edges"), [&](const fb::Edge &e, uint32_t i) {
    const auto kind = static_cast<uint8_t>(e.kind() < 256 ? e.kind() : 255);
    return Edge{e.from(), e.to(), enumerator<EdgeKind>(kind, path, ".edges[", i, "].kind")};
  });
  out.locals = tables<Local>(s.locals(), absl::StrCat(path, ".locals"), [&](const fb::Buffer &b, const std::string &p) {
    return Local{buffer(b, p), b.address(), b.host_address()};
  });
  return out;
}

Plan Decoder::plan(const fb::Plan &p) {
  Plan out;
  out.version = p.version();
  out.compilerVersion = text(p.compiler_version());
  inputs(text(p.inputs()), out);
  out.modelHash = text(p.model_hash());
  out.modelPath = text(p.model_path());
  if (p.record_path() != nullptr)
    out.goal.record = text(p.record_path());
  out.reason = text(p.reason());
  out.limitingResource = text(p.limiting_resource());
  out.activationDtype = enumerator<model::DType>(p.activation_dtype(), "activation_dtype");
  out.kvBlocks = p.kv_blocks();
  out.actBlocks = p.act_blocks();
  out.contextBlocks = p.context_blocks();
  out.metaLayout = {p.max_tokens(), p.max_sequences(), p.max_blocks_per_sequence()};
  if (out.actBlocks > 0) {
    out.metaLayout.firstActBlock = out.kvBlocks;
    out.metaLayout.maxActBlocks = out.actBlocks;
  }
  out.maxContext = p.max_context();
  out.arenaBytes = p.arena_bytes();
  out.hostBytes = p.host_bytes();
  out.metaOnHost = p.meta_on_host();
  out.slowestPermille = p.slowest_permille();
  if (p.weight_hashes() != nullptr)
    out.weightHashes =
        fixed<uint64_t>(p.weight_hashes(), "weight_hashes", [](uint64_t hash, uint32_t) { return hash; });
  out.buffers = tables<Buffer>(p.buffers(), "buffers",
                               [&](const fb::Buffer &b, const std::string &path) { return buffer(b, path); });
  out.placements =
      tables<Placement>(p.placements(), "placements",
                        [&](const fb::Placement &x, const std::string &path) { return placement(x, path); });
  out.states =
      tables<State>(p.states(), "states", [&](const fb::State &x, const std::string &path) { return state(x, path); });
  out.schedules = tables<Schedule>(p.schedules(), "schedules",
                                   [&](const fb::Schedule &x, const std::string &path) { return schedule(x, path); });
  out.variants = tables<Variant>(p.variants(), "variants", [&](const fb::Variant &v, const std::string &path) {
    return Variant{v.new_tokens(),   v.sequences(),        v.context(),
                   v.placement(),    v.schedule(),         durations(v.durations_ns(), path),
                   v.predicted_ns(), v.compute_alone_ns(), v.link_alone_ns()};
  });
  out.transitions = tables<
      Transition>(p.transitions(), "transitions", [&](const fb::Transition &t, const std::string &path) {
    return Transition{t.from_state(), t.to_state(), t.schedule(), durations(t.durations_ns(), path), t.predicted_ns()};
  });
  if (p.choices() != nullptr)
    out.choices = fixed<BucketChoice>(p.choices(), "choices", [](const fb::BucketChoice &c, uint32_t) {
      return BucketChoice{c.variant(), c.slo_ns(), c.resident_ns(), c.layer_compute_ns(), c.layer_transfer_ns()};
    });
  return out;
}

} // namespace

absl::Status checkIsPlan(absl::Span<const std::byte> bytes, const std::string &where) {
  // Shorter than an offset, an identifier and an empty table, nothing can be a plan.
  if (bytes.size() < 16 || std::memcmp(bytes.data() + sizeof(flatbuffers::uoffset_t), kFileIdentifier, 4) != 0)
    return absl::InvalidArgumentError(absl::StrCat(where, ": not a plan file (identifier \"", kFileIdentifier,
                                                   "\" expected at byte 4, the file has ", bytes.size(), " bytes)"));
  return absl::OkStatus();
}

absl::StatusOr<Plan> decode(absl::Span<const std::byte> bytes, const std::string &where) {
  RETURN_IF_ERROR(checkIsPlan(bytes, where));
  if (bytes.size() > kMaxFileBytes)
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", bytes.size(), " bytes, a plan file has at most ", kMaxFileBytes));
  // Scalars are read in place, at the alignment the format gives them from the start of the bytes.
  std::vector<uint64_t> aligned;
  const auto *data = reinterpret_cast<const uint8_t *>(bytes.data());
  if (reinterpret_cast<uintptr_t>(data) % alignof(uint64_t) != 0) {
    aligned.resize((bytes.size() + 7) / 8);
    std::memcpy(aligned.data(), data, bytes.size());
    data = reinterpret_cast<const uint8_t *>(aligned.data());
  }
  flatbuffers::Verifier::Options options;
  options.max_depth = 8; // Plan > Schedule > Buffer is the deepest
  options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes.size() / 8 + 1);
  flatbuffers::Verifier verifier(data, bytes.size(), options);
  const auto damaged = [&] {
    return absl::InvalidArgumentError(absl::StrCat(where, ": damaged plan file (FlatBuffers verifier)"));
  };
  if (!verifier.VerifyBuffer<fb::AnyVersion>(nullptr))
    return damaged();
  if (const uint32_t version = flatbuffers::GetRoot<fb::AnyVersion>(data)->version(); version != kFormatVersion)
    return absl::InvalidArgumentError(absl::StrCat(where, ": version is ", version, ", this program reads version ",
                                                   kFormatVersion, "; compile the plan again"));
  flatbuffers::Verifier whole(data, bytes.size(), options);
  if (!fb::VerifyPlanBuffer(whole))
    return damaged();
  const fb::Plan &root = *fb::GetPlan(data);
  Decoder decoder(where, bytes.size());
  Plan plan = decoder.plan(root);
  if (!decoder.status().ok())
    return decoder.status();
  return plan;
}

} // namespace headrace::plan
