// SPDX-License-Identifier: Apache-2.0
//
// What only the CUDA device does, on the stand-in of CUDA's runtime: when staging copies may be filled again, what is
// copied of them, and how many iterations are in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <vector>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/DynamicLibrary.h"
#include "runtime/cuda/FaultIn.h"
#include "runtime/cuda/MatMulLibrary.h"
#include "runtime/model/WeightSource.h"
#include "tests/unit/cuda/Generate.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace::cuda {
namespace {

// Where the device looks for the libraries of products, unless that is said (the program may be elsewhere than it was
// built); before any test.
const int kEnvironment = ::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 0);

// Two sequences that decode, one token each.
class StandInDevice : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(kEnvironment, 0);
    plan_ = planFor(model::DeviceKind::Cuda, {.spec = core::tinyLlama(2), .offloaded = {1}});
    auto device = makeCudaDevice({});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto runtime = core::Runtime::load(plan_, *device_, {}, model::syntheticWeights(1).get(), {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  void TearDown() override { stand_in::release(); }

  absl::Status fill(int64_t sequences) {
    std::vector<core::SequenceRows> rows;
    for (int64_t i = 0; i < sequences; ++i)
      rows.push_back({.tokens = token_, .blocks = {&blocks_[static_cast<size_t>(i)], 1}, .sample = true});
    return core::writeMeta(plan_.metaLayout, plan_.blockTokens, rows, device_->meta());
  }
  absl::Status launch(int64_t sequences) {
    if (absl::Status status = fill(sequences); !status.ok())
      return status;
    const auto variant = runtime_->choose(sequences, sequences, 1);
    return variant.ok() ? runtime_->launch(*variant) : variant.status();
  }
  static bool stillWaits(const std::future<absl::Status> &call) {
    return call.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout;
  }

  plan::Plan plan_;
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  std::array<int32_t, 1> token_{5};
  std::array<int32_t, 3> blocks_{1, 2, 3};
};

// Tables of 2 of 3 sequences, of which each needs a block, are two words: one sequence less is a word less.
TEST_F(StandInDevice, OfIterationDataWhatIsUsedIsCopied) {
  ASSERT_TRUE(launch(2).ok());
  const uint64_t two = stand_in::lastCopyBytes();
  ASSERT_TRUE(runtime_->awaitTokens().ok());
  ASSERT_TRUE(launch(1).ok());
  EXPECT_EQ(two - stand_in::lastCopyBytes(), 4u);
  EXPECT_LT(two, kernels::metaBytes(plan_.metaLayout));
  ASSERT_TRUE(runtime_->awaitTokens().ok());
}

// With two launched and none begun, the third's staging copy is the first's: it is not given out before that was taken.
TEST_F(StandInDevice, AStagingCopyIsFilledAgainOnceItWasTaken) {
  stand_in::hold();
  ASSERT_TRUE(launch(1).ok());
  ASSERT_TRUE(launch(1).ok());
  auto third = std::async(std::launch::async, [this] { return fill(1); });
  EXPECT_TRUE(stillWaits(third));
  stand_in::release();
  EXPECT_TRUE(third.get().ok());
  ASSERT_TRUE(runtime_->awaitTokens().ok());
  ASSERT_TRUE(runtime_->awaitTokens().ok());
}

// With the first one's data taken and its graph held back, the third can be filled, and is launched only once the first
// has ended.
TEST_F(StandInDevice, TwoAreInFlight) {
  ASSERT_TRUE(launch(1).ok());
  ASSERT_TRUE(runtime_->awaitTokens().ok());
  ASSERT_TRUE(device_->drain().ok());
  stand_in::holdGraphs();
  ASSERT_TRUE(launch(1).ok());
  ASSERT_TRUE(fill(1).ok());
  const auto variant = runtime_->choose(1, 1, 1);
  ASSERT_TRUE(variant.ok()) << variant.status();
  ASSERT_TRUE(runtime_->launch(*variant).ok());
  auto filled = std::async(std::launch::async, [this] { return fill(1); });
  ASSERT_FALSE(stillWaits(filled));
  EXPECT_TRUE(filled.get().ok());
  auto launched = std::async(std::launch::async, [&] { return runtime_->launch(*variant); });
  EXPECT_TRUE(stillWaits(launched));
  stand_in::release();
  EXPECT_TRUE(launched.get().ok());
  EXPECT_TRUE(device_->drain().ok());
}

// What takes long is not begun where device memory lacks.
TEST_F(StandInDevice, DeviceMemoryIsTakenBeforeHostMemory) {
  stand_in::fail({.call = "cudaMalloc"});
  EXPECT_EQ(device_->open(plan_, {}).code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(stand_in::calls().contains("cudaHostRegister"));
  EXPECT_TRUE(stand_in::heal());
}

TEST_F(StandInDevice, HostMemoryFarFromTheGpuIsSaid) {
  alignas(4096) static std::byte page[4096];
  page[0] = std::byte{1};
  const bool known = bytesElsewhere(page, sizeof page, 0).has_value(); // where the system does not say, nothing is said
  std::vector<std::string> said;
  uint64_t pinned = 0;
  stand_in::show({{.numaNode = 512}}); // which no machine has
  auto device = makeCudaDevice({.notice = [&](const std::string &notice) { said.push_back(notice); },
                                .pinning = [&](uint64_t done, uint64_t) { pinned = done; }});
  stand_in::show({{}});
  ASSERT_TRUE(device.ok()) << device.status();
  ASSERT_TRUE((*device)->open(plan_, {}).ok());
  EXPECT_GE(pinned, plan_.hostBytes);
  ASSERT_EQ(said.size(), known ? 1u : 0u);
  if (known) {
    EXPECT_THAT(said[0], testing::HasSubstr("bytes are not on NUMA node 512, which is the GPU's"));
  }
}

TEST_F(StandInDevice, EdgesThatAreNoFullDependenciesAreRefused) {
  for (bool capture : {false, true}) {
    auto device = makeCudaDevice({.capture = capture});
    ASSERT_TRUE(device.ok()) << device.status();
    ASSERT_TRUE((*device)->open(plan_, {}).ok());
    stand_in::setProgrammatic(true);
    const absl::Status refused = (*device)->build({}).status();
    stand_in::setProgrammatic(false);
    EXPECT_THAT(std::string(refused.message()),
                testing::MatchesRegex("building variant 0 .*: the edge from step [0-9]+ to step [0-9]+ is of type 1, "
                                      "from port 1 to port 0: expected one by which .*"));
    EXPECT_TRUE((*device)->build({}).ok());
  }
}

// It is waited for all the same. What is predicted to take long is not late, and nothing where nothing is predicted.
// cublasLt names two here: the first is used until another is taken.
TEST(Products, OfAShapeAnotherAlgorithmCanBeTaken) {
  auto library = MatMulLibrary::open(LibraryKind::CublasLt, librarySearchPath(""));
  ASSERT_TRUE(library.ok()) << library.status();
  const MatMul product{.shape = {.m = 2, .n = 4, .k = 8}, .workspaceBytes = 1};
  EXPECT_TRUE((*library)->candidates(product.shape).empty()); // not prepared
  ASSERT_TRUE((*library)->prepare(product).ok());
  const std::vector<std::string> candidates = (*library)->candidates(product.shape);
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_THAT(candidates[1], testing::StartsWith("algorithm 1 tile 0"));
  EXPECT_THAT((*library)->algorithms(), testing::HasSubstr(": algorithm 0 "));
  EXPECT_TRUE((*library)->take(product.shape, 1).ok());
  EXPECT_THAT((*library)->algorithms(), testing::HasSubstr(": algorithm 1 "));
  EXPECT_THAT(std::string((*library)->take(product.shape, 2).message()), testing::HasSubstr("candidate 2 of 2"));
  auto plain = MatMulLibrary::open(LibraryKind::GemmEx, librarySearchPath(""));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE((*plain)->prepare(product).ok());
  EXPECT_THAT(std::string((*plain)->take(product.shape, 0).message()), testing::HasSubstr("candidate 0 of 0"));
}

// What a library lists, with the second algorithm, is what a later process opens it with.
TEST(Products, WhatWasChosenBeforeIsTakenWhereTheLibraryIsTheSame) {
  const MatMul product{.shape = {.m = 2, .n = 4, .k = 8}, .workspaceBytes = 1};
  const auto openWith = [&](const ProductAlgorithms &chosen) {
    auto library = MatMulLibrary::open(LibraryKind::CublasLt, librarySearchPath(""), chosen);
    EXPECT_TRUE(library.ok()) << library.status();
    EXPECT_TRUE((*library)->prepare(product).ok());
    return *std::move(library);
  };
  auto first = openWith({});
  ASSERT_TRUE(first->take(product.shape, 1).ok());
  const std::string path = testing::TempDir() + "product.algorithms", listed = first->algorithms();
  const auto write = [&](const std::string &text) { std::ofstream(path) << text; };
  write(listed);
  const auto read = readProductAlgorithms(path);
  ASSERT_TRUE(read.ok()) << read.status();
  for (int process = 0; process < 2; ++process)
    EXPECT_THAT(openWith(*read)->algorithms(), testing::HasSubstr(": algorithm 1 "));
  ProductAlgorithms other = *read;
  other.library += "1";
  EXPECT_THAT(openWith(other)->algorithms(), testing::HasSubstr(": algorithm 0 "));
  other = *read;
  other.byShape.begin()->second[0] = 7; // which this library does not name
  EXPECT_THAT(openWith(other)->algorithms(), testing::HasSubstr(": algorithm 0 "));

  std::vector<std::string> said;
  const CudaOptions options{.algorithms = path, .notice = [&](const std::string &one) { said.push_back(one); }};
  EXPECT_TRUE(makeCudaDevice(options).ok());
  EXPECT_TRUE(said.empty());
  write("cublasLt 7\n");
  EXPECT_TRUE(makeCudaDevice(options).ok());
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], testing::HasSubstr("algorithms of cublasLt 7, the library here is cublasLt "));
  for (const auto &[text, expected] : {std::pair<const char *, const char *>{"", ":1: '': expected the library"},
                                       {"cublas 7\n", ":1: 'cublas 7': expected the library"},
                                       {"cublasLt 7\nm 2: bytes 1 2 3\n", ":2: 'm 2: bytes 1 2 3': expected 'SHAPE"},
                                       {"cublasLt 7\nm 2: a, bytes 1 2 3 4 5 6 7 x, 1 nodes\n", "eight hexadecimal"},
                                       {"cublasLt 7\nm 2: a, bytes 1 2 3 4 5 6 7 8 9\n", "eight hexadecimal"},
                                       {"cublasLt 7\nm 2: a, bytes 1 2 3 4 5 6 7 8\nm 2: a, bytes 1 2 3 4 5 6 7 8\n",
                                        ":3: 'm 2: a, bytes 1 2 3 4 5 6 7 8': expected a shape once"}}) {
    write(text);
    const auto device = makeCudaDevice(options);
    EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(device.status().message()), testing::HasSubstr(expected)) << text;
  }
}

