// SPDX-License-Identifier: Apache-2.0
//
// Flags of the subcommands that are about text: chat, tokenize, detokenize.
#include "tools/commands/CommandFlags.h"
#include "tools/commands/FlagGroups.h"
#include "tools/commands/Options.h"

namespace headrace::tools {
namespace {

constexpr const char *kChatHelp =
    R"(A line is a message; /clear forgets the conversation, Ctrl-C ends a reply, Ctrl-D the chat.

Example:
  headrace chat ./qwen2.5-0.5b --device-memory 400MiB --system "You are brief."
  headrace chat ./qwen3-0.6b --temperature 0 --chat-template-kwargs '{"enable_thinking": false}'
  printf 'Hello\nAnd again\n' | headrace chat out.plan --json                                (an object a turn))";
constexpr const char *kTokenizeHelp = R"HELP(Example:
  headrace tokenize ./qwen2.5-0.5b "Hello world"
  headrace tokenize ./qwen2.5-0.5b --file prompt.txt --pieces
  headrace tokenize ./qwen2.5-0.5b --messages talk.json | headrace detokenize ./qwen2.5-0.5b    (the prompt itself)
  headrace run out.plan --prompt-ids "$(headrace tokenize ./qwen2.5-0.5b 'Hello world')")HELP";
constexpr const char *kDetokenizeHelp = R"HELP(Example:
  headrace detokenize ./qwen2.5-0.5b 9707,1879
  headrace run out.plan --prompt-ids 9707 --json | jq -r '.tokens[0] | join(",")' | headrace detokenize ./qwen2.5-0.5b)HELP";

CLI::App *addTokens(CLI::App &app, TokenizeOptions &options, const char *name, const char *what, const char *input,
                    const char *inputHelp) {
  CLI::App *command = app.add_subcommand(name, what);
  command
      ->add_option("folder", options.source,
                   "a folder with tokenizer.json, vocab.json and merges.txt, or "
                   "tokenizer.model")
      ->required();
  command->add_option(input, options.input, inputHelp);
  command->add_option("--file", options.file, "a file of it, whole; - is standard input");
  return command;
}

} // namespace

CLI::App *addChat(CLI::App &app, ChatOptions &options) {
  CLI::App *command = app.add_subcommand("chat", "talk with a model");
  addJob(*command, options.job, "a plan, a model's folder, or a job file",
         [](const KeyFlag &flag) { return flag.key != "batch"; }); // one conversation
  addAllowMissed(*command, options.job);
  addInteger<int64_t>(*command, "--max-new-tokens,--n-predict", options.maxNewTokens,
                      "tokens of a reply, at most (default: what the context holds)", 1, int64_t{1} << 31);
  addSampling(*command, options.sampling);
  addSeed(*command, "--seed", options.seed, "of sampling");
  addText(*command, options.text);
  command->add_option("--stop-ids", options.sampling.stopIds, "token ids that end a reply, \"2,50256\"");
  addInteger<uint32_t>(*command, "--placement", options.placement, "one of the plan's placements for all iterations",
                       0);
  addBandwidth(*command, "--link-bandwidth", options.linkBandwidth, "pace copies to this, such as 12GB/s");
  addDevice(*command, options.device, options.job, "the plan's");
  addGraphBuild(*command, options.device);
  addWeights(*command, options.weights, "the folder of the weights (default: the one the plan was made from)");
  addLanes(*command, options.device, options.job);
  command->add_flag("--json", options.json, "a JSON object a turn on standard output");
  command->footer(kChatHelp);
  return command;
}

CLI::App *addTokenize(CLI::App &app, TokenizeOptions &options) {
  CLI::App *command = addTokens(app, options, "tokenize", "the token ids of a text", "text",
                                "the text (default: --file, "
                                "or standard input)");
  command->add_option("--messages", options.messages,
                      "a file of a conversation, as JSON: the prompt that the chat template makes of it");
  command->add_flag("--no-special", options.noSpecial, "no special tokens around the text");
  command->add_flag("--pieces", options.pieces, "a line a token: its id, and how it stands in the vocabulary");
  command->add_flag("--lossy", options.lossy, "U+FFFD for what is not UTF-8");
  command->add_flag("--json", options.json, "one JSON object: ids, tokens");
  command->footer(kTokenizeHelp);
  return command;
}

CLI::App *addDetokenize(CLI::App &app, TokenizeOptions &options) {
  CLI::App *command = addTokens(app, options, "detokenize", "the text of token ids", "ids",
                                "\"1,2,3\" (default: "
                                "--file, or standard input)");
  command->add_flag("--no-special", options.noSpecial, "hide special tokens");
  command->add_flag("--json", options.json, "one JSON object: text");
  command->footer(kDetokenizeHelp);
  return command;
}

} // namespace headrace::tools
