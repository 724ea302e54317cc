// SPDX-License-Identifier: Apache-2.0
//
// CUDA kernels that work row by row or element by element.
#include "tests/unit/kernels/Reference.h"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::kernels {
namespace {

constexpr float kPoison = 7.0f;

TestMeta rowsMeta(int64_t rows) { return TestMeta({{0, rows, {1}}}, 1 << 20); }

TEST(CudaEmbed, CopiesTheTokensRowsAddsPositionsAndReadsWhatWasSampled) {
  for (Elem elem : kAllElems)
    for (Order order : kAllOrders)
      for (int64_t hidden : {1, 8, 21, 2064})
        for (bool learned : {false, true}) {
          const int64_t vocab = 37, offset = 2, rows = 5, capacity = 7;
          Matrix table(randomFloats(vocab * hidden, 3), vocab, hidden, elem, order);
          const Floats positionValues = randomFloats((rows + offset) * hidden, 4);
          DeviceArray<uint8_t> tableBytes(table.stored.bytes);
          DeviceStored positions(elem, positionValues);
          const int32_t tokens[] = {0, 36, -1, 16, -3}, expected[] = {0, 36, 15, 16, 20};
          DeviceArray<int32_t> sampled(std::vector<int32_t>{15, 99, 20});
          TestMeta hostMeta = rowsMeta(rows);
          std::copy_n(tokens, rows, hostMeta.ints(hostMeta->tokenIds));
          const int32_t slots[] = {3, 8, 0, 6, 7};
          std::copy_n(slots, rows, hostMeta.ints(hostMeta->kvSlot));
          DeviceMeta meta(hostMeta);
          DeviceArray<float> x(capacity * hidden, kPoison);
          DeviceArray<int32_t> history(9, -7);
          EmbedArgs args{};
          args.history = learned ? history.get() : nullptr;
          args.meta = meta.get(), args.table = tableBytes.get(), args.sampled = sampled.get(), args.x = x.get();
          args.positions = learned ? positions.data() : nullptr, args.positionOffset = offset;
          args.vocab = vocab, args.hidden = hidden, args.elem = elem, args.order = order;
          runOpInTurn(Op::Embed, args, {capacity, 2, 64});
          const Stored stored(elem, positionValues);
          for (int64_t i = 0; i < rows * hidden; ++i) {
            float value = static_cast<float>(table.values[expected[i / hidden] * hidden + i % hidden]);
            if (learned)
              value += stored.value(offset * hidden + i);
            ASSERT_EQ(x[i], value) << "hidden " << hidden << " element " << i;
          }
          for (int64_t i = rows * hidden; i < capacity * hidden; ++i)
            ASSERT_EQ(x[i], kPoison);
          ASSERT_EQ(history.values(),
                    learned ? (std::vector<int32_t>{15, -7, -7, 0, -7, -7, 16, 20, 36}) : std::vector<int32_t>(9, -7));
        }
}

TEST(CudaNorm, MatchesTheReferenceAtEveryLength) {
  for (Elem elem : kAllElems)
    for (int64_t hidden : {1, 7, 8, 100, 1000, 1024, 4096, 8200})
      for (bool layerNorm : {false, true}) {
        const int64_t rows = 3, capacity = 5;
        Floats x = randomFloats(rows * hidden, 5);
        const Floats weight = randomFloats(hidden, 6), bias = randomFloats(hidden, 7);
        for (float &v : x)
          v = v * 3 + 5; // mean 5: the variance must come from differences
        DeviceArray<float> deviceX(x), deviceWeight(weight), deviceBias(bias);
        DeviceArray<int32_t> count(1, static_cast<int32_t>(rows));
        DeviceStored y(elem, capacity * hidden, kPoison);
        NormArgs args{};
        args.count = count.get(), args.x = deviceX.get(), args.weight = deviceWeight.get(), args.y = y.data();
        args.bias = layerNorm ? deviceBias.get() : nullptr, args.hidden = hidden, args.eps = 1e-5f;
        args.activation = elem;
        runOpInTurn(Op::Norm, args, {capacity, 2, 64}, 2);
        const Floats values = y.values();
        for (int64_t t = 0; t < rows; ++t) {
          const auto row = widen(Floats(x.begin() + t * hidden, x.begin() + (t + 1) * hidden));
          const auto expected =
              reference::norm(row, widen(weight), layerNorm ? widen(bias) : reference::Values{}, 1e-5f);
          for (int64_t i = 0; i < hidden; ++i)
            ASSERT_NEAR(values[t * hidden + i], expected[i], 4e-6 + roundingOf(elem) * std::abs(expected[i]))
                << "hidden " << hidden << " row " << t << " element " << i;
        }
        for (int64_t i = rows * hidden; i < capacity * hidden; ++i)
          ASSERT_EQ(values[i], kPoison);
      }
}

TEST(CudaNorm, MayWorkInPlaceAndARowDoesNotDependOnTheOthersOrItsAddress) {
  const int64_t hidden = 45;
  const Floats x = randomFloats(6 * hidden, 5);
  DeviceArray<float> weight(randomFloats(hidden, 6));
  auto run = [&](Floats rows, int64_t shift) {
    DeviceArray<float> inOut(rows.size() + shift, 0.0f);
    std::copy(rows.begin(), rows.end(), inOut.get() + shift);
    DeviceArray<int32_t> count(1, static_cast<int32_t>(rows.size() / hidden));
    NormArgs args{};
    args.count = count.get(), args.x = inOut.get() + shift, args.y = inOut.get() + shift, args.weight = weight.get();
    args.hidden = hidden, args.eps = 1e-5f;
    runOp(Op::Norm, args, {static_cast<int64_t>(rows.size()) / hidden, 1, 64}, 3);
    return Floats(inOut.get() + shift, inOut.get() + shift + rows.size());
  };
  const Floats whole = run(x, 0);
  for (int64_t t = 0; t < 6; ++t) {
    const Floats row = run(Floats(x.begin() + t * hidden, x.begin() + (t + 1) * hidden), t % 4);
    EXPECT_TRUE(sameBits(row.data(), whole.data() + t * hidden, hidden));
  }
}

TEST(CudaActivate, IsSiluOfTheGateTimesUp) {
  for (Elem elem : kAllElems)
    for (int64_t n : {1, 8, 19, 264}) {
      const int64_t rows = 3, capacity = 4;
      Floats gateUp = randomFloats(rows * 2 * n, 4);
      for (float &v : gateUp)
        v *= 20;
      const Stored stored(elem, gateUp);
      DeviceStored in(elem, gateUp), y(elem, capacity * n, kPoison);
      DeviceArray<int32_t> count(1, static_cast<int32_t>(rows));
      const ActivateArgs args{count.get(), in.data(), y.data(), n, elem};
      runOp(Op::Activate, args, {capacity, 2, 64});
      const Floats values = y.values();
      for (int64_t i = 0; i < rows * n; ++i) {
        const int64_t at = i / n * 2 * n + i % n;
        const double expected = reference::silu(stored.value(at)) * stored.value(at + n);
        ASSERT_NEAR(values[i], expected, (3 * 0x1p-23 + roundingOf(elem)) * std::abs(expected) + 1e-7) << i;
      }
      for (int64_t i = rows * n; i < capacity * n; ++i)
        ASSERT_EQ(values[i], kPoison);
    }
}

TEST(CudaActivate, ExtremesHaveTheirLimits) {
  const Floats gates = {0, 1e30f, -1e30f, INFINITY, kNan};
  Floats gateUp = gates;
  gateUp.resize(10, 1.0f);
  DeviceStored in(Elem::F32, gateUp), y(Elem::F32, 5, kPoison);
  DeviceArray<int32_t> count(1, 1);
  runOp(Op::Activate, ActivateArgs{count.get(), in.data(), y.data(), 5, Elem::F32}, {1, 1, 64});
  const Floats values = y.values();
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 1e30f);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], INFINITY);
  EXPECT_TRUE(std::isnan(values[4]));
}