TEST_F(StandInDevice, TakesTheAlgorithmsThatStandBesideItsRecord) {
  const std::string record = testing::TempDir() + "beside.toml", beside = record + ".cublaslt",
                    stated = testing::TempDir() + "stated.cublaslt";
  std::filesystem::remove(beside);
  const std::string first = algorithmsOf(*device_); // of the graphs that the test begins with
  ASSERT_THAT(first, testing::AllOf(testing::StartsWith("cublasLt "), testing::HasSubstr(": algorithm 0 "),
                                    testing::HasSubstr(", bytes 0 ")));
  const auto write = [](const std::string &path, const std::string &text) { std::ofstream(path) << text; };
  const auto given = [&](const CudaOptions &options) {
    runtime_.reset();
    device_ = makeCudaDevice(options).value();
    EXPECT_EQ(algorithmsOf(*device_), ""); // nothing was multiplied yet
    const absl::Status status = useAlgorithmsBeside(*device_, record);
    EXPECT_TRUE(status.ok()) << status;
    auto runtime = core::Runtime::load(plan_, *device_, {}, model::syntheticWeights(1).get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    return algorithmsOf(*device_);
  };
  EXPECT_EQ(given({}), first); // there are none
  std::string second = first;
  for (size_t at = 0; (at = second.find(", bytes 0 ", at)) != std::string::npos;)
    second.replace(at, 10, ", bytes 1 ");
  write(beside, second);
  EXPECT_THAT(given({}),
              testing::AllOf(testing::HasSubstr(": algorithm 1 "), testing::Not(testing::HasSubstr(": algorithm 0 "))));
  write(stated, first); // goes before
  EXPECT_EQ(given({.algorithms = stated}), first);
  // Another library's are said and left, shapes that nobody asked for kept.
  write(beside, first + "m 7 n 7 k 7 f32 -> f32: x, bytes 1 2 3 4 5 6 7 a\n");
  EXPECT_THAT(given({}), testing::EndsWith("m 7 n 7 k 7 f32 -> f32: as before, bytes 1 2 3 4 5 6 7 a\n"));
  write(beside, "cublasLt 7\n");
  std::vector<std::string> said;
  EXPECT_EQ(given({.notice = [&](const std::string &one) { said.push_back(one); }}), first);
  EXPECT_THAT(said, testing::ElementsAre(testing::HasSubstr(beside + ": algorithms of cublasLt 7, ")));
  write(beside, "cublas 7\n");
  const absl::Status refused = useAlgorithmsBeside(*device_, record);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), testing::StartsWith(beside + ":1: 'cublas 7': expected the library"));
  EXPECT_TRUE(useAlgorithmsBeside(*device_, "").ok());
}

