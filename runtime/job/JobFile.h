// SPDX-License-Identifier: Apache-2.0
//
// What a user asks for: a model on a hardware, with a goal, a policy and buckets; `job.toml` or the same as flags.
//
//   [model]    path = "folder"                   or shape = "../models/opt-6.7b.toml", or a shipped shape's bare name
//                                                "opt-6.7b", or the shape's keys inline (Shape.h)
//              weight_encoding = "q4"            beside any of them: "q8", "q4:32", "qkv=q4,head=q8" (Shape.h)
//   [hardware] file = "../hardware/a10.toml"     or a bare name, or its keys inline (Hardware.h); keys beside `file`
//                                                replace the file's
//   [goal]     device_memory = "8GiB"  batch = 8  context = 2048  kv_tokens = 16384 | "auto"  kv_dtype = "auto"
//              mini_batches = 4 | "auto"
//              allow_quantized = "nothing" | "weights" | "kv" | "both"
//              kv_device_memory = "3GiB"  kv_host_memory = "40GiB"  expansion = 1.5 | "auto"
//              block_tokens = 16  elastic_kv = "auto" | true | false  ttft = "500ms"  tpot = "50ms" | slo_factor = 1.5
//              input_len = 1024  output_len = 128
//              instances = "together" | "apart"  bus_devices = 2  record = "record.toml"
//   [policy]   name = "headrace"  placements = 8  interval = 4 | "none"  offload_layers = 10  start_rule = "eager"
//              kv_write_back = "auto" | "mirror" | "all" | "dirty"  kv_places = 6  residuals = "device" | "host"
//              act_ratio = 0.25 | "1/3" | "auto"  act_home = "auto" | "device" | "host"
//              prefer = "latency" | "memory" | "throughput"
//              percent = [55, 45, 0, 100, 0, 100] | "55 45 0 100 0 100"
//              slots = 2  offload_embedding = "auto" | true | false  offload_head = "auto" | true | false
//   [buckets]  new_tokens = [1, 8, 512]  sequences = [1, 8]  contexts = [256, 2048]
//
// Every key is also a flag of `headrace compile` (underscores become dashes); a flag wins over the file.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/Boxed.h"
#include "runtime/base/Encoding.h"
#include "runtime/base/Units.h"
#include "runtime/job/ActRatio.h"
#include "runtime/job/Hardware.h"
#include "runtime/job/Percent.h"
#include "runtime/model/FolderContents.h"

