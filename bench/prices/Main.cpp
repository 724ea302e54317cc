// SPDX-License-Identifier: Apache-2.0
//
// Fits what a hardware profile says of classes of ops to half of the measured steps, and says how far the profile is
// from the other half, and from whole iterations. Needs no GPU.
#include <cstdio>

#include "bench/prices/Fit.h"
#include "bench/prices/PredictedCells.h"
#include "runtime/job/JobFile.h"
#include "runtime/job/TomlText.h"
#include "tests/support/SourceDir.h"

namespace headrace::bench {
namespace {

constexpr OpClass kClasses[] = {OpClass::Product, OpClass::DecodeAttention, OpClass::PrefillAttention, OpClass::Row};

// The profile as it would be without figures of classes.
model::Hardware ofAllOps(model::Hardware hardware) {
  hardware.classes = {};
  return hardware;
}

void printFit(const std::vector<KernelFigure> &figures, const model::Hardware &profile) {
  model::Hardware fitted = ofAllOps(profile);
  fitted.classes = fittedClasses(figures, fitted);
  std::printf("fitted\n");
  for (const auto &[key, value] : model::hardwareEntries(fitted))
    for (const model::ClassKey &of : model::classKeys())
      if (key == of.key)
        std::printf("  %s = %s\n", key.c_str(), value.c_str());
}

void printSteps(const std::vector<KernelFigure> &figures, const model::Hardware &profile) {
  for (const OpClass of : kClasses) {
    std::printf("\n%-58s %10s %10s %7s   %s\n", std::string(opClassName(of)).c_str(), "us", "priced", "error",
                "by one efficiency");
    for (const KernelFigure &figure : figures)
      if (figure.of == of)
        std::printf("  %-8s %-47s %10.1f %10.1f %+6.1f%%   %+.1f%%\n", figure.fitted ? "fitted" : "held out",
                    figure.name.c_str(), figure.us, pricedUs(figure, profile), 100 * errorOf(figure, profile),
                    100 * errorOf(figure, ofAllOps(profile)));
    for (const bool fitted : {true, false})
      std::printf("  %-8s median of sizes %.1f%%, of the sum %+.1f%%; by one efficiency %.1f%%, %+.1f%%\n",
                  fitted ? "fitted" : "held out", 100 * medianError(figures, of, fitted, profile),
                  100 * sumError(figures, of, fitted, profile),
                  100 * medianError(figures, of, fitted, ofAllOps(profile)),
                  100 * sumError(figures, of, fitted, ofAllOps(profile)));
  }
}

void printCells(const Measured &measured, const model::Hardware &profile) {
  const std::vector<PredictedCell> cells = predictedCells(measured.figures, profile),
                                   before = predictedCells(measured.figures, ofAllOps(profile));
  std::printf("\n%-47s %10s %10s %7s   %s\n", "iterations that compute decides", "ms", "predicted", "error",
              "by one efficiency");
  for (size_t i = 0; i < cells.size(); ++i)
    if (!cells[i].byLink)
      std::printf("  %-45s %10.2f %10.2f %+6.1f%%   %+.1f%%\n", cells[i].name.c_str(), cells[i].ms, cells[i].predicted,
                  100 * cells[i].error(), 100 * before[i].error());
  for (const bool byLink : {false, true}) {
    size_t count = 0, changed = 0;
    for (size_t i = 0; i < cells.size(); ++i)
      if (cells[i].byLink == byLink) {
        ++count;
        changed += cells[i].predicted != before[i].predicted;
      }
    std::printf("  %s: %zu, median of sizes %.2f%%, by one efficiency %.2f%%; %zu are predicted otherwise\n",
                byLink ? "the link decides" : "compute decides", count, 100 * medianError(cells, byLink),
                100 * medianError(before, byLink), changed);
  }
}

void printPrompts(const Measured &measured, const model::Hardware &profile) {
  std::printf("\n%-37s %10s %10s %7s   %s\n", "prompts of llama-3.1-8b", "by hand", "predicted", "error",
              "by one efficiency");
  const model::ModelSpec spec = shapeOf("llama-3.1-8b");
  for (const int64_t tokens : {16384, 32768, 131072}) {
    const double hand = prefillByHandMs(measured, tokens), predicted = predictedPrefillMs(spec, tokens, profile);
    std::printf("  %-35ld %10.1f %10.1f %+6.1f%%   %+.1f%%\n", static_cast<long>(tokens), hand, predicted,
                100 * (hand / predicted - 1), 100 * (hand / predictedPrefillMs(spec, tokens, ofAllOps(profile)) - 1));
  }
}

int run() {
  const Measured measured = readMeasured(sourceDir() + "/bench/results/h200");
  const absl::StatusOr<model::Hardware> profile = model::openHardware(sourceDir() + "/examples/hardware/h200.toml");
  if (!profile.ok())
    fail(std::string(profile.status().message()));
  const std::vector<KernelFigure> figures = kernelFigures(measured);
  printFit(figures, *profile);
  printSteps(figures, *profile);
  printCells(measured, *profile);
  printPrompts(measured, *profile);
  return 0;
}

} // namespace
} // namespace headrace::bench

int main(int argc, char **) {
  if (argc > 1) {
    std::fputs("usage: fit_prices: h200.toml against bench/results/h200\n", stderr);
    return 2;
  }
  try {
    return headrace::bench::run();
  } catch (const std::exception &error) {
    std::fprintf(stderr, "fit_prices: %s\n", error.what());
    return 1;
  }
}
