// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RunPrompts.h"

#include <algorithm>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/InputErrors.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr int64_t kNewTokensOfIds = 16, kNewTokensOfText = 128;

// Of a plan or a job that says its context, that is for checkPrompts() to say.
absl::Status checkLength(std::string_view what, int64_t tokens, int64_t newTokens, const model::ModelSpec &model) {
  if (newTokens <= model.longestContext() - tokens)
    return absl::OkStatus();
  return absl::InvalidArgumentError(cat(what, " of ", tokens, " tokens with its ", newTokens,
                                        " new tokens: expected at most ", model::longestContextText(model)));
}

absl::StatusOr<Prompts> idPrompts(const PromptFlags &flags, int64_t vocab, uint64_t seed) {
  if (flags.randomLength)
    return randomPrompts(flags.count.value_or(1), *flags.randomLength, vocab, seed);
  if (!flags.idsFile.empty())
    return readPromptIds(flags.idsFile);
  // Ids hold digits, commas and semicolons only; anything else that names a file is one.
  if (const std::string type = model::fileTypeAt(*flags.ids); !type.empty() && type != "a folder")
    return readPromptIds(*flags.ids);
  if (flags.ids->find_first_of("./") != std::string::npos)
    return badFlag("--prompt-ids", *flags.ids, "token ids such as \"1,2,3;4,5\", or a file of them that is there");
  return parsePromptIds(*flags.ids, "command line: --prompt-ids");
}

// By what prompts were given: one flag of each way there is.
std::vector<std::string_view> waysOf(const PromptFlags &flags) {
  std::vector<std::string_view> ways;
  if (isText(flags))
    ways.push_back(!flags.texts.empty()       ? "--prompt"
                   : !flags.textFiles.empty() ? "--prompt-file"
                   : !flags.lists.empty()     ? "--prompts"
                                              : "--messages");
  if (flags.ids)
    ways.push_back("--prompt-ids");
  if (!flags.idsFile.empty())
    ways.push_back("--prompt-ids-file");
  if (flags.randomLength)
    ways.push_back("--random-input-len");
  return ways;
}

const std::vector<int32_t> &longestOf(const Prompts &prompts) {
  return *std::max_element(prompts.begin(), prompts.end(),
                           [](const auto &a, const auto &b) { return a.size() < b.size(); });
}

} // namespace

absl::Status checkPromptFlags(const PromptFlags &flags, const TextFlags &text) {
  std::vector<std::string> files = {flags.idsFile, flags.ids.value_or("")};
  for (const auto *more : {&flags.textFiles, &flags.lists, &flags.messages})
    files.insert(files.end(), more->begin(), more->end());
  if (std::count_if(files.begin(), files.end(), [](const std::string &f) { return f == "-" || f == "/dev/stdin"; }) > 1)
    return badUsage("prompts from standard input, more than once: expected it once, as it can be read once");
  const std::vector<std::string_view> ways = waysOf(flags);
  if (ways.size() > 1)
    return badUsage(cat(ways[0], " beside ", ways[1], ": expected one of them"));
  if (ways.empty())
    return badUsage("no prompts: expected one of --prompt, --prompt-file, --prompts and --messages, or --prompt-ids, "
                    "--prompt-ids-file or --random-input-len");
  if (const std::string flag = textFlagOf(text); !isText(flags) && !flag.empty())
    return badUsage(cat(flag, " beside token ids: expected a text (--prompt, --prompt-file, --prompts, --messages)"));
  const char *ofTemplate = !text.chatTemplate.empty()        ? "--chat-template"
                           : !text.templateVariables.empty() ? "--chat-template-kwargs"
                                                             : nullptr;
  if (ofTemplate != nullptr && flags.messages.empty() && !text.system)
    return badUsage(cat(ofTemplate, " beside plain texts: expected a conversation (--messages, or --system)"));
  const int64_t count = flags.count.value_or(1);
  if (flags.randomLength && *flags.randomLength > (int64_t{1} << 31) / count)
    return badNumber("--random-input-len", *flags.randomLength, cat("at most 2^31 tokens in all ", count, " prompts"));
  if (flags.count && !flags.randomLength)
    return badNumber("--num-prompts", count, "--random-input-len beside it: other prompts are as many as are given");
  return absl::OkStatus();
}

void addInputs(const PromptFlags &flags, const TextFlags &text, Outputs &outputs) {
  outputs.addInputs({flags.ids.value_or(""), flags.idsFile});
  for (const auto *files : {&flags.textFiles, &flags.lists, &flags.messages})
    outputs.addInputs(*files);
  outputs.addInputs({text.tokenizer, text.chatTemplate});
}

absl::StatusOr<Outputs> runOutputs(const RunOptions &options) {
  Outputs outputs(options.overwrite);
  outputs.add("--logits", options.logits, OutputKind::Logits);
  outputs.add("--trace", options.trace, OutputKind::Timeline);
  outputs.add("--timeline", options.timeline, OutputKind::Timeline);
  outputs.addInputs({options.job.source, options.weights.folder});
  addInputs(options.prompts, options.text, outputs);
  if (!options.timeline.empty() && !timelineFormatOf(options.timeline))
    return badFlag("--timeline", options.timeline, "a name that ends in .svg, .json or .txt");
  if (!options.trace.empty() && timelineFormatOf(options.trace).value_or(TimelineFormat::Json) != TimelineFormat::Json)
    return badFlag("--trace", options.trace, "what is written is JSON", "a name such as trace.json, or --timeline");
  return outputs;
}

absl::StatusOr<Prompts> promptsOf(const PromptFlags &flags, const TextFlags &text, const std::string &folder,
                                  const model::ModelSpec &spec, uint64_t seed, std::optional<TextModel> &opened) {
  if (!isText(flags))
    return idPrompts(flags, spec.vocab, seed);
  ASSIGN_OR_RETURN(model, TextModel::open(text, folder, spec));
  opened.emplace(std::move(model));
  return opened->prompts(flags);
}

absl::StatusOr<RunPrompts> readRunPrompts(const RunOptions &options, const RunSource &source) {
  return readRunPrompts(options, source.model(), source.folder(), source.mostContext());
}

absl::StatusOr<RunPrompts> readRunPrompts(const RunOptions &options, const model::ModelSpec &spec,
                                          const std::string &folder, int64_t mostContext) {
  RunPrompts out;
  const bool text = isText(options.prompts);
  if (const auto &length = options.prompts.randomLength) // before they are drawn
    RETURN_IF_ERROR(
        checkLength("--random-input-len: prompt 0", *length, options.maxNewTokens.value_or(kNewTokensOfIds), spec));
  const std::string &weights = options.weights.folder;
  ASSIGN_OR_RETURN(prompts, promptsOf(options.prompts, options.text, weights.empty() ? folder : weights, spec,
                                      options.seed, out.text));
  out.prompts = std::move(prompts);
  const std::vector<int32_t> &longest = longestOf(out.prompts);
  const auto tokens = static_cast<int64_t>(longest.size());
  const int64_t left = mostContext - tokens;
  out.maxNewTokens =
      options.maxNewTokens.value_or(text ? std::clamp<int64_t>(left, 1, kNewTokensOfText) : kNewTokensOfIds);
  out.lengthIs = options.maxNewTokens                   ? "--max-new-tokens"
                 : out.maxNewTokens == kNewTokensOfText ? "the default of --max-new-tokens"
                                                        : "the end of the context";
  RETURN_IF_ERROR(checkLength(cat("prompt ", &longest - out.prompts.data()), tokens, out.maxNewTokens, spec));
  return out;
}

} // namespace headrace::tools
