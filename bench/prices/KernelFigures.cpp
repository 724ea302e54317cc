// SPDX-License-Identifier: Apache-2.0
#include "bench/prices/KernelFigures.h"

#include <array>
#include <cctype>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/base/FileIo.h"
#include "runtime/job/JobFile.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

using kernels::Op;
using model::UnitRole;

template <typename T> T take(absl::StatusOr<T> value) {
  if (!value.ok())
    fail(std::string(value.status().message()));
  return *std::move(value);
}

const Json &partOf(const Json &figures, const char *part) {
  if (!figures.contains("parts") || !figures["parts"].contains(part))
    fail(std::string("part ") + part + " is missing: expected bench_cuda's figures");
  return figures["parts"][part]["figures"];
}

// The numbers of a name: "decode attention, batch 32, context 2048".
std::vector<int64_t> numbersOf(const std::string &name) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])))
      ++end;
    if (end > i)
      numbers.push_back(std::stoll(name.substr(i, end - i)));
    i = std::max(end, i + 1);
  }
  return numbers;
}

class Figures {
public:
  explicit Figures(const Measured &measured) : measured_(measured) {}

  std::vector<KernelFigure> all() {
    for (const Json &figure : partOf(measured_.figures, "kernels"))
      kernel(figure);
    mark(OpClass::Product, 1 << 20);
    mark(OpClass::DecodeAttention, 4);
    mark(OpClass::PrefillAttention, 2);
    for (const Json &figure : partOf(measured_.figures, "mapped"))
      product(figure, "weights on the device us");
    mark(OpClass::Product, 4);
    for (const auto &[picture, svg] :
         {std::pair{"decode of 32", &measured_.decodeSvg}, {"prefill of 2040", &measured_.prefillSvg}})
      traced(picture, *svg, svg == &measured_.decodeSvg ? cost::Bucket{32, 32, 256} : cost::Bucket{2040, 1, 2040});
    mark(OpClass::Product, 5);
    mark(OpClass::Row, 4);
    for (const Json &figure : partOf(measured_.figures, "direct"))
      append(figure);
    mark(OpClass::Row, 4);
    return std::move(list_);
  }

private:
  // Those of a class that came since the last call are a table of `columns` columns.
  void mark(OpClass of, size_t columns) {
    size_t i = 0;
    for (size_t at = marked_[static_cast<size_t>(of)]; at < list_.size(); ++at)
      if (list_[at].of == of) {
        list_[at].fitted = (i / columns + i % columns) % 2 == 0;
        ++i;
      }
    marked_[static_cast<size_t>(of)] = list_.size();
  }

  void add(OpClass of, std::string name, double us, model::ModelSpec spec, cost::OpSite site, cost::Bucket bucket) {
    list_.push_back({of, std::move(name), us, std::move(spec), site, bucket, false});
  }

  void kernel(const Json &figure) {
    const std::string name = figure["name"].get<std::string>();
    const std::vector<int64_t> of = numbersOf(name);
    if (name.starts_with("decode attention"))
      add(OpClass::DecodeAttention, name, figure["us"].get<double>(), llama_, {Op::Attention, UnitRole::Qkv},
          {of[0], of[0], of[1]});
    else if (name.starts_with("prefill attention"))
      add(OpClass::PrefillAttention, name, figure["us"].get<double>(), llama_, {Op::Attention, UnitRole::Qkv},
          {of[0] * of[1], of[0], of[1]});
    else if (name.starts_with("linear"))
      product(figure, "us");
    else if (name.starts_with("8192^3")) {
      model::ModelSpec square = opt_;
      square.hidden = 8192;
      square.heads = square.kvHeads = 64;
      add(OpClass::Product, name, 2 * 8192.0 * 8192 * 8192 / figure["TFLOP/s"].get<double>() * 1e-6, square,
          {Op::Linear, UnitRole::Out}, {8192, 8192, 1});
    }
  }

  // 28672 x 4096 is Llama-3.1-8B's gate and up, 4096 x 4096 its attention's output.
  void product(const Json &figure, const char *field) {
    const std::string name = figure["name"].get<std::string>();
    const std::vector<int64_t> of = numbersOf(name);
    if (of.size() != 3 || (of[0] != 28672 && of[0] != 4096) || of[1] != 4096)
      fail(name + ": expected a product of 28672 x 4096 or 4096 x 4096");
    add(OpClass::Product, (name.starts_with("linear") ? "" : "mapped, ") + name, figure[field].get<double>(), llama_,
        {Op::Linear, of[0] == 28672 ? UnitRole::Up : UnitRole::Out}, {of[2], of[2], 1});
  }