namespace headrace::model {

struct ModelSpec;

enum class StartRule : uint8_t { Paper = 0, Eager = 1, Ahead = 2 }; // Ahead: of some policies, not to be asked for
enum class AutoOnOff : uint8_t { Auto = 0, On = 1, Off = 2 };
// How rows get home that are appended to KV blocks at home on the host: written there by the step that appends them, or
// copied there behind it, all that is in use or what was written. Auto: what takes the least time.
enum class KvWriteBack : uint8_t { Auto = 0, Mirror = 1, All = 2, Dirty = 3 };
// Where the residual stream of each mini-batch is while the layer works on others. On the host it leaves the device
// behind every layer, and comes back for the next.
enum class Residuals : uint8_t { Device = 0, Host = 1 };
// Who attends for rows that decode: the device, or the CPU, to caches that are wholly at home on the host. Auto: which
// is faster.
enum class Attention : uint8_t { Device = 0, Cpu = 1, Auto = 2 };
// Where activation blocks are between iterations. On the host each layer's are brought when it needs them, and new rows
// are written there by the step that keeps them. Auto: as many layers' on the host as make it fastest.
enum class ActHome : uint8_t { Auto = 0, Device = 1, Host = 2 };
// What a search makes small: the time of iterations; device memory, and then time; or the time by tokens, of any batch
// up to the goal's (of no plan: that has the batch which was found, and the least time there).
enum class Prefer : uint8_t { Latency = 0, Memory = 1, Throughput = 2 };
// What a search may hold in 8 or 4 bits where that is better.
enum class AllowQuantized : uint8_t { Nothing = 0, Weights = 1, Kv = 2, Both = 3 };
enum class Instances : uint8_t { Together = 0, Apart = 1 };
std::string_view startRuleName(StartRule rule);              // "paper", "eager", "ahead"
std::string_view autoOnOffName(AutoOnOff choice);            // "auto", "on", "off"
std::string_view kvWriteBackName(KvWriteBack choice);        // "auto", "mirror", "all", "dirty"
std::string_view residualsName(Residuals residuals);         // "device", "host"
std::string_view attentionName(Attention attention);         // "device", "cpu", "auto"
std::string_view actHomeName(ActHome home);                  // "auto", "device", "host"
std::string_view preferName(Prefer prefer);                  // "latency", "memory", "throughput"
std::string_view instancesName(Instances instances);         // "together", "apart"
std::string_view allowQuantizedName(AllowQuantized allowed); // "nothing", "weights", "kv", "both"
std::optional<StartRule> startRuleFromName(std::string_view name);
std::optional<AutoOnOff> autoOnOffFromName(std::string_view name);
std::optional<KvWriteBack> kvWriteBackFromName(std::string_view name);
std::optional<Residuals> residualsFromName(std::string_view name);
std::optional<Attention> attentionFromName(std::string_view name);
std::optional<ActHome> actHomeFromName(std::string_view name);
std::optional<Prefer> preferFromName(std::string_view name);
std::optional<Instances> instancesFromName(std::string_view name);
std::optional<AllowQuantized> allowQuantizedFromName(std::string_view name);

struct Goal {
  std::optional<uint64_t> deviceMemory; // bytes; unset: the hardware's
  std::optional<int64_t> batch;         // sequences at once
  int64_t miniBatches = 1;              // that each layer is passed for; divides the batch
  bool autoMiniBatches = false;         // the compiler is to find how many; of no plan
  std::optional<int64_t> context;       // longest prompt + output, tokens
  std::optional<int64_t> kvTokens;      // capacity of the KV cache in tokens; unset: batch * context
  bool autoKvTokens = false;            // the compiler is to find it, what memory is left; of no plan
  // Bytes of the device that KV may take, what moves through it included: other blocks are at home on the host; 0: all
  // of them, and what moves through takes what it takes. Unset: as many as fit, all where they do. And what KV blocks
  // may take of the host.
  std::optional<uint64_t> kvDeviceMemory, kvHostMemory;
  // Pie's expansion: the bytes of all KV by those that KV takes of the device; at least 1. Beside kvDeviceMemory it
  // says how much KV there is, else how much of it the device has. kAutoExpansion: the engine finds it as it runs
  // (serve/engine/Expansion.h).
  std::optional<double> expansion;
  // `kv_dtype`: unset ("auto"): F32 on host, else the checkpoint's. Of a packed one the group is the plan's to say,
  // from the head size (KvEncoding.h).
  std::optional<Encoding> kvEncoding;
  AllowQuantized allowQuantized = AllowQuantized::Nothing; // of no plan: that states what was found
  int64_t blockTokens = 16;                                // tokens per KV block
  // Whether placements may have more KV blocks than kvTokens asks for, in memory that others have weights in. Auto: on.
  AutoOnOff elasticKv = AutoOnOff::Auto;
  // Latency objectives, above zero: ttft of a request's first token, which ends the last chunk of its prompt; tpot of
  // each gap between tokens. Either these, or one factor (at least 1) of the time without offloading for both.
  std::optional<std::chrono::nanoseconds> ttft, tpot;
  std::optional<double> sloFactor;
  // The request that ttft is of: tokens of its prompt, and of its output. Unset: promptLength().
  std::optional<int64_t> inputLen, outputLen;
  // Who runs the plan. On one instance prompts and decoding follow each other, so the objectives hold with the change
  // between them; on instances apart each runs iterations of its own class alone.
  Instances instances = Instances::Together;
  int64_t busDevices = 1; // devices that share the bus, for policies that plan with their share of it
  std::string record;     // a performance record in place of the roofline; empty: none

