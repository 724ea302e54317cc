// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "flatbuffers/flatbuffers.h"
#include "kernels/Kernels.h"
#include "plan_generated.h"
#include "runtime/base/EnumCount.h"
#include "runtime/base/StatusMacros.h"
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

  // A time, where one is stored.
  std::optional<std::chrono::nanoseconds> time(const flatbuffers::Optional<uint64_t> &ns, const char *path) {
    constexpr auto kMost = static_cast<uint64_t>(std::chrono::nanoseconds::max().count());
    if (!ns)
      return std::nullopt;
    if (*ns > kMost)
      fail(path, " is ", *ns, ", expected at most ", kMost);
    return std::chrono::nanoseconds(static_cast<int64_t>(*ns));
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

  model::ModelSpec model(const fb::Model &m);
  void weightEncodings(const flatbuffers::Vector<const fb::WeightEncoding *> &vec, model::WeightEncodings &out);
  model::Encoding kvEncoding(uint8_t dtype, const fb::KvEncoding *packed, const char *where);
  model::Hardware hardware(const fb::Hardware &h);
  model::Goal goal(const fb::Goal &g);
  model::Policy policy(const fb::Policy &p);
  Buffer buffer(const fb::Buffer &b, const std::string &path);
  Placement placement(const fb::Placement &p, const std::string &path);
  State state(const fb::State &s, const std::string &path);
  Schedule schedule(const fb::Schedule &s, const std::string &path);

  const std::string &where_;
  uint64_t left_;
  absl::Status status_;
};

model::ModelSpec Decoder::model(const fb::Model &m) {
  model::ModelSpec out;
  out.name = text(m.name());
  out.family = enumerator<model::Family>(m.family(), "model.family");
  out.layers = m.layers();
  out.hidden = m.hidden();
  out.heads = m.heads();
  out.kvHeads = m.kv_heads();
  out.headDim = m.head_dim();
  out.intermediate = m.intermediate();
  out.vocab = m.vocab();
  out.maxPositions = m.max_positions();
  out.norm = enumerator<model::NormKind>(m.norm(), "model.norm");
  out.normEps = m.norm_eps();
  out.activation = enumerator<model::Activation>(m.activation(), "model.activation");
  out.qkvBias = m.qkv_bias();
  out.outBias = m.out_bias();
  out.mlpBias = m.mlp_bias();
  const fb::Rope &rope = *m.rope();
  out.rope.enabled = rope.enabled();
  out.rope.theta = rope.theta();
  out.rope.scaling = enumerator<model::RopeScalingKind>(rope.scaling(), "model.rope.scaling");
  out.rope.factor = rope.factor();
  out.rope.lowFreqFactor = rope.low_freq_factor();
  out.rope.highFreqFactor = rope.high_freq_factor();
  out.rope.originalMaxPositions = rope.original_max_positions();
  out.learnedPositions = m.learned_positions();
  out.positionOffset = m.position_offset();
  out.tiedEmbeddings = m.tied_embeddings();
  out.dtype = enumerator<model::DType>(m.dtype(), "model.dtype");
  out.qkNorm = m.qk_norm();
  if (m.weight_encodings() != nullptr)
    weightEncodings(*m.weight_encodings(), out.encodings);
  return out;
}

// One of each role at most, in the order of roles: one plan is one file.
void Decoder::weightEncodings(const flatbuffers::Vector<const fb::WeightEncoding *> &vec, model::WeightEncodings &out) {
  const std::string path = "model.weight_encodings";
  int next = 0;
  if (vec.size() == 0)
    fail(path, " is empty, expected none, or an encoding");
  fixed<int>(&vec, path, [&](const fb::WeightEncoding &e, uint32_t i) {
    const auto role = enumerator<model::UnitRole>(e.role(), path, "[", i, "].role");
    if (static_cast<int>(role) < next)
      fail(path, "[", i, "].role is ", static_cast<int>(role), ", expected more than the one before it");
    next = static_cast<int>(role) + 1;
    if (ok())
      out[role] = model::Encoding::groups(e.code_bits(), e.group(),
                                          enumerator<model::ScaleKind>(e.scale(), path, "[", i, "].scale"),
                                          enumerator<model::ZeroKind>(e.zero(), path, "[", i, "].zero"));
    return 0;
  });
}