TEST(CudaBiasActivate, AddsTheBiasAndAppliesTheFunctionInPlace) {
  for (Elem elem : kAllElems)
    for (Epilogue epilogue : {Epilogue::None, Epilogue::Relu, Epilogue::Gelu, Epilogue::GeluTanh})
      for (bool biased : {false, true})
        for (int64_t n : {1, 24, 51}) {
          const int64_t rows = 3, capacity = 4;
          Floats x = randomFloats(rows * n, 8);
          for (float &v : x)
            v *= 4;
          Floats padded = x;
          padded.resize(capacity * n, kPoison);
          const Stored stored(elem, x);
          const Stored biasValues(elem, randomFloats(n, 9));
          DeviceStored y(elem, padded);
          DeviceStored bias(elem, randomFloats(n, 9));
          DeviceArray<int32_t> count(1, static_cast<int32_t>(rows));
          const BiasActivateArgs args{count.get(), y.data(), biased ? bias.data() : nullptr, n, capacity,
                                      epilogue,    elem};
          runKernel(cudaLaunch(args), args);
          const Floats values = y.values();
          for (int64_t i = 0; i < rows * n; ++i) {
            const float sum = stored.value(i) + (biased ? biasValues.value(i % n) : 0.0f);
            const double expected = reference::activation(epilogue, sum);
            ASSERT_NEAR(values[i], expected, 2e-6 + roundingOf(elem) * std::abs(expected));
          }
          for (int64_t i = rows * n; i < capacity * n; ++i)
            ASSERT_EQ(values[i], kPoison);
        }
}

