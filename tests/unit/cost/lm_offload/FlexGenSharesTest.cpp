// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/FlexGenShares.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cost/lm_offload/RoundModel.h"

namespace headrace::cost {
namespace {

OffloadSetting withShares(OffloadSetting setting, double wg, double cg, double hg) {
  setting.percent = {100 * wg, 100 - 100 * wg, 100 * cg, 100 - 100 * cg, hg, 100 - hg};
  return setting;
}

// The programme's time at shares from 0 to 1, by the closed form there: infinite where they do not fit.
double timeAt(const OffloadModel &model, const OffloadMachine &machine, const OffloadSetting &base, double wg,
              double cg, double hg) {
  const OffloadSetting setting = withShares(base, wg, cg, hg);
  const auto form = closedForm(model, machine, FlexGenRuntime(), setting);
  EXPECT_TRUE(form.ok()) << form.status();
  const OffloadBytes bytes = offloadBytes(model, setting);
  const auto fits = [](uint64_t need, uint64_t have) {
    return static_cast<double>(need) <= static_cast<double>(have) * (1 + 1e-9);
  };
  if (!fits(bytes.device, machine.deviceBytes) || !fits(bytes.host, machine.hostBytes))
    return std::numeric_limits<double>::infinity();
  const double layers = static_cast<double>(model.layers), iterations = static_cast<double>(setting.output - 1);
  const double pre = std::max({form->prefill.h2d(), form->prefill.d2h(), form->prefill.device()});
  const double gen = form->decode.h2d() + std::max(form->decode.d2h(), form->decode.device() + form->decode.cpu());
  return layers * pre + layers * iterations * gen;
}

// a + b wg + c cg = 0 where two lanes are alike, a memory is full, or a share is 0 or 1.
struct Line2 {
  double a = 0, b = 0, c = 0;
};

// The time is piecewise linear in the shares, so it is least where two of these lines cross.
double bruteForce(const OffloadModel &model, const OffloadMachine &machine, const OffloadSetting &base) {
  double best = std::numeric_limits<double>::infinity();
  for (const double hg : {0.0, 100.0}) {
    std::vector<Line2> lines = {{0, 1, 0}, {-1, 1, 0}, {0, 0, 1}, {-1, 0, 1}};
    const auto add = [&](const auto &f) {
      std::array<double, 3> at = {};
      for (size_t i = 0; i < 3; ++i) {
        const OffloadSetting setting = withShares(base, i == 1 ? 1 : 0, i == 2 ? 1 : 0, hg);
        at[i] = f(*closedForm(model, machine, FlexGenRuntime(), setting), offloadBytes(model, setting));
      }
      lines.push_back({at[0], at[1] - at[0], at[2] - at[0]});
    };
    using Form = const ClosedForm &;
    using Bytes = const OffloadBytes &;
    add([&](Form, Bytes b) { return static_cast<double>(b.device) - static_cast<double>(machine.deviceBytes); });
    add([&](Form, Bytes b) { return static_cast<double>(b.host) - static_cast<double>(machine.hostBytes); });
    add([](Form f, Bytes) { return f.prefill.h2d() - f.prefill.d2h(); });
    add([](Form f, Bytes) { return f.prefill.h2d() - f.prefill.device(); });
    add([](Form f, Bytes) { return f.prefill.d2h() - f.prefill.device(); });
    add([](Form f, Bytes) { return f.decode.d2h() - f.decode.device() - f.decode.cpu(); });
    for (size_t i = 0; i < lines.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        const Line2 &p = lines[i], &q = lines[k];
        const double determinant = p.b * q.c - p.c * q.b;
        if (determinant == 0)
          continue;
        const double wg = (p.c * q.a - p.a * q.c) / determinant, cg = (p.a * q.b - p.b * q.a) / determinant;
        const double inside = 1e-12;
        if (wg >= -inside && wg <= 1 + inside && cg >= -inside && cg <= 1 + inside)
          best = std::min(best, timeAt(model, machine, base, std::clamp(wg, 0.0, 1.0), std::clamp(cg, 0.0, 1.0), hg));
      }
    }
  }
  return best;
}

TEST(FlexGenShares, AreOfRoundNumbers) {
  // Weights on the device save 20 seconds of h2d an iteration, KV there 5.6, so the device has weights first. Outside
  // 200, hidden states 240; with wg = 1 no slots of weights, 2 x 160 x 3 of KV with cg = 0. 4000 + 200 + 960 = 5160.
  OffloadMachine machine = roundMachine();
  machine.deviceBytes = 5160;
  const auto shares = flexGenShares(roundModel(), machine, roundSetting());
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_NEAR(shares->percent.wg, 100, 1e-9);
  EXPECT_NEAR(shares->percent.cg, 0, 1e-9);
  EXPECT_EQ(shares->percent.hg, 0);
  EXPECT_DOUBLE_EQ(shares->prefillLayer, 24.96);
  EXPECT_DOUBLE_EQ(shares->decodeLayer, 6.4 + 8.36); // loads, then linear ops and attention
  EXPECT_DOUBLE_EQ(shares->generate, 2 * 24.96 + 4 * 14.76);
}

TEST(FlexGenShares, HaveAllWhereThereIsRoom) {
  const auto shares = flexGenShares(roundModel(), roundMachine(), roundSetting());
  ASSERT_TRUE(shares.ok()) << shares.status();
  EXPECT_EQ(percentText(shares->percent), "100 0 100 0 100 0");
  EXPECT_DOUBLE_EQ(shares->decodeLayer, 8.36);
}

TEST(FlexGenShares, SayWhereNothingFits) {
  OffloadMachine machine = roundMachine();
  machine.deviceBytes = 5000;
  machine.hostBytes = 100;
  // Weights 4000, KV 2 x 960, hidden states 240; slots of 4000 and 960 beside 200.
  EXPECT_EQ(flexGenShares(roundModel(), machine, roundSetting()).status(),
            absl::ResourceExhaustedError("no shares fit: with everything on the host 6160 bytes of host and 5160 of "
                                         "device memory; the machine has 100 and 5000"));
  OffloadSetting setting = roundSetting();
  setting.output = 1;
  EXPECT_EQ(flexGenShares(roundModel(), machine, setting).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(FlexGenShares, AreWhatBruteForceFinds) {
  std::mt19937_64 random(49);
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  const auto whole = [&](double low, double high) { return static_cast<int64_t>(between(low, high)); };
  int solved = 0, mixed = 0, ofHost = 0;
  for (int i = 0; solved < 200; ++i) {
    ASSERT_LT(i, 1000);
    OffloadModel model = roundModel();
    model.layers = whole(2, 80);
    model.hidden = model.qRows = model.kvRows = 64 * whole(8, 100);
    model.layerWeights = 12 * model.hidden * model.hidden;
    model.longestContext = 1 << 20;
    OffloadSetting setting;
    setting.miniBatches = whole(1, 10);
    setting.block = setting.miniBatches * whole(1, 64);
    setting.prompt = whole(1, 1000);
    setting.output = whole(2, 300);
    setting.attention = random() % 2 ? AttentionPlace::kCpu : AttentionPlace::kDevice;
    if (random() % 2)
      setting.weights = kQ4;
    OffloadMachine machine = roundMachine();
    machine.h2dBandwidth = between(5e9, 50e9);
    machine.d2hBandwidth = between(1e9, 50e9);
    machine.duplexBandwidth = machine.h2dBandwidth + machine.d2hBandwidth;
    machine.deviceFlops = between(10e12, 500e12);
    machine.deviceBandwidth = between(200e9, 4e12);
    machine.devicePacking = between(50e9, 1e12);
    machine.cpuAttention = between(5e9, 400e9);
    // Of what all takes, so that the memories often decide.
    const OffloadBytes host = offloadBytes(model, withShares(setting, 0, 0, 0));
    machine.deviceBytes =
        static_cast<uint64_t>(static_cast<double>(host.device) + between(0.01, 1) * static_cast<double>(host.host));
    machine.hostBytes = static_cast<uint64_t>(between(0.5, 1.5) * static_cast<double>(host.host));
    const double expected = bruteForce(model, machine, setting);
    const auto shares = flexGenShares(model, machine, setting);
    if (!shares.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(shares.status())) << shares.status();
      EXPECT_TRUE(std::isinf(expected)) << i << ": " << expected;
      continue;
    }
    ++solved;
    mixed += shares->percent.wg > 1 && shares->percent.wg < 99 ? 1 : 0;
    EXPECT_NEAR(shares->generate, expected, 1e-9 * expected) << i << ": " << percentText(shares->percent);
    EXPECT_TRUE(model::checkPercent(shares->percent, "shares").ok());
    // As plans attend on the CPU: of what is left the best, so no better than of all.
    if (const auto limited = flexGenShares(model, machine, setting, {.mostCg = 0, .leastHg = 100}); limited.ok()) {
      EXPECT_EQ(limited->percent.cg, 0);
      EXPECT_EQ(limited->percent.hg, 100);
      EXPECT_GE(limited->generate, expected * (1 - 1e-9));
      EXPECT_NEAR(limited->generate, timeAt(model, machine, setting, limited->percent.wg / 100, 0, 100),
                  1e-9 * limited->generate);
      ++ofHost;
    }
    EXPECT_NEAR(shares->generate,
                timeAt(model, machine, setting, shares->percent.wg / 100, shares->percent.cg / 100, shares->percent.hg),
                1e-9 * expected);
  }
  EXPECT_GT(mixed, 50);
  EXPECT_GT(ofHost, 50);
}

} // namespace
} // namespace headrace::cost