// What the oracle lists is of no use, and what another library was given neither.
TEST(Products, AFileOfAlgorithmsHasWhatCublasLtListsAndWhatItHadBefore) {
  const ProductAlgorithms before{.library = "cublasLt 7", .byShape = {{"a", {1}}, {"b", {2, 255}}}};
  EXPECT_EQ(productAlgorithmsText(
                "cublasLt 7\na: algorithm 3, bytes 3 0 0 0 0 0 0 0, 1 nodes\nc: cublasGemmEx, 1 nodes\n", before),
            "cublasLt 7\na: algorithm 3, bytes 3 0 0 0 0 0 0 0, 1 nodes\nb: as before, bytes 2 ff 0 0 0 0 0 0\n");
  EXPECT_EQ(productAlgorithmsText("cublasLt 8\na: algorithm 3, bytes 3 0 0 0 0 0 0 0, 1 nodes\n", before),
            "cublasLt 8\na: algorithm 3, bytes 3 0 0 0 0 0 0 0, 1 nodes\n");
  EXPECT_EQ(productAlgorithmsText("cublasLt 7\n", before), "");
  EXPECT_EQ(productAlgorithmsText("c: cublasGemmEx, 1 nodes\n", before), "");
}

TEST_F(StandInDevice, AnIterationThatTakesFarTooLongIsSaidOnce) {
  for (const uint64_t predictedNs : {uint64_t{1'000'000}, uint64_t{100'000'000'000}, uint64_t{0}}) {
    const bool late = predictedNs == 1'000'000;
    for (plan::Variant &variant : plan_.variants)
      variant.predictedNs = predictedNs;
    std::vector<std::string> said;
    std::promise<void> told;
    auto device = makeCudaDevice({.notice = [&](const std::string &notice) {
      said.push_back(notice);
      told.set_value(); // throws the second time
    }});
    ASSERT_TRUE(device.ok()) << device.status();
    runtime_.reset();
    device_ = *std::move(device);
    auto runtime = core::Runtime::load(plan_, *device_, {}, model::syntheticWeights(1).get(), {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    for (int i = 0; i < 2; ++i) {
      stand_in::holdGraphs();
      ASSERT_TRUE(launch(1).ok());
      auto awaited = std::async(std::launch::async, [this] { return runtime_->awaitTokens().status(); });
      if (late && i == 0)
        told.get_future().wait();
      EXPECT_EQ(awaited.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
      stand_in::release();
      EXPECT_TRUE(awaited.get().ok());
    }
    ASSERT_EQ(said.size(), late ? 1u : 0u) << predictedNs;
    if (late) {
      EXPECT_THAT(said[0], testing::HasSubstr("iteration 1 is waited for since 250 ms, more than 30 times what was "
                                              "predicted: another process may have the GPU"));
    }
  }
}

} // namespace
} // namespace headrace::cuda