  bool hasSlo() const { return ttft || tpot || sloFactor; }
  // Of the request that ttft is of: where it is not stated the longest prompt that the context and the output leave.
  int64_t promptLength(int64_t ofContext) const {
    return inputLen.value_or(std::max<int64_t>(1, ofContext - outputLen.value_or(1)));
  }
};

inline constexpr int64_t kMaxBusDevices = 64;
inline constexpr int64_t kMaxMiniBatches = 64;
inline constexpr int64_t kMaxPlacements = 64;
inline constexpr int64_t kLeastKvPlaces = 2; // one is filled while the other is in use
inline constexpr double kMaxSloFactor = 1e6;
inline constexpr double kAutoExpansion = 0;
inline constexpr double kMaxExpansion = 1e6;

// How a placement is chosen. Which policies there are, and what each can be asked for, the compiler knows
// (compiler/search/generators); here a name is a name.
struct Policy {
  std::string name = "auto";
  bool none = false;                    // interval = "none": offload nothing
  std::optional<int64_t> interval;      // of every i layers the last is offloaded
  std::optional<int64_t> offloadLayers; // any number of whole layers, evenly spread
  StartRule startRule = StartRule::Eager;
  std::optional<int64_t> slots; // layer-sized slots; unset: the rule's own
  AutoOnOff offloadEmbedding = AutoOnOff::Auto;
  AutoOnOff offloadHead = AutoOnOff::Auto;
  // How many placements the plan has: the chosen ones, then others spread over the range of what is possible. Unset:
  // what the choice asks for, at most kDefaultPlacements.
  std::optional<int64_t> placements;
  KvWriteBack kvWriteBack = KvWriteBack::Auto;
  // Above 0: caches' tails cycle through so many places, fewer than there are layers, and stay there over iterations
  // as long as may be.
  std::optional<int64_t> kvPlaces;
  Residuals residuals = Residuals::Device;
  Attention attention = Attention::Device; // of rows that decode
  std::optional<ActRatio> actRatio; // of each sequence's blocks so many keep activations; unset: none; may be auto
  ActHome actHome = ActHome::Auto;
  std::optional<Percent> percent;                     // of a policy that is told what is where by shares
  Prefer prefer = Prefer::Latency;                    // of a policy that searches by an aim
  bool preferStated = false, attentionStated = false; // as startRuleStated
  bool startRuleStated = false;                       // by a job file or a flag; plans do not keep it

  bool statesPlacement() const { return none || interval || offloadLayers; }
};
inline constexpr int64_t kDefaultPlacements = 4;

// Ascending; empty where the file gives none, until the compiler fills in defaults. A variant is made for each
// combination that makes sense.
struct Buckets {
  std::vector<int64_t> newTokens;
  std::vector<int64_t> sequences;
  std::vector<int64_t> contexts;
  bool operator==(const Buckets &) const = default;
};

class CheckpointFiles;

struct ModelSource {
  std::string path; // Hugging Face folder, or a shape's TOML; empty if none was given
  Boxed<ModelSpec> spec;
  std::shared_ptr<const CheckpointFiles> checkpoint = nullptr; // the folder's, opened; null: a model without weights
  std::vector<std::string> notes = {};         // what a checkpoint has that the model does not use: worth a warning
  std::optional<Boxed<ModelSpec>> ofPath = {}; // what the path alone says, where flags have changed `spec`
  FolderOptions options = {};                  // that the folder was opened with
};

struct Job {
  std::optional<ModelSource> model;
  std::optional<Hardware> hardware;
  // Of a host that is the machine at hand: bytes that its device memory and its host memory have together, as both lie
  // in the machine's. Unset: they lie apart.
  std::optional<uint64_t> sharedMemory = {};
  Goal goal;
  Policy policy;
  Buckets buckets;
  std::vector<std::string> files; // that it was read from, for who must not write over them; folders too
};

// A path to a folder (Hugging Face), to a .toml shape, or the bare name of a shape shipped under examples/models
// (Examples.h says where they are found). A path that exists wins over a shipped name.
absl::StatusOr<ModelSource> openModel(const std::string &pathOrName, const FolderOptions &options = {});
// A path to a .toml file or the bare name of a profile shipped under examples/hardware.
absl::StatusOr<Hardware> openHardware(const std::string &pathOrName);
// Paths inside the file are relative to the file. Refuses unknown keys and contradictions by file and key.
absl::StatusOr<Job> readJob(const std::string &path);
absl::StatusOr<Job> parseJob(std::string_view text, const std::string &path, const FolderOptions &options = {});

// Refuses what contradicts itself: an interval beside offload_layers, an interval beyond the model's layers, a context
// beyond its positions, buckets that do not ascend, ... readJob and parseJob have called it; call it again once flags
// were applied. `where` (a file; empty: nothing) begins every message, keys are spelled as in the file.
absl::Status validate(const Job &job, std::string_view where);

} // namespace headrace::model