// The values of docs/encodings.md, each rounded to the nearest of the type, ties to even; nothing behind them.
TEST(CudaUnpack, HasTheDefinitionsValuesBitForBit) {
  for (const Packing &packing :
       {Packing{8, 32}, Packing{8, 64}, Packing{8, 128}, Packing{4, 32}, Packing{4, 64}, Packing{4, 128}})
    for (Elem elem : kAllElems)
      for (int64_t rows : {1, 16, 19}) {
        SCOPED_TRACE(testing::Message() << "bits " << packing.codeBits << " group " << packing.group << " elem "
                                        << int(elem) << " rows " << rows);
        const int64_t k = 384;
        const PackedMatrix matrix(rows, k, packing, 5, Order::RowMajor);
        DeviceArray<uint8_t> w(matrix.bytes);
        DeviceStored out(elem, (rows + 1) * k, kPoison);
        const UnpackArgs args{w.get(), out.data(), rows, k, packing, elem};
        CudaLaunch launch = cudaLaunch(args);
        launch.grid[0] = 2; // which take the elements in turn
        runKernel(launch, args, rows);
        Floats expected = matrix.values;
        expected.resize((rows + 1) * k, kPoison);
        EXPECT_EQ(out.raw(), Stored(elem, expected).bytes);
      }
}

TEST(CudaGatherRows, CopiesTheSampledRows) {
  for (int64_t hidden : {3, 8, 520}) {
    TestMeta hostMeta({{0, 3, {1}}, {0, 2, {2}}}, 1 << 20);
    hostMeta->numSampled = 2;
    hostMeta.ints(hostMeta->sampleRow)[0] = 2;
    hostMeta.ints(hostMeta->sampleRow)[1] = 4;
    DeviceMeta meta(hostMeta);
    const Floats x = randomFloats(5 * hidden, 1);
    DeviceArray<float> deviceX(x), y(3 * hidden, kPoison);
    runOp(Op::GatherRows, GatherRowsArgs{meta.get(), deviceX.get(), y.get(), hidden}, {5, 3, 64});
    for (int64_t i = 0; i < hidden; ++i) {
      ASSERT_EQ(y[i], x[2 * hidden + i]);
      ASSERT_EQ(y[hidden + i], x[4 * hidden + i]);
      ASSERT_EQ(y[2 * hidden + i], kPoison);
    }
  }
}

