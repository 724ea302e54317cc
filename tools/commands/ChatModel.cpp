// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ChatModel.h"

#include <algorithm>
#include <cstdio>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/value/PlacementTable.h"
#include "tools/commands/Devices.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/SamplingOf.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr int64_t kDefaultContext = 4096; // llama.cpp's

absl::Status checkHoldsData(const core::Device &device) {
  return device.holdsData()
             ? absl::OkStatus()
             : absl::FailedPreconditionError(cat("--device ", device.kind(),
                                                 " holds no data: expected host or cuda, which have something to say"));
}

} // namespace

absl::StatusOr<std::unique_ptr<ChatModel>> ChatModel::open(const ChatOptions &options) {
  std::unique_ptr<ChatModel> model(new ChatModel(options));
  RETURN_IF_ERROR(model->openSource());
  return model;
}

ChatModel::~ChatModel() {
  if (engine_ != nullptr)
    engine_->releaseBlocks(last_);
}

absl::Status ChatModel::openSource() {
  RETURN_IF_ERROR(checkWeightFlags(options_.weights));
  ASSIGN_OR_RETURN(stopIds, parseIds(options_.sampling.stopIds, "command line: --stop-ids"));
  stopIds_ = std::move(stopIds);
  Outputs outputs(false); // it has none
  if (isStagesFile(options_.job.source))
    return openStages(outputs);
  ASSIGN_OR_RETURN(source, RunSource::open(options_.job, options_.linkBandwidth, options_.text.quiet, outputs));
  ASSIGN_OR_RETURN(device, makeDevice(options_.device.deviceOr(source.device()), options_.device));
  RETURN_IF_ERROR(checkHoldsData(*device));
  device_ = std::move(device);
  if (options_.placement)
    RETURN_IF_ERROR(source.checkPlacement(*options_.placement));
  RETURN_IF_ERROR(openText(source.folder(), source.model()));
  ASSIGN_OR_RETURN(weights, openWeights(options_.weights, source.weights()));
  weights_ = std::move(weights);
  source.fit(1, std::min(source.mostContext(), kDefaultContext));
  source_.emplace(std::move(source));
  return absl::OkStatus();
}

absl::Status ChatModel::openStages(Outputs &outputs) {
  ASSIGN_OR_RETURN(stages, LoadedStages::read(options_.job, options_.placement, outputs));
  RETURN_IF_ERROR(openText(stages->plan().modelPath, stages->whole()));
  RETURN_IF_ERROR(stages->open(options_.device, options_.weights));
  stages_ = std::move(stages);
  return checkHoldsData(stages_->group().device(0));
}

// Says what the model's files say of sampling and of ends.
absl::Status ChatModel::openText(const std::string &modelFolder, const model::ModelSpec &spec) {
  const std::string &folder = options_.weights.folder.empty() ? modelFolder : options_.weights.folder;
  ASSIGN_OR_RETURN(text, TextModel::open(options_.text, folder, spec));
  text_.emplace(std::move(text));
  RETURN_IF_ERROR(text_->openTemplate());
  const SamplingFlags sampling = withDefaults(options_.sampling, text_->generation());
  RETURN_IF_ERROR(checkSamplingFlags(sampling));
  sampling_ = samplingOf(sampling, options_.seed);
  RETURN_IF_ERROR(checkStopIds(stopIds_, spec.vocab));
  const std::vector<int32_t> ends = text_->endIds();
  stopIds_.insert(stopIds_.end(), ends.begin(), ends.end());
  text_->tell(options_.sampling, sampling, ends);
  return absl::OkStatus();
}

uint32_t ChatModel::placementOf(const plan::IterationSize &size) const {
  return options_.placement.value_or(plan::chosenPlacement(plan_, size).value_or(0));
}

