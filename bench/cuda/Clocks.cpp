// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Clocks.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "runtime/cuda/DynamicLibrary.h"

namespace headrace::bench {
namespace {

constexpr int kSmClock = 1;                 // NVML_CLOCK_SM
constexpr unsigned long long kPower = 0x84; // software power cap, hardware power brake
constexpr unsigned long long kHeat = 0x60;  // thermal slowdown, the driver's and the hardware's

// Ends and joins the sampling thread however the measured work ends.
class Sampling {
public:
  template <typename F> explicit Sampling(F &&each) {
    thread_ = std::thread([this, each] {
      while (!ends_.load()) {
        each();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  }
  ~Sampling() {
    ends_.store(true);
    thread_.join();
  }

private:
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

} // namespace

Clocks::Clocks(int device) {
  const auto library = cuda::DynamicLibrary::open({"libnvidia-ml.so.1"}, cuda::librarySearchPath(""));
  if (!library.ok()) {
    whyNot_ = std::string(library.status().message());
    return;
  }
  int (*init)() = nullptr;
  int (*byBus)(const char *, void **) = nullptr;
  for (const absl::Status &status :
       {library->find("nvmlInit_v2", init), library->find("nvmlDeviceGetHandleByPciBusId_v2", byBus),
        library->find("nvmlDeviceGetClockInfo", clockInfo_), library->find("nvmlDeviceGetPowerUsage", powerUsage_),
        library->find("nvmlDeviceGetCurrentClocksThrottleReasons", clocksReasons_)})
    if (!status.ok()) {
      whyNot_ = std::string(status.message());
      return;
    }
  char bus[32] = {};
  must(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId");
  Sample first;
  if (init() != 0 || byBus(bus, &device_) != 0 || !sample(first))
    whyNot_ = "the driver's management library does not answer for " + std::string(bus);
}

bool Clocks::sample(Sample &out) const {
  return clockInfo_(device_, kSmClock, &out.mhz) == 0 && powerUsage_(device_, &out.milliwatts) == 0 &&
         clocksReasons_(device_, &out.reasons) == 0;
}

Json Clocks::during(const std::function<void()> &work) {
  std::vector<Sample> samples;
  if (!whyNot_.empty()) {
    work();
    return Json::object();
  }
  {
    const Sampling sampling([&] {
      if (Sample one; sample(one))
        samples.push_back(one);
    });
    work();
  }
  if (samples.empty())
    return Json::object();
  std::vector<double> mhz;
  double watts = 0, power = 0, heat = 0;
  for (const Sample &one : samples) {
    mhz.push_back(one.mhz);
    watts += one.milliwatts * 1e-3;
    power += (one.reasons & kPower) != 0;
    heat += (one.reasons & kHeat) != 0;
  }
  const auto count = static_cast<double>(samples.size());
  return {{"SM MHz", median(mhz)},
          {"W", watts / count},
          {"held down by power", power / count},
          {"held down by heat", heat / count}};
}

} // namespace headrace::bench