TEST(CudaPublish, TokensLieInTheIterationsSlotUnderItsNumber) {
  const int64_t maxSequences = 70;
  std::vector<int32_t> output(maxSequences);
  for (int64_t i = 0; i < maxSequences; ++i)
    output[i] = static_cast<int32_t>(100 + i);
  DeviceArray<int32_t> deviceOutput(output), tokens(kPublishSlots * maxSequences, -7);
  DeviceArray<uint64_t> iterations(kPublishSlots, uint64_t{0});
  for (uint64_t iteration : {1, 2, 7}) {
    TestMeta hostMeta = rowsMeta(1);
    hostMeta->iteration = iteration;
    hostMeta->numSampled = 65;
    DeviceMeta meta(hostMeta);
    const PublishArgs args{meta.get(), meta.get(), deviceOutput.get(), tokens.get(), iterations.get(), maxSequences};
    runKernel(cudaLaunch(args), args);
  }
  EXPECT_EQ(iterations.values(), (std::vector<uint64_t>{0, 1, 2, 7}));
  for (int64_t i = 0; i < kPublishSlots * maxSequences; ++i) {
    const int64_t slot = i / maxSequences, s = i % maxSequences;
    ASSERT_EQ(tokens[i], slot > 0 && s < 65 ? 100 + s : -7) << i;
  }
}

struct RopeCase {
  int64_t heads, kvHeads, headDim;
  bool rotated, normed = false;
};

TEST(CudaRopeAppend, RotatesAndAppendsRoundingOnce) {
  const int64_t blockTokens = 4, rows = 4, capacity = 6;
  int turn = 0;
  for (Elem activation : kAllElems)
    for (Elem kvElem : kAllElems)
      for (const RopeCase &c :
           {RopeCase{3, 2, 22, true}, RopeCase{8, 2, 64, true}, RopeCase{2, 2, 80, true}, RopeCase{5, 5, 7, false},
            RopeCase{3, 1, 128, false}, RopeCase{6, 3, 16, true, true}, RopeCase{4, 2, 18, true, true},
            RopeCase{8, 1, 128, true, true}, RopeCase{5, 5, 7, false, true}, RopeCase{2, 1, 64, false, true}}) {
        SCOPED_TRACE(testing::Message() << "types " << int(activation) << " " << int(kvElem) << " dim " << c.headDim
                                        << (c.normed ? " normed" : ""));
        const int64_t planes = c.heads + 2 * c.kvHeads, blocks = 5;
        Floats frequencies(c.headDim / 2 + 1);
        for (size_t j = 0; j < frequencies.size(); ++j)
          frequencies[j] = static_cast<float>(1 / std::pow(500000.0, 2.0 * j / c.headDim));
        // Positions 2 3 | 4, and 8000 of another sequence: block 3 rows 2 3, block 1 row 0, block 4 row 0.
        std::vector<int32_t> far(2001, 2);
        far[2000] = 4;
        TestMeta hostMeta({{2, 3, {3, 1}}, {8000, 1, far}}, blockTokens, 2001);
        DeviceMeta meta(hostMeta);
        const Floats values = randomFloats(capacity * planes * c.headDim, 7);
        const Stored stored(activation, values);
        // In turn one run, and two in either order.
        const int64_t elements = kvBlockElements(c.kvHeads, blockTokens, c.headDim);
        const KvSegments segments =
            turn % 3 == 0 ? oneRun(blocks, elements) : splitRun(blocks, elements, 2 + turn % 2, 2, turn % 3 == 1);
        ++turn;
        DeviceStored qkv(activation, values), kv(kvElem, segments.end, 99.0f);
        DeviceArray<float> deviceFrequencies(frequencies);
        const Floats weights = randomFloats(2 * c.headDim, 11);
        DeviceArray<float> deviceWeights(weights);
        RopeAppendArgs args{};
        args.meta = meta.get(), args.qkv = qkv.data(), args.kv = kv.data(), args.segments = segments;
        args.inverseFrequencies = c.rotated ? deviceFrequencies.get() : nullptr;
        args.headNorms = c.normed ? deviceWeights.get() : nullptr, args.eps = 1e-2f;
        args.heads = c.heads, args.kvHeads = c.kvHeads, args.headDim = c.headDim, args.blockTokens = blockTokens;
        args.kvElem = kvElem, args.activation = activation;
        runOpInTurn(Op::RopeAppend, args, {capacity, 3, 64}, c.headDim % 4); // several orders
        const Floats out = qkv.values(), cache = kv.values();
        std::vector<bool> written(cache.size());
        const int64_t positions[] = {2, 3, 4, 8000}, block[] = {3, 3, 1, 4}, line[] = {2, 3, 0, 0};
        for (int64_t t = 0; t < rows; ++t)
          for (int64_t plane = 0; plane < planes; ++plane) {
            const int64_t start = (t * planes + plane) * c.headDim;
            reference::Values x;
            for (int64_t d = 0; d < c.headDim; ++d)
              x.push_back(stored.value(start + d));
            if (c.normed && plane < c.heads + c.kvHeads) {
              const auto weight = weights.begin() + (plane < c.heads ? 0 : c.headDim);
              x = reference::norm(x, reference::Values(weight, weight + c.headDim), {}, 1e-2f);
            }
            if (c.rotated && plane < c.heads + c.kvHeads)
              x = reference::rotate(x, frequencies, positions[t]);
            const double exact = c.normed ? 3e-6 : 6e-7,
                         most = c.normed ? 3 : 1.5; // normalised, elements may be above 1
            for (int64_t d = 0; d < c.headDim; ++d) {
              ASSERT_NEAR(out[start + d], x[d], exact + most * roundingOf(activation)) << t << " " << plane << " " << d;
              if (plane < c.heads)
                continue;
              const size_t at = segments.of(block[t]) + ((plane - c.heads) * blockTokens + line[t]) * c.headDim + d;
              ASSERT_NEAR(cache[at], x[d], exact + most * roundingOf(kvElem)) << t << " " << plane << " " << d;
              written[at] = true;
            }
          }
        for (int64_t i = rows * planes * c.headDim; i < capacity * planes * c.headDim; ++i)
          ASSERT_EQ(out[i], stored.value(i));
        const float untouched = Stored(kvElem, Floats{99.0f}).value(0);
        for (size_t i = 0; i < cache.size(); ++i)
          ASSERT_TRUE(written[i] || cache[i] == untouched);
      }
}

