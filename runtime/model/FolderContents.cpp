// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/FolderContents.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/HfConfig.h"

namespace headrace::model {
namespace {

constexpr const char *kAdapterFile = "adapter_config.json";

struct Kind {
  std::string_view ending;
  std::string_view what; // it is, and what to do
};
constexpr std::string_view kPickled =
    "weights of PyTorch's own form: expected safetensors, which transformers writes of "
    "a model loaded from them (save_pretrained)";
constexpr Kind kKinds[] = {
    {".gguf", "a model of llama.cpp: expected a Hugging Face folder with safetensors, which it was made from"},
    {".bin", kPickled},
    {".pth", kPickled},
    {".pt", kPickled},
    {".ckpt", kPickled},
    {".h5", "weights of TensorFlow: expected safetensors"},
    {".msgpack", "weights of Flax: expected safetensors"},
    {".onnx", "a model of ONNX: expected a Hugging Face folder with safetensors"},
    {".npz", "weights of NumPy's form: expected safetensors"},
};

const Kind *kindOf(std::string_view name) {
  for (std::string_view ofTraining : {"training_args", "optimizer", "scheduler", "rng_state"})
    if (name.starts_with(ofTraining))
      return nullptr;
  for (const Kind &kind : kKinds)
    if (name.ends_with(kind.ending))
      return &kind;
  return nullptr;
}

// What stands in a folder, ascending.
std::vector<std::string> namesIn(const std::string &folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string inQuotes(std::string_view name) { return cat("\"", escaped(name, 100), "\""); }

// "an adapter (LORA) of "base""
absl::StatusOr<std::string> adapterText(const std::string &folder) {
  const std::string path = joinPath(folder, kAdapterFile);
  ASSIGN_OR_RETURN(text, readTextFile(path));
  ASSIGN_OR_RETURN(document, parseJson(text, path));
  const auto said = [&](const char *key) {
    const auto at = document.is_object() ? document.find(key) : document.end();
    return at != document.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const std::string kind = said("peft_type"), base = said("base_model_name_or_path");
  return cat("an adapter", kind.empty() ? "" : cat(" (", escaped(kind, 40), ")"),
             base.empty() ? "" : cat(" of ", inQuotes(base)));
}

// A hub's cache keeps each revision as a folder of its own below "snapshots"; refs/main names the newest.
std::string snapshotOf(const std::string &folder) {
  const std::string snapshots = joinPath(folder, "snapshots");
  std::vector<std::string> names = namesIn(snapshots);
  if (absl::StatusOr<std::string> main = readTextFile(joinPath(folder, "refs/main"), 1000);
      main.ok() && std::find(names.begin(), names.end(), *main) != names.end())
    names = {*main};
  return names.empty() ? std::string() : joinPath(snapshots, names.back());
}

} // namespace

std::string otherContentsText(const std::string &folder) {
  if (const std::string snapshot = snapshotOf(folder); !snapshot.empty())
    return cat("; this is a folder of the hub's cache: expected its snapshot, ", escaped(snapshot, 400));
  const std::vector<std::string> names = namesIn(folder);
  for (const std::string &name : names)
    if (name.starts_with("models--"))
      return cat("; this is the hub's cache: expected a snapshot in it, such as ",
                 escaped(snapshotOf(joinPath(folder, name)), 400));
  if (isThere(joinPath(folder, kAdapterFile))) {
    const absl::StatusOr<std::string> adapter = adapterText(folder);
    return adapter.ok() ? cat("; there is ", *adapter,
                              " alone: expected a whole model, such as its base with the "
                              "adapter merged into it (peft's merge_and_unload)")
                        : cat("; ", adapter.status().message());
  }
  for (const std::string &name : names)
    if (name.starts_with("model-") && name.ends_with(".safetensors"))
      return cat("; there is ", inQuotes(name),
                 ": expected the index of such files, too, model.safetensors.index.json");
  for (const std::string &name : names)
    if (name.ends_with(".safetensors"))
      return cat("; there is ", inQuotes(name), ": expected weights under the names that transformers gives them");
  for (const std::string &name : names)
    if (const Kind *kind = kindOf(name))
      return cat("; there is ", inQuotes(name), ", ", kind->what);
  for (const std::string &name : names)
    if (isThere(joinPath(joinPath(folder, name), "config.json")))
      return cat("; there is ", escaped(joinPath(joinPath(folder, name), "config.json"), 400), ": expected its folder");
  return "";
}

std::string missingWeightsText(const std::string &folder) {
  return cat(folder, ": no model.safetensors or model.safetensors.index.json", otherContentsText(folder));
}

std::string modelFileText(const std::string &path) {
  const std::string name = baseName(path);
  if (const Kind *kind = kindOf(name))
    return cat(path, ": ", kind->what);
  if (name.ends_with(".safetensors") || name.ends_with(".index.json") || name == "config.json")
    return cat(path, ": a file of a model: expected its folder, ",
               folderOf(path).empty() ? std::string(".") : folderOf(path));
  return "";
}

absl::Status refuseAdapter(const std::string &folder) {
  const std::string path = joinPath(folder, kAdapterFile);
  if (!isThere(path))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(adapter, adapterText(folder));
  return absl::InvalidArgumentError(cat(path, ": ", adapter,
                                        " beside the model: expected it merged into the weights "
                                        "(peft's merge_and_unload), or --ignore-adapter, which "
                                        "runs the model without it"));
}

} // namespace headrace::model
