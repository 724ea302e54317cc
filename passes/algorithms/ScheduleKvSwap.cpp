// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/ScheduleKvSwap.h"

#include <algorithm>
#include <map>
#include <utility>

namespace headrace::algorithms {
namespace {

constexpr int64_t kWhole = 1000; // thousandths

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace

KvSwap::KvSwap(const KvSwapProblem &problem) : problem_(problem) {
  table_.resize(static_cast<size_t>(problem.layers));
  for (int32_t layer = 0; layer < problem.places; ++layer)
    table_[static_cast<size_t>(layer)] = {KvState::Device, layer, 0};
}

int64_t KvSwap::distance(int32_t layer) const {
  const int64_t n = problem_.layers;
  return ((layer - visits_) % n + n) % n;
}

std::optional<int32_t> KvSwap::hottest() const {
  std::optional<int32_t> hottest;
  for (int32_t layer = 0; layer < problem_.layers; ++layer)
    if (table_[static_cast<size_t>(layer)].state == KvState::Host && (!hottest || distance(layer) < distance(*hottest)))
      hottest = layer;
  return hottest;
}

std::optional<int32_t> KvSwap::coldest() const {
  std::optional<int32_t> coldest;
  for (int32_t layer = 0; layer < problem_.layers; ++layer) // the layer that computes is the one needed first: 0 visits
    if (table_[static_cast<size_t>(layer)].state == KvState::Device && distance(layer) > 0 &&
        (!coldest || distance(layer) > distance(*coldest)))
      coldest = layer;
  return coldest;
}

// Whether a swap is over by the end of the iteration, where it has to be, whatever the other direction does.
bool KvSwap::fits(int64_t duration) const {
  const int64_t left = problem_.layers - visits_ % problem_.layers;
  return !problem_.endsWithIteration ||
         ceilDiv(duration * kWhole, problem_.times.both) <= left * problem_.times.compute;
}

int64_t KvSwap::rate() const { return in_ && out_ ? problem_.times.both : kWhole; }

// When those under way end, unless another begins: the sooner, then the other alone.
void KvSwap::foresee() {
  const auto sooner =
      std::min(in_ ? ceilDiv(in_->left, rate()) : INT64_MAX, out_ ? ceilDiv(out_->left, rate()) : INT64_MAX);
  for (const std::optional<UnderWay> *one : {&in_, &out_})
    if (*one)
      copies_[(*one)->copy].end = now_ + sooner + ceilDiv(std::max<int64_t>(0, (*one)->left - sooner * rate()), kWhole);
}

// What is under way goes on, and what ends by then does.
void KvSwap::passTo(int64_t time) {
  while (now_ < time) {
    const int64_t each = rate();
    int64_t step = time - now_;
    for (const std::optional<UnderWay> *one : {&in_, &out_})
      if (*one)
        step = std::min(step, ceilDiv((*one)->left, each));
    now_ += step;
    for (std::optional<UnderWay> *one : {&in_, &out_})
      if (*one)
        (*one)->left -= step * each;
    confirm();
  }
}

void KvSwap::confirm() {
  if (out_ && out_->left <= 0) {
    const KvSwapCopy &copy = copies_[out_->copy];
    table_[static_cast<size_t>(copy.layer)] = {KvState::Host, -1, copy.end};
    free_.push_back(copy.place);
    out_.reset();
  }
  if (in_ && in_->left <= 0) {
    const KvSwapCopy &copy = copies_[in_->copy];
    table_[static_cast<size_t>(copy.layer)] = {KvState::Device, copy.place, copy.end};
    in_.reset();
  }
}

void KvSwap::begin(int32_t layer, bool out, bool onDemand) {
  KvSwapRow &row = table_[static_cast<size_t>(layer)];
  if (!out) {
    row.place = free_.front();
    free_.erase(free_.begin());
  }
  row.state = out ? KvState::SwappingOut : KvState::SwappingIn;
  row.changed = now_;
  (out ? out_ : in_) = UnderWay{copies_.size(), (out ? problem_.times.out : problem_.times.in) * kWhole};
  copies_.push_back({layer, row.place, out, onDemand, now_, now_, visits_});
  foresee();
}

void KvSwap::waitFor(const std::optional<UnderWay> &swap) {
  const int64_t from = now_;
  passTo(copies_[swap->copy].end);
  waited_ += now_ - from;
}

// Until the layer is on the device. Swaps begin when layers start, but for these: without them nothing goes on.
void KvSwap::waitFor(int32_t layer) {
  const KvSwapRow &row = table_[static_cast<size_t>(layer)];
  while (row.state != KvState::Device) {
    if (in_) { // its own, or the one before it on the link
      waitFor(in_);
    } else if (row.state == KvState::Host && !free_.empty()) {
      begin(layer, /*out=*/false, /*onDemand=*/true);
    } else {
      if (!out_)
        begin(*coldest(), /*out=*/true, /*onDemand=*/true);
      waitFor(out_);
    }
  }
}

void KvSwap::compute() {
  waitFor(static_cast<int32_t>(visits_ % problem_.layers));
  if (const std::optional<int32_t> layer = hottest(); layer && !in_ && !free_.empty() && fits(problem_.times.in))
    begin(*layer, /*out=*/false, /*onDemand=*/false);
  if (const std::optional<int32_t> layer = coldest(); layer && !out_ && fits(problem_.times.out)) {
    bool hosts = false, colder = true; // every layer there is
    for (int32_t other = 0; other < problem_.layers; ++other)
      if (table_[static_cast<size_t>(other)].state == KvState::Host) {
        hosts = true;
        colder &= distance(other) > distance(*layer);
      }
    if (!hosts || !colder)
      begin(*layer, /*out=*/true, /*onDemand=*/false);
  }
  passTo(now_ + problem_.times.compute);
  ++visits_;
  if (problem_.endsWithIteration && visits_ % problem_.layers == 0) // what was begun on demand
    while (in_ || out_)
      waitFor(in_ ? in_ : out_);
}

std::vector<int64_t> KvSwap::state() const {
  std::vector<int64_t> state;
  for (const KvSwapRow &row : table_) {
    state.push_back(static_cast<int64_t>(row.state));
    state.push_back(row.place);
  }
  state.insert(state.end(), free_.begin(), free_.end());
  for (const std::optional<UnderWay> &one : {in_, out_})
    state.push_back(one ? one->left : -1);
  return state;
}

std::optional<KvSwapCycle> kvSwapCycle(const KvSwapProblem &problem, int64_t iterations) {
  KvSwap swap(problem);
  std::map<std::vector<int64_t>, std::pair<int64_t, int64_t>> seen; // the iteration, and what was waited by then
  for (int64_t iteration = 0; iteration <= iterations; ++iteration) {
    const auto [at, fresh] = seen.try_emplace(swap.state(), iteration, swap.waited());
    if (!fresh)
      return KvSwapCycle{at->second.first, iteration - at->second.first, swap.waited() - at->second.second};
    for (int32_t layer = 0; layer < problem.layers; ++layer)
      swap.compute();
  }
  return std::nullopt;
}

Cycle cycleOfSwaps(const KvSwapProblem &problem, const KvSwapCycle &found) {
  KvSwap swap(problem);
  const auto iterate = [&] {
    for (int32_t layer = 0; layer < problem.layers; ++layer)
      swap.compute();
  };
  for (int64_t iteration = 0; iteration < found.first; ++iteration)
    iterate();
  Cycle cycle;
  for (int64_t phase = 0; phase < found.period; ++phase) {
    Cycle::Phase &now = cycle.phases.emplace_back();
    now.entry.assign(static_cast<size_t>(problem.places), -1);
    for (int32_t layer = 0; layer < problem.layers; ++layer)
      if (const KvSwapRow &row = swap.table()[static_cast<size_t>(layer)]; row.state == KvState::Device)
        now.entry[static_cast<size_t>(row.place)] = layer;
    const size_t from = swap.copies().size();
    iterate();
    for (size_t i = from; i < swap.copies().size(); ++i) {
      const KvSwapCopy &copy = swap.copies()[i];
      const auto after = static_cast<int32_t>(copy.visit % problem.layers) - 1;
      if (copy.out)
        now.exits.push_back({copy.layer, copy.place, after});
      else
        now.moves.push_back({copy.layer, copy.place, after});
    }
  }
  return cycle;
}

bool kvSwapWaits(const KvSwapProblem &problem) {
  const auto &[compute, in, out, both] = problem.times;
  const int64_t n = problem.layers, m = n - problem.places;
  if (in == out && both == kWhole)
    return ceilDiv(in, compute) * (m + 2) > n - 1;
  constexpr int64_t kFirst = 2, kIterations = 64;
  KvSwap swap({problem.layers, problem.places, problem.times});
  while (swap.visits() < kFirst * n)
    swap.compute();
  const int64_t before = swap.waited();
  while (swap.visits() < kIterations * n && swap.waited() == before)
    swap.compute();
  return swap.waited() > before;
}

} // namespace headrace::algorithms