TEST(CudaRopeAppend, TheHomeHasTheRowsOfItsBlocksAsTheCacheHasThem) {
  const int64_t blockTokens = 4, blocks = 5;
  for (Elem activation : kAllElems)
    for (Elem kvElem : kAllElems)
      for (const RopeCase &c : {RopeCase{3, 2, 22, true}, RopeCase{8, 2, 64, true}, RopeCase{5, 5, 7, false},
                                RopeCase{6, 3, 16, true, true}}) {
        SCOPED_TRACE(testing::Message() << "types " << int(activation) << " " << int(kvElem) << " dim " << c.headDim);
        TestMeta hostMeta({{2, 3, {3, 1}}, {0, 2, {4}}, {0, 1, {2}}, {0, 1, {0}}}, blockTokens); // the last: padding
        const std::vector<TestSlot> slots = {{3, 2}, {3, 3}, {1, 0}, {4, 0}, {4, 1}, {2, 0}, {0, 0}};
        DeviceMeta meta(hostMeta);
        const Floats values = randomFloats(slots.size() * (c.heads + 2 * c.kvHeads) * c.headDim, 7);
        DeviceArray<float> frequencies(Floats(c.headDim / 2 + 1, 0.25f)), weights(randomFloats(2 * c.headDim, 11));
        const int64_t elements = kvBlockElements(c.kvHeads, blockTokens, c.headDim);
        // Homes whose first block is below the split, at it, above it, and some of no block; some end at the split.
        for (const auto &[split, first, end] : {std::tuple{3, 1, 5},
                                                {3, 3, 5},
                                                {2, 4, 5},
                                                {1, 1, 5},
                                                {5, 2, 5},
                                                {3, 5, 5},
                                                {0, 0, 5},
                                                {3, 1, 3},
                                                {4, 0, 4},
                                                {3, 2, 2}}) {
          const KvSegments segments = splitRun(blocks, elements, split, 2, first % 2 == 0);
          std::vector<uint8_t> without;
          for (bool mirrored : {false, true}) {
            DeviceStored qkv(activation, values), kv(kvElem, segments.end, 99.0f);
            TestHome home(kvElem, blocks, first, elements);
            home.end = end;
            DeviceArray<uint8_t> deviceHome(home.stored.bytes);
            RopeAppendArgs args{};
            args.meta = meta.get(), args.qkv = qkv.data(), args.kv = kv.data(), args.segments = segments;
            args.inverseFrequencies = c.rotated ? frequencies.get() : nullptr;
            args.headNorms = c.normed ? weights.get() : nullptr, args.eps = 1e-2f;
            args.heads = c.heads, args.kvHeads = c.kvHeads, args.headDim = c.headDim, args.blockTokens = blockTokens;
            args.kvElem = kvElem, args.activation = activation;
            if (mirrored) {
              args.home = deviceHome.get() + home.offsetBytes();
              args.homeFirst = first, args.homeEnd = end, args.homeStride = home.stride;
            }
            runOpInTurn(Op::RopeAppend, args, {static_cast<int64_t>(slots.size()), 4, 64}, split);
            if (!mirrored) {
              without = kv.raw();
              continue;
            }
            Stored cache;
            cache.elem = kvElem, cache.bytes = kv.raw();
            ASSERT_EQ(cache.bytes, without);
            ASSERT_EQ(deviceHome.values(),
                      home.expected(cache, segments, slots, 2 * c.kvHeads, blockTokens, c.headDim).bytes);
          }
        }
      }
}