// One of the two says: one plan is one file.
model::Encoding Decoder::kvEncoding(uint8_t dtype, const fb::KvEncoding *packed, const char *where) {
  const auto element = enumerator<model::DType>(dtype, where, "kv_dtype");
  if (packed == nullptr || !ok())
    return element;
  if (element != model::DType::F32)
    fail(where, "kv_dtype is ", static_cast<int>(dtype), ", expected 0 beside ", where, "kv_packed");
  if (packed->group() <= 0)
    fail(where, "kv_packed.group is ", packed->group(), ", expected 64 or 32");
  return model::Encoding::groups(packed->code_bits(), packed->group(),
                                 enumerator<model::ScaleKind>(packed->scale(), where, "kv_packed.scale"),
                                 enumerator<model::ZeroKind>(packed->zero(), where, "kv_packed.zero"));
}

model::Hardware Decoder::hardware(const fb::Hardware &h) {
  model::Hardware out;
  out.name = text(h.name());
  out.kind = enumerator<model::DeviceKind>(h.kind(), "hardware.kind");
  out.memoryBytes = h.memory_bytes();
  out.hostMemoryBytes = h.host_memory_bytes();
  out.flopsF32 = h.flops_f32();
  out.flopsF16 = h.flops_f16();
  out.memoryBandwidth = h.memory_bandwidth();
  out.h2dBandwidth = h.h2d_bandwidth();
  out.d2hBandwidth = h.d2h_bandwidth();
  out.duplexBandwidth = h.duplex_bandwidth();
  out.copyLatency = h.copy_latency();
  out.launchOverhead = h.launch_overhead();
  out.flopsEfficiency = h.flops_efficiency();
  out.memoryEfficiency = h.memory_efficiency();
  out.linkEfficiency = h.link_efficiency();
  out.threads = h.threads();
  out.memoryBandwidthLimit = h.memory_bandwidth_limit();
  out.classes = {.productFlopsEfficiency = h.product_flops_efficiency(),
                 .productMemoryEfficiency = h.product_memory_efficiency(),
                 .prefillAttentionFlopsEfficiency = h.prefill_attention_flops_efficiency(),
                 .prefillAttentionRamp = h.prefill_attention_ramp(),
                 .decodeAttentionMemoryEfficiency = h.decode_attention_memory_efficiency(),
                 .attentionOverhead = h.attention_overhead(),
                 .plainAttentionFlopsEfficiency = h.plain_attention_flops_efficiency(),
                 .rowMemoryEfficiency = h.row_memory_efficiency()};
  return out;
}

// flatbuffers::Optional is not std::optional where the header was configured for C++11.
template <typename T> std::optional<T> optional(const flatbuffers::Optional<T> &value) {
  return value ? std::optional<T>(*value) : std::nullopt;
}

model::Goal Decoder::goal(const fb::Goal &g) {
  model::Goal out;
  out.deviceMemory = optional(g.device_memory());
  out.batch = optional(g.batch());
  out.context = optional(g.context());
  out.kvTokens = optional(g.kv_tokens());
  out.kvDeviceMemory = optional(g.kv_device_memory());
  out.kvHostMemory = optional(g.kv_host_memory());
  out.miniBatches = g.mini_batches();
  out.expansion = optional(g.expansion());
  out.inputLen = optional(g.input_len());
  out.outputLen = optional(g.output_len());
  if (g.kv_dtype())
    out.kvEncoding = kvEncoding(*g.kv_dtype(), g.kv_packed(), "goal.");
  else if (g.kv_packed() != nullptr)
    fail("goal.kv_packed is there, expected none without goal.kv_dtype");
  out.blockTokens = g.block_tokens();
  out.ttft = time(g.ttft_ns(), "goal.ttft_ns");
  out.tpot = time(g.tpot_ns(), "goal.tpot_ns");
  out.sloFactor = optional(g.slo_factor());
  out.busDevices = g.bus_devices();
  if (g.record() != nullptr)
    out.record = text(g.record());
  out.elasticKv = enumerator<model::AutoOnOff>(g.elastic_kv(), "goal.elastic_kv");
  out.instances = enumerator<model::Instances>(g.instances(), "goal.instances");
  return out;
}