  // "32 x 1 rows, 8 heads of keys": nothing is rotated.
  void append(const Json &figure) {
    const std::string name = figure["name"].get<std::string>();
    const std::vector<int64_t> of = numbersOf(name);
    model::ModelSpec spec = opt_;
    spec.kvHeads = of[2];
    add(OpClass::Row, "rope_append, " + name, figure["to the device us"].get<double>(), spec,
        {Op::RopeAppend, UnitRole::Qkv}, {of[0] * of[1], of[0], of[1]});
  }

  void traced(const std::string &picture, const std::string &svg, const cost::Bucket &bucket) {
    const auto step = [&](OpClass of, std::string_view name, bool ofLayers, Op op, UnitRole unit) {
      add(of, "traced " + picture + ", " + std::string(name), tracedUs(svg, name, ofLayers), opt_, {op, unit}, bucket);
    };
    step(OpClass::Product, "qkv", true, Op::Linear, UnitRole::Qkv);
    step(OpClass::Product, "out", true, Op::Linear, UnitRole::Out);
    step(OpClass::Product, "up", true, Op::Linear, UnitRole::Up);
    step(OpClass::Product, "down", true, Op::Linear, UnitRole::Down);
    step(OpClass::Product, "head", false, Op::Linear, UnitRole::Head);
    step(OpClass::Row, "norm", true, Op::Norm, UnitRole::Qkv);
    step(OpClass::Row, "embed", false, Op::Embed, UnitRole::Embedding);
    step(OpClass::Row, "gather_rows", false, Op::GatherRows, UnitRole::Head);
    step(OpClass::Row, "rope_append", true, Op::RopeAppend, UnitRole::Qkv);
    step(bucket.tokens == bucket.sequences ? OpClass::DecodeAttention : OpClass::PrefillAttention, "attention", true,
         Op::Attention, UnitRole::Qkv);
  }

  const Measured &measured_;
  const model::ModelSpec llama_ = shapeOf("llama-3.1-8b"), opt_ = shapeOf("opt-6.7b");
  std::vector<KernelFigure> list_;
  std::array<size_t, 4> marked_{};
};

} // namespace

std::string_view opClassName(OpClass of) {
  constexpr std::string_view kNames[] = {"products", "decode attention", "prefill attention", "rows"};
  return kNames[static_cast<size_t>(of)];
}

double pricedUs(const KernelFigure &figure, const model::Hardware &hardware) {
  const cost::Roofline costs(figure.spec, hardware, figure.spec.dtype, figure.spec.dtype);
  return static_cast<double>(costs.computeNs(figure.site, figure.bucket, false)) * 1e-3;
}

double errorOf(const KernelFigure &figure, const model::Hardware &hardware) {
  return figure.us / pricedUs(figure, hardware) - 1;
}

// <title>L0 norm: 5.06 us, from 625 us to 630 us ...</title>, all that was measured behind all that was planned;
// copies' have "over the link" in them.
double tracedUs(const std::string &svg, std::string_view step, bool ofLayers) {
  constexpr std::string_view kOpen = "<title>", kClose = "</title>";
  std::vector<double> times;
  for (size_t at = svg.find("measured ("); (at = svg.find(kOpen, at)) != std::string::npos;) {
    at += kOpen.size();
    const std::string_view title = std::string_view(svg).substr(at, svg.find(kClose, at) - at);
    std::string_view name = title.substr(0, title.find(':'));
    bool layer = false;
    if (const size_t space = name.find(' '); name.starts_with('L') && space != std::string_view::npos) {
      layer = true;
      name.remove_prefix(space + 1);
    }
    if (name != step || layer != ofLayers || title.find("over the link") != std::string_view::npos)
      continue;
    size_t unit = 0;
    const std::string rest(title.substr(title.find(':') + 1));
    const double value = std::stod(rest, &unit);
    times.push_back(value * (rest.compare(unit, 3, " ms") == 0 ? 1e3 : rest.compare(unit, 3, " ns") == 0 ? 1e-3 : 1));
  }
  if (times.empty())
    fail("the picture has no measured step " + std::string(step));
  return median(std::move(times));
}

std::vector<KernelFigure> kernelFigures(const Measured &measured) { return Figures(measured).all(); }

Measured readMeasured(const std::string &folder) {
  return {Json::parse(take(model::readTextFile(folder + "/figures.json"))),
          take(model::readTextFile(folder + "/opt-6.7b-decode-32-interval-4.svg")),
          take(model::readTextFile(folder + "/opt-6.7b-prefill-2040-interval-8.svg"))};
}

model::ModelSpec shapeOf(const std::string &name) {
  return take(model::openModel(sourceDir() + "/examples/models/" + name + ".toml")).spec;
}

} // namespace headrace::bench