absl::Status ChatModel::load() {
  if (stages_) {
    RETURN_IF_ERROR(stages_->load({.linkBandwidth = options_.linkBandwidth}, /*maxNumSeqs=*/1));
    return makeEngine();
  }
  ASSIGN_OR_RETURN(plan, std::move(*source_).makePlan());
  plan_ = std::move(plan);
  source_.reset();
  RETURN_IF_ERROR(checkRunnable(plan_, options_.placement));
  core::DeviceOptions device;
  device.linkBandwidth = options_.linkBandwidth;
  core::LoadOptions loading;
  loading.placement = placementOf({1, 1, 1});
  ASSIGN_OR_RETURN(runtime, loadRuntime(plan_, *device_, device, weights_, loading));
  runtime_ = std::move(runtime);
  return makeEngine();
}

absl::Status ChatModel::makeEngine() {
  serve::EngineOptions options;
  options.watermark = 0; // one conversation
  options.maxNumSeqs = 1;
  if (!stages_ && !options_.placement && !plan_.choices.empty())
    options.placementOf = [this](const serve::ComposedIteration &next) { return placementOf(next); };
  options.onToken = [this](const serve::EngineToken &token) { take(token); };
  options.onEnd = [this](const serve::EngineEnd &end) { take(end); };
  ASSIGN_OR_RETURN(engine, serve::Engine::create(on(), std::move(options)));
  engine_ = std::move(engine);
  return absl::OkStatus();
}

void ChatModel::Making::show(const std::string &piece) {
  reply.text += piece;
  if (!piece.empty())
    onText(piece);
}

void ChatModel::take(const serve::EngineToken &token) {
  Making &now = *making_;
  now.reply.tokens.push_back(token.token);
  const int64_t ns = token.visibleNs - now.askedNs;
  if (now.reply.tokens.size() == 1)
    now.reply.firstTokenNs = ns;
  now.reply.lastTokenNs = ns;
  now.show(now.text.push(token.token));
  if (now.text.stopped())
    (void)engine_->cancel(token.request); // not known any more: it was the last
}

void ChatModel::take(const serve::EngineEnd &end) {
  Making &now = *making_;
  now.over = true;
  now.show(now.text.finish()); // which may be the end of a stop string
  now.reply.end = now.text.stopped() ? serve::EndReason::Stop : end.reason;
  now.reply.cachedTokens = end.reusedTokens;
  now.failed = end.why;
}

absl::StatusOr<ChatReply> ChatModel::reply(const std::vector<int32_t> &prompt,
                                           const std::function<void(std::string_view)> &onText,
                                           const std::function<bool()> &isInterrupted) {
  const auto tokens = static_cast<int64_t>(prompt.size());
  const int64_t blocks = plan().mostContextBlocks() * plan().blockTokens;
  const int64_t left = std::min(context(), blocks) - tokens;
  if (left < 1)
    return absl::OutOfRangeError(cat(tokens, " tokens, and at least one of the reply: expected at most the context of ",
                                     tokens + left, " (--context); /clear forgets the conversation"));
  Making making(text_->tokenizer(), options_.text, onText, on().nowNs());
  making.reply.promptTokens = tokens;
  ASSIGN_OR_RETURN(id, engine_->submit({.prompt = prompt,
                                        .maxNewTokens = std::min(left, options_.maxNewTokens.value_or(left)),
                                        .sampling = sampling_,
                                        .stopTokens = stopIds_,
                                        .keepBlocks = true,
                                        .continues = last_}));
  last_ = id;
  making_ = &making;
  bool cancelled = false;
  absl::Status status;
  for (bool more = true; more && status.ok();) {
    if (!cancelled && !making.over && isInterrupted())
      cancelled = engine_->cancel(id).ok();
    const absl::StatusOr<bool> stepped = engine_->step();
    status = stepped.status();
    more = stepped.ok() && *stepped;
  }
  making_ = nullptr;
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(making.failed);
  return std::move(making.reply);
}

} // namespace headrace::tools
