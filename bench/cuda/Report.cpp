// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace headrace::bench {

using Json = nlohmann::ordered_json;

void fail(const std::string &message) {
  std::fprintf(stderr, "bench_cuda: %s\n", message.c_str());
  std::exit(1);
}

void must(cudaError_t error, const char *what) {
  if (error != cudaSuccess)
    fail(std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

Report::Report(std::string file) : file_(std::move(file)), all_(Json::object()) {
  if (std::ifstream in(file_); in) {
    all_ = Json::parse(in, nullptr, /*allow_exceptions=*/false);
    if (!all_.is_object())
      fail(file_ + ": holds something else than figures of bench_cuda");
  }
}

void Report::part(std::string_view name, std::string_view method) {
  part_ = name;
  all_["parts"][part_] = {{"method", method}, {"figures", Json::array()}};
  std::printf("\n== %s: %s\n", part_.c_str(), std::string(method).c_str());
  write();
}

void Report::figure(std::string_view name, Json fields) {
  std::printf("%-58s", std::string(name).c_str());
  for (const auto &[key, value] : fields.items())
    if (value.is_number_float())
      std::printf("  %s %.4g", key.c_str(), value.get<double>());
    else
      std::printf("  %s %s", key.c_str(), value.dump().c_str());
  std::printf("\n");
  std::fflush(stdout);
  Json one = {{"name", name}};
  one.update(fields);
  all_["parts"][part_]["figures"].push_back(std::move(one));
  write();
}

void Report::fact(std::string_view name, Json value) {
  std::printf("%-18s %s\n", std::string(name).c_str(), value.dump().c_str());
  all_["facts"][std::string(name)] = std::move(value);
  write();
}

void Report::write() const {
  if (file_.empty())
    return;
  const std::string beside = file_ + ".part";
  std::ofstream out(beside);
  out << all_.dump(1) << "\n";
  out.close();
  if (!out || std::rename(beside.c_str(), file_.c_str()) != 0)
    fail(file_ + ": cannot be written");
}

std::string Report::table(const std::string &file) {
  std::ifstream in(file);
  const Json all = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object())
    fail(file + ": expected figures of bench_cuda");
  const auto cell = [](const Json &value) {
    char text[32];
    if (value.is_number_float()) {
      std::snprintf(text, sizeof(text), "%.4g", value.get<double>());
      return std::string(text);
    }
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::string out;
  if (all.contains("facts")) {
    out += "| device | |\n|---|---|\n";
    for (const auto &[name, value] : all["facts"].items())
      out += "| " + name + " | " + cell(value) + " |\n";
  }
  if (!all.contains("parts"))
    return out;
  for (const auto &[name, part] : all["parts"].items()) {
    out += "\n## " + name + "\n\n" + part["method"].get<std::string>() + "\n\n";
    std::vector<std::string> columns;
    for (const Json &figure : part["figures"])
      for (const auto &[field, value] : figure.items())
        if (std::find(columns.begin(), columns.end(), field) == columns.end())
          columns.push_back(field);
    std::string rule;
    for (const std::string &column : columns) {
      out += "| " + column + " ";
      rule += "|---";
    }
    out += "|\n" + rule + "|\n";
    for (const Json &figure : part["figures"]) {
      for (const std::string &column : columns)
        out += "| " + (figure.contains(column) ? cell(figure[column]) : std::string()) + " ";
      out += "|\n";
    }
  }
  return out;
}

double quantile(std::vector<double> values, double q) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(values.size()))) - 1];
}
double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double nowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double Budget::left() const { return seconds - (nowSeconds() - startedAt); }

Timer::Timer() {
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  must(cudaEventCreate(&begin_), "cudaEventCreate");
  must(cudaEventCreate(&end_), "cudaEventCreate");
}
Timer::~Timer() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
  cudaStreamDestroy(stream_);
}
void Timer::start() { must(cudaEventRecord(begin_, stream_), "cudaEventRecord"); }
double Timer::stopMs() {
  must(cudaEventRecord(end_, stream_), "cudaEventRecord");
  must(cudaEventSynchronize(end_), "cudaEventSynchronize");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  return ms;
}

DeviceBuffer::DeviceBuffer(size_t bytes) {
  must(cudaMalloc(&p_, bytes), "cudaMalloc");
  must(cudaMemset(p_, 0, bytes), "cudaMemset");
}
PinnedBuffer::PinnedBuffer(size_t bytes) { must(cudaHostAlloc(&p_, bytes, cudaHostAllocDefault), "cudaHostAlloc"); }

BenchGraph::BenchGraph() { must(cudaGraphCreate(&graph_, 0), "cudaGraphCreate"); }
BenchGraph::~BenchGraph() {
  if (executable_ != nullptr)
    cudaGraphExecDestroy(executable_);
  cudaGraphDestroy(graph_);
}

cudaGraphNode_t BenchGraph::copy(cudaGraphNode_t after, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  cudaGraphNode_t node = nullptr;
  must(cudaGraphAddMemcpyNode1D(&node, graph_, after == nullptr ? nullptr : &after, after == nullptr ? 0 : 1, to, from,
                                bytes, kind),
       "cudaGraphAddMemcpyNode1D");
  return node;
}

cudaGraphNode_t BenchGraph::kernel(cudaGraphNode_t after, const void *entry, dim3 grid, dim3 block, unsigned shared,
                                   void *args) {
  void *parameters[] = {args};
  cudaKernelNodeParams params{};
  params.func = const_cast<void *>(entry);
  params.gridDim = grid;
  params.blockDim = block;
  params.sharedMemBytes = shared;
  params.kernelParams = parameters;
  cudaGraphNode_t node = nullptr;
  must(cudaGraphAddKernelNode(&node, graph_, after == nullptr ? nullptr : &after, after == nullptr ? 0 : 1, &params),
       "cudaGraphAddKernelNode");
  return node;
}

BenchGraph::Built BenchGraph::build(cudaStream_t stream) {
  Built built;
  size_t before = 0, after = 0, total = 0;
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  must(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
  double at = nowSeconds();
  must(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  built.instantiateMs = (nowSeconds() - at) * 1e3;
  at = nowSeconds();
  must(cudaGraphUpload(executable_, stream), "cudaGraphUpload");
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  built.uploadMs = (nowSeconds() - at) * 1e3;
  must(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
  built.deviceBytes = before > after ? before - after : 0;
  return built;
}

} // namespace headrace::bench