// What rope_append does to q and k, to the bit; of rows and elements behind nothing is written.
TEST(CudaRotate, LeavesTheRowsThatRopeAppendLeaves) {
  const int64_t blockTokens = 4, rows = 4, capacity = 6;
  for (Elem activation : kAllElems)
    for (const RopeCase &c : {RopeCase{3, 2, 22, true}, RopeCase{8, 2, 64, true}, RopeCase{6, 3, 16, true, true},
                              RopeCase{8, 1, 128, true, true}, RopeCase{5, 5, 7, false, true}}) {
      SCOPED_TRACE(testing::Message() << "type " << int(activation) << " dim " << c.headDim);
      TestMeta hostMeta({{2, 3, {3, 1}}, {800, 1, std::vector<int32_t>(201, 2)}}, blockTokens, 201);
      DeviceMeta meta(hostMeta);
      const Floats values = randomFloats(capacity * (c.heads + 2 * c.kvHeads) * c.headDim, 7);
      DeviceArray<float> frequencies(randomFloats(c.headDim / 2 + 1, 3)), weights(randomFloats(2 * c.headDim, 11));
      DeviceStored appended(activation, values), rotated(activation, values);
      const KvSegments segments = oneRun(5, kvBlockElements(c.kvHeads, blockTokens, c.headDim));
      DeviceStored kv(activation, segments.end, 99.0f);
      RopeAppendArgs append{};
      append.meta = meta.get(), append.qkv = appended.data(), append.kv = kv.data(), append.segments = segments;
      append.inverseFrequencies = c.rotated ? frequencies.get() : nullptr;
      append.headNorms = c.normed ? weights.get() : nullptr, append.eps = 1e-2f;
      append.heads = c.heads, append.kvHeads = c.kvHeads, append.headDim = c.headDim, append.blockTokens = blockTokens;
      append.kvElem = append.activation = activation;
      runOpInTurn(Op::RopeAppend, append, {capacity, 3, 64});
      RotateArgs rotate{};
      rotate.meta = meta.get(), rotate.qkv = rotated.data();
      rotate.inverseFrequencies = append.inverseFrequencies, rotate.headNorms = append.headNorms, rotate.eps = 1e-2f;
      rotate.heads = c.heads, rotate.kvHeads = c.kvHeads, rotate.headDim = c.headDim, rotate.activation = activation;
      runOpInTurn(Op::Rotate, rotate, {capacity, 3, 64}, c.headDim % 4);
      EXPECT_EQ(rotated.raw(), appended.raw());
      EXPECT_NE(rotated.raw(), Stored(activation, values).bytes);
      // The host then appends what the device has appended, where elements are kept in the rows' type.
      AppendArgs onHost{};
      std::vector<uint8_t> rowsThere = rotated.raw(), cache = Stored(activation, Floats(segments.end, 99.0f)).bytes;
      onHost.meta = hostMeta.get(), onHost.qkv = rowsThere.data(), onHost.kv = cache.data(), onHost.segments = segments;
      onHost.heads = c.heads, onHost.kvHeads = c.kvHeads, onHost.headDim = c.headDim, onHost.blockTokens = blockTokens;
      onHost.kvElem = onHost.activation = activation;
      hostKernel(Op::Append)(&onHost);
      EXPECT_EQ(cache, kv.raw());
      EXPECT_EQ(hostMeta->numTokens, rows);
    }
}