model::Policy Decoder::policy(const fb::Policy &p) {
  model::Policy out;
  out.name = text(p.name());
  out.none = p.none();
  out.interval = optional(p.interval());
  out.offloadLayers = optional(p.offload_layers());
  out.startRule = enumerator<model::StartRule>(p.start_rule(), "policy.start_rule");
  out.slots = optional(p.slots());
  out.offloadEmbedding = enumerator<model::AutoOnOff>(p.offload_embedding(), "policy.offload_embedding");
  out.offloadHead = enumerator<model::AutoOnOff>(p.offload_head(), "policy.offload_head");
  out.placements = optional(p.placements());
  out.kvWriteBack = enumerator<model::KvWriteBack>(p.kv_write_back(), "policy.kv_write_back");
  out.kvPlaces = optional(p.kv_places());
  out.residuals = enumerator<model::Residuals>(p.residuals(), "policy.residuals");
  out.actHome = enumerator<model::ActHome>(p.act_home(), "policy.act_home");
  out.prefer = enumerator<model::Prefer>(p.prefer(), "policy.prefer");
  if (p.act_num())
    out.actRatio = model::ActRatio{*p.act_num(), p.act_den()};
  return out;
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
  out.offloadedLayers = p.offloaded_layers();
  out.offloadsEmbedding = p.offloads_embedding();
  out.offloadsHead = p.offloads_head();
  out.startRule = enumerator<model::StartRule>(p.start_rule(), path, ".start_rule");
  out.startItems = p.start_items();
  out.extents = fixed<Extent>(p.extents(), absl::StrCat(path, ".extents"), [&](const fb::Extent &e, uint32_t i) {
    Extent extent;
    extent.buffer = e.buffer();
    extent.space = enumerator<Space>(e.space(), path, ".extents[", i, "].space");
    extent.encoding = enumerator<Encoding>(e.encoding(), path, ".extents[", i, "].encoding");
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
    return Local{buffer(b, p), b.address()};
  });
  return out;
}

Plan Decoder::plan(const fb::Plan &p) {
  Plan out;
  out.version = p.version();
  out.compilerVersion = text(p.compiler_version());
  out.model = model(*p.model());
  out.modelHash = text(p.model_hash());
  out.modelPath = text(p.model_path());
  out.hardware = hardware(*p.hardware());
  out.goal = goal(*p.goal());
  out.policy = policy(*p.policy());
  out.reason = text(p.reason());
  out.limitingResource = text(p.limiting_resource());
  out.activationDtype = enumerator<model::DType>(p.activation_dtype(), "activation_dtype");
  out.kvEncoding = kvEncoding(p.kv_dtype(), p.kv_packed(), "");
  out.blockTokens = p.block_tokens();
  out.miniBatches = p.mini_batches();
  out.kvBlocks = p.kv_blocks();
  out.actBlocks = p.act_blocks();
  out.contextBlocks = p.context_blocks();
  out.actRatio = {p.act_num(), p.act_den()};
  out.metaLayout = {p.max_tokens(), p.max_sequences(), p.max_blocks_per_sequence()};
  if (out.actBlocks > 0) {
    out.metaLayout.firstActBlock = out.kvBlocks;
    out.metaLayout.maxActBlocks = out.actBlocks;
  }
  out.maxContext = p.max_context();
  out.deviceMemory = p.device_memory();
  out.arenaBytes = p.arena_bytes();
  out.hostBytes = p.host_bytes();
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
  if (!fb::VerifyPlanBuffer(verifier))
    return absl::InvalidArgumentError(absl::StrCat(where, ": damaged plan file (FlatBuffers verifier)"));
  const fb::Plan &root = *fb::GetPlan(data);
  if (root.version() != kFormatVersion)
    return absl::InvalidArgumentError(absl::StrCat(where, ": version is ", root.version(),
                                                   ", this program reads version ", kFormatVersion,
                                                   "; compile the plan again"));
  Decoder decoder(where, bytes.size());
  Plan plan = decoder.plan(root);
  if (!decoder.status().ok())
    return decoder.status();
  return plan;
}

} // namespace headrace::plan
