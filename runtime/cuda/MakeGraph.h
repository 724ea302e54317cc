// SPDX-License-Identifier: Apache-2.0
//
// From a plan's variant to an executable: plan, record and check, choose algorithms, build, compare, instantiate.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/CpuLane.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/CudaGraph.h"
#include "runtime/cuda/CuptiTrace.h"

namespace headrace::cuda {

// The libraries of matrix products, in the order in which a graph's are tried.
class MatMulLibraries {
public:
  static absl::StatusOr<MatMulLibraries> open(bool gemmEx, std::vector<std::string> folders);
  // A way that graphs can be planned for: a library and how much it fuses.
  struct Way {
    MatMulLibrary *library;
    FusePolicy fuse;
  };
  // The n-th way; a null library after the last. cublasGemmEx is opened when it is first asked for.
  absl::StatusOr<Way> way(size_t n);
  void use(const ProductAlgorithms &chosen); // of shapes that no graph has had yet
  std::string algorithms() const;
  std::string version() const; // of the first

private:
  std::unique_ptr<MatMulLibrary> lt_, gemmEx_;
  std::vector<std::string> folders_;
};

struct MakeGraphRequest {
  const plan::Plan &plan;
  const core::BindContext &binding;
  GraphMemory memory;
  MatMulLibraries &libraries;
  BuildStreams &streams;
  CpuLane &cpu; // outlives the graph's launches
  GraphBuild how = GraphBuild::Explicit;
  bool instrumented = false;   // with time stamps
  CuptiTrace *cupti = nullptr; // what measures the graph, if not null
  bool compare = false;
  bool arenaIsFree = false; // nothing was launched: activations may be overwritten
};

// Every error names the variant. `costs` is added to.
absl::StatusOr<std::unique_ptr<CudaGraph>> makeGraph(const MakeGraphRequest &request, const core::GraphKey &key,
                                                     GraphCosts &costs);

} // namespace headrace::cuda
