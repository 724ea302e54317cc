// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/WholeLayers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "passes/algorithms/AssignSlots.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// Before it is a residency: what is away in the terms of a user.
struct Layers {
  std::string name;
  int32_t interval = 0; // 0: `count` layers evenly spread
  int64_t count = 0;
  bool embedding = false, head = false;
};

algorithms::Start startOf(model::StartRule rule) {
  return rule == model::StartRule::Paper ? algorithms::kPaper : algorithms::kEager;
}

class WholeLayers {
public:
  WholeLayers(const model::Policy &policy, const model::ModelSpec &spec, const model::WeightLayout &layout)
      : policy_(policy), spec_(spec), layout_(layout), tied_(spec_.tiedEmbeddings) {
    // With tied embeddings the table is the head's operand as well: off the device it is read directly by embed and
    // prefetched for the head, so offloading one is offloading the other.
    embeddingMay_ =
        policy.offloadEmbedding != model::AutoOnOff::Off && (!tied_ || policy.offloadHead != model::AutoOnOff::Off);
    headMay_ = policy.offloadHead != model::AutoOnOff::Off && (!tied_ || embeddingMay_);
  }

  std::vector<Candidate> run() {
    if (policy_.statesPlacement())
      stated();
    else
      all();
    // What the last resort gives up is wrap-around: nothing is carried over an iteration's edge, so that transients may
    // use slots that are empty.
    if (found_.back().residency.wrap.around && !found_.back().offloadsNothing()) {
      found_.push_back(found_.back());
      found_.back().residency.wrap = {};
    }
    return std::move(found_);
  }

private:
  void stated() {
    const Layers stated = policy_.none ? layers("none", 0, 0)
                          : policy_.interval
                              ? layers(absl::StrCat("interval ", *policy_.interval),
                                       static_cast<int32_t>(*policy_.interval), spec_.layers / *policy_.interval)
                              : layers(absl::StrCat("layers ", *policy_.offloadLayers), 0, *policy_.offloadLayers);
    add(stated);
    if (policy_.none)
      return;
    if (embeddingMay_ && !tied_ && policy_.offloadEmbedding == model::AutoOnOff::Auto)
      addWithEmbedding(stated);
    addWithHead(stated);
  }

  void all() {
    const Layers none = layers("none", 0, 0);
    add(none);
    if (embeddingMay_ && !tied_ && policy_.offloadEmbedding == model::AutoOnOff::Auto)
      addWithEmbedding(none);
    Layers last = none;
    for (int64_t count = 1; count <= spec_.layers; ++count) {
      const bool divides = spec_.layers % count == 0;
      last = divides ? layers(absl::StrCat("interval ", spec_.layers / count),
                              static_cast<int32_t>(spec_.layers / count), count)
                     : layers(absl::StrCat("layers ", count), 0, count);
      addWithEmbedding(last);
    }
    addWithHead(last);
  }

  Layers layers(std::string name, int32_t interval, int64_t count) const {
    return {std::move(name), interval, count, policy_.offloadEmbedding == model::AutoOnOff::On,
            policy_.offloadHead == model::AutoOnOff::On};
  }

  // One placement of homes, with as many slots as the rule asks for, then with fewer where the policy leaves it open.
  void add(Layers asked) {
    if (tied_)
      asked.embedding = asked.head = asked.embedding || asked.head;
    const std::vector<int64_t> which = asked.interval ? algorithms::intervalLayers(spec_.layers, asked.interval)
                                                      : algorithms::spreadLayers(spec_.layers, asked.count);
    std::vector<int32_t> units = unitsOfLayers(layout_, which);
    if (asked.embedding)
      units.insert(units.begin(), layout_.embeddingUnit());
    if (asked.head && !tied_)
      units.push_back(layout_.headUnit());
    Candidate candidate;
    candidate.name = std::move(asked.name);
    candidate.interval = asked.interval;
    algorithms::Residency &residency = candidate.residency;
    residency.setWeightsAway(units);
    residency.start = startOf(policy_.startRule);
    if (which.empty() && !asked.head) { // nothing is moved
      found_.push_back(std::move(candidate));
      return;
    }
    residency.wrap.around = residency.start == algorithms::kEager;
    residency.weights().setSlots(policy_.slots.value_or(0));
    const int64_t most = algorithms::slotsAskedFor(residency, haveNeighbours(which));
    for (int64_t slots = most; slots == most || (!policy_.slots && slots > 0); --slots) {
      residency.weights().setSlots(slots);
      found_.push_back(candidate);
    }
  }

  // The table of an embedding that is not tied costs next to nothing on the host: only the rows in use cross the link.
  void addWithEmbedding(Layers asked) {
    asked.embedding |= embeddingMay_ && !tied_ && policy_.offloadEmbedding == model::AutoOnOff::Auto;
    add(std::move(asked));
  }

  void addWithHead(Layers asked) {
    if (!headMay_ || asked.head)
      return;
    asked.embedding |= embeddingMay_;
    asked.head = true;
    add(std::move(asked));
  }

  static bool haveNeighbours(const std::vector<int64_t> &layers) {
    return std::adjacent_find(layers.begin(), layers.end(), [](int64_t a, int64_t b) { return b == a + 1; }) !=
           layers.end();
  }

  const model::Policy &policy_;
  const model::ModelSpec &spec_;
  const model::WeightLayout &layout_;
  const bool tied_;
  bool embeddingMay_ = false, headMay_ = false;
  std::vector<Candidate> found_;
};

} // namespace

std::vector<Candidate> wholeLayers(const model::Policy &policy, const model::ModelSpec &spec,
                                   const model::WeightLayout &layout) {
  return WholeLayers(policy, spec, layout).run();
}

std::vector<Candidate> paperIntervals(const model::Policy &policy, int64_t interval, const model::ModelSpec &spec,
                                      const model::WeightLayout &layout) {
  model::Policy stated = policy;
  for (model::AutoOnOff *choice : {&stated.offloadEmbedding, &stated.offloadHead})
    if (*choice == model::AutoOnOff::Auto)
      *choice = model::AutoOnOff::Off;
  stated.startRule = model::StartRule::Paper;
  stated.interval = interval;
  if (!stated.slots)
    stated.slots = interval == 1 ? 2 : 1;
  return wholeLayers(stated, spec, layout);
}

void appendNew(std::vector<Candidate> &to, const std::vector<Candidate> &more) {
  for (const Candidate &candidate : more)
    if (std::none_of(to.begin(), to.end(), [&](const Candidate &c) { return c.samePlacement(candidate); }))
      to.push_back(candidate);
}

} // namespace headrace::compiler
