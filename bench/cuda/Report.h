// SPDX-License-Identifier: Apache-2.0
//
// Figures of bench_cuda, written as they come: a run that is cut off leaves what it measured.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nlohmann/json.hpp>

namespace headrace::bench {

// Ends the program with the call, what it was for and CUDA's name of the error.
[[noreturn]] void fail(const std::string &message);
void must(cudaError_t error, const char *what);

class Report {
public:
  // `file` may be empty: then figures are only printed. What an earlier run left in it under other parts is kept.
  explicit Report(std::string file);

  // Starts a part: `method` says how its figures are measured. Figures of the same part from an earlier run go.
  void part(std::string_view name, std::string_view method);
  // One figure of the part with its fields, and one line on standard output.
  void figure(std::string_view name, nlohmann::ordered_json fields);
  // What holds for the whole run: the device, driver, clocks.
  void fact(std::string_view name, nlohmann::ordered_json value);

  // What the file holds as tables in Markdown, a part each; a column for each field that any of its figures has.
  static std::string table(const std::string &file);

private:
  void write() const;
  std::string file_;
  std::string part_;
  nlohmann::ordered_json all_;
};

double median(std::vector<double> values);
double quantile(std::vector<double> values, double q); // nearest rank

// A stream that does not wait for the default one, and a pair of events on it.
class Timer {
public:
  Timer();
  ~Timer();
  Timer(const Timer &) = delete;
  Timer &operator=(const Timer &) = delete;
  cudaStream_t stream() const { return stream_; }
  void start();
  double stopMs(); // waits
private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// The median of `repeats` runs of `work(stream)` in milliseconds by events, after one that is left out.
template <typename F> double medianMs(Timer &timer, int repeats, F &&work) {
  std::vector<double> ms;
  for (int i = 0; i <= repeats; ++i) {
    timer.start();
    work(timer.stream());
    const double one = timer.stopMs();
    if (i > 0)
      ms.push_back(one);
  }
  return median(std::move(ms));
}

// Memory that is given back with the object.
class DeviceBuffer {
public:
  explicit DeviceBuffer(size_t bytes);
  ~DeviceBuffer() { cudaFree(p_); }
  DeviceBuffer(const DeviceBuffer &) = delete;
  DeviceBuffer &operator=(const DeviceBuffer &) = delete;
  template <typename T = char> T *as() const { return static_cast<T *>(p_); }

private:
  void *p_ = nullptr;
};
class PinnedBuffer {
public:
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer() { cudaFreeHost(p_); }
  PinnedBuffer(const PinnedBuffer &) = delete;
  PinnedBuffer &operator=(const PinnedBuffer &) = delete;
  template <typename T = char> T *as() const { return static_cast<T *>(p_); }

private:
  void *p_ = nullptr;
};

// A graph that is being made, then an executable of it.
class BenchGraph {
public:
  BenchGraph();
  ~BenchGraph();
  BenchGraph(const BenchGraph &) = delete;
  BenchGraph &operator=(const BenchGraph &) = delete;

  // Nodes behind `after` (null: at the start); each returns its node.
  cudaGraphNode_t copy(cudaGraphNode_t after, void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
  cudaGraphNode_t kernel(cudaGraphNode_t after, const void *entry, dim3 grid, dim3 block, unsigned shared, void *args);
  // Instantiates and uploads; milliseconds of both, and the device memory they took.
  struct Built {
    double instantiateMs = 0, uploadMs = 0;
    size_t deviceBytes = 0;
  };
  Built build(cudaStream_t stream);
  void launch(cudaStream_t stream) const { must(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

struct Budget {
  double seconds = 0; // of the whole program; parts leave out what no longer fits and say so
  double startedAt = 0;
  double left() const;
};
double nowSeconds();

// The parts.
void measureLink(Report &report);
void measureGraphs(Report &report);
void measureKernels(Report &report);
void measureIterations(Report &report, const Budget &budget, const std::string &filter);

} // namespace headrace::bench