// Three rows of six: rows of whole pieces, of pieces and a rest, and of no piece; at addresses of pieces, and at
// others.
TEST(CudaFetchRows, CopiesTheRowsThatThereAre) {
  TestMeta hostMeta({{0, 3, {1}}}, 16);
  DeviceMeta meta(hostMeta);
  for (Elem elem : kAllElems)
    for (const int64_t columns : {8, 3, 520, 1})
      for (const size_t moved : {size_t{0}, size_t{4}}) {
        const size_t size = elem == Elem::F32 ? 4 : 2, row = static_cast<size_t>(columns) * size;
        std::vector<uint8_t> bytes(6 * row + moved);
        for (size_t i = 0; i < bytes.size(); ++i)
          bytes[i] = static_cast<uint8_t>(31 * i + i / 251);
        DeviceArray<uint8_t> x(bytes), y(bytes.size(), uint8_t{7});
        FetchRowsArgs args{};
        args.meta = meta.get(), args.x = x.get() + moved, args.y = y.get() + moved;
        args.columns = columns, args.activation = elem;
        runOp(Op::FetchRows, args, {6, 6, 64}, columns % 3);
        std::vector<uint8_t> expected(bytes.size(), 7);
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(moved), 3 * row,
                    expected.begin() + static_cast<std::ptrdiff_t>(moved));
        EXPECT_EQ(y.values(), expected) << "type " << int(elem) << ", rows of " << columns << ", from " << moved;
      }
}

// More tokens than two blocks have threads, by two blocks in turn and by as many as the launch has: as the host's
// kernel keeps them, and nothing beyond the tokens that there are.
TEST(CudaKeepIds, KeepsEachTokensIdAsTheHostDoes) {
  for (const int64_t rows : {0, 1, 256, 700}) {
    const int64_t capacity = 800;
    TestMeta hostMeta({{5, capacity, {0}}}, 1024);
    hostMeta->numTokens = static_cast<int32_t>(rows);
    for (int32_t t = 0; t < capacity; ++t) {
      hostMeta.ints(hostMeta->tokenIds)[t] = t % 4 == 1 ? -1 - t % 3 : 3 * t + 1;
      hostMeta.ints(hostMeta->kvSlot)[t] = 1023 - t;
    }
    const std::vector<int32_t> last = {21, 22, 23};
    std::vector<int32_t> wanted(1024, -7);
    const KeepIdsArgs onHost{hostMeta.get(), last.data(), wanted.data()};
    hostKernel(Op::KeepIds)(&onHost);
    EXPECT_EQ(std::count(wanted.begin(), wanted.end(), -7), 1024 - rows);
    DeviceMeta meta(hostMeta);
    DeviceArray<int32_t> sampled(last), history(1024, -7), inTurn(1024, -7);
    runOp(Op::KeepIds, KeepIdsArgs{meta.get(), sampled.get(), history.get()}, {capacity, 8, 1024});
    EXPECT_EQ(history.values(), wanted) << rows;
    runOpInTurn(Op::KeepIds, KeepIdsArgs{meta.get(), sampled.get(), inTurn.get()}, {capacity, 8, 1024}, 3);
    EXPECT_EQ(inTurn.values(), wanted) << rows;
  }
}

} // namespace
} // namespace headrace::kernels
