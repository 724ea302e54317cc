// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/Choice.h"

#include <gmock/gmock.h>

#include "compiler/choice/Candidate.h"

namespace headrace::compiler {
namespace {

using testing::HasSubstr;

Choice parsed(std::string_view text) {
  std::string error;
  const std::optional<Choice> choice = choiceFromText(text, error);
  EXPECT_TRUE(choice.has_value()) << text << ": " << error;
  return choice.value_or(Choice());
}

std::string refused(std::string_view text) {
  std::string error;
  EXPECT_FALSE(choiceFromText(text, error).has_value()) << text;
  return error;
}

TEST(Choice, SaysWhatIsNotAsByDefault) {
  EXPECT_EQ(toText(Choice()), "start=eager");
  EXPECT_EQ(parsed(""), Choice());
  const char *all = "mini-batches=4 act-ratio=1/3 kv-blocks=150 new-tokens=1,8 sequences=8 contexts=256,2048 "
                    "largest-chunk=8192 weight-encoding=qkv=q8,head=q4:32 kv-dtype=q8 weights=0,4-7 kv=0-3@33 act=2 "
                    "start=eager slots=2 kv-slots=3 residual-slots=3";
  const Choice choice = parsed(all);
  EXPECT_EQ(toText(choice), all);
  EXPECT_EQ(choice.miniBatches, 4);
  EXPECT_EQ(choice.actRatio, (model::ActRatio{1, 3}));
  EXPECT_EQ(choice.kvBlocks, 150);
  EXPECT_EQ(choice.buckets.newTokens, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(choice.buckets.sequences, (std::vector<int64_t>{8}));
  EXPECT_EQ(choice.buckets.contexts, (std::vector<int64_t>{256, 2048}));
  EXPECT_EQ(choice.largestChunk, 8192);
  EXPECT_EQ(choice.encodings.weights[model::UnitRole::Head], model::Encoding::groups(4, 32));
  EXPECT_EQ(choice.encodings.weights[model::UnitRole::Down], std::nullopt);
  EXPECT_EQ(choice.encodings.kv, model::Encoding::groups(8));
  EXPECT_EQ(choice.residency.weightsAway(), (std::vector<int32_t>{0, 4, 5, 6, 7}));
  EXPECT_TRUE(choice.residency.movesBack());
}

// Each of its entries sets it apart.
TEST(Choice, ComparesAllOfIt) {
  const std::string base = "mini-batches=4 act-ratio=1/3 kv-blocks=150 new-tokens=1,8 sequences=8 contexts=256 "
                           "largest-chunk=8192 weight-encoding=q4 kv-dtype=q8 weights=0,4-7 kv=0-3@33 act=2 slots=2 "
                           "kv-slots=3 residual-slots=3 "
                           "decode-write-back=dirty wrap";
  const Choice choice = parsed(base);
  EXPECT_EQ(parsed(base), choice);
  for (const auto &[from, to] : std::vector<std::pair<std::string, std::string>>{{"batches=4", "batches=2"},
                                                                                 {"1/3", "1/2"},
                                                                                 {"150", "151"},
                                                                                 {"=1,8", "=1,9"},
                                                                                 {"ces=8", "ces=4"},
                                                                                 {"=256", "=512"},
                                                                                 {"=8192", "=4096"},
                                                                                 {"encoding=q4", "encoding=up=q4"},
                                                                                 {"weight-encoding=q4 ", ""},
                                                                                 {"dtype=q8", "dtype=f16"},
                                                                                 {"4-7", "4-8"},
                                                                                 {"@33", "@34"},
                                                                                 {"act=2", "act=1"},
                                                                                 {" slots=2", " slots=3"},
                                                                                 {"kv-slots=3", "kv-slots=4"},
                                                                                 {"residual-slots=3", ""},
                                                                                 {"dirty", "all"},
                                                                                 {"wrap", ""}}) {
    std::string other = base;
    other.replace(other.find(from), from.size(), to);
    EXPECT_FALSE(parsed(other) == choice) << other;
    EXPECT_FALSE((Candidate{choice, "a"}.samePlacement(parsed(other)))) << other;
    EXPECT_NE(toText(parsed(other)), toText(choice)) << other;
  }
  EXPECT_TRUE((Candidate{choice, "a"}.samePlacement(Candidate{choice, "b"}))); // whatever its name
}

TEST(Choice, WhatIsNoTextOfOneIsNamed) {
  for (const char *text : {"mini-batches=0",      "mini-batches=x",   "mini-batches",    "act-ratio=0",
                           "act-ratio=auto",      "act-ratio=2",      "kv-blocks=0",     "kv-blocks=-1",
                           "new-tokens=8,1",      "sequences=",       "contexts=0",      "sequences=1,1",
                           "contexts=1,",         "largest-chunk=0",  "largest-chunk=x", "weight-encoding=q3",
                           "weight-encoding=f16", "weight-encoding=", "kv-dtype=q4:32",  "kv-dtype=auto",
                           "attention=device",    "attention=gpu"}) {
    EXPECT_THAT(refused(text), HasSubstr(std::string("has '") + text + "'"));
    EXPECT_THAT(refused(text), HasSubstr("act-ratio=A/B above 0")) << text;
  }
  EXPECT_EQ(refused("mini-batches=2 mini-batches=2"), "says 'mini-batches' twice");
  EXPECT_EQ(refused("sequences=1 slots=2 sequences=4"), "says 'sequences' twice");
  EXPECT_EQ(refused("slots=2 slots=3"), "says 'slots' twice");
  EXPECT_THAT(refused("experts=2"), HasSubstr("has 'experts=2'"));
}

TEST(Choice, HasMoreBlocksThanAreAwayFromOneOn) {
  EXPECT_EQ(contradictionIn(parsed("kv-blocks=150")), ""); // none away
  EXPECT_EQ(contradictionIn(parsed("kv=0-3@33 kv-blocks=34")), "");
  EXPECT_EQ(contradictionIn(parsed("kv=0-3@33 kv-blocks=33")),
            "has more blocks of a cache than are away from one on, got 33 and block 33");
  Choice none;
  none.miniBatches = 0;
  EXPECT_EQ(contradictionIn(none), "has at least one mini-batch, got 0");
  none = {};
  none.largestChunk = 0;
  EXPECT_EQ(contradictionIn(none), "has a largest chunk of at least one token, got 0");
  EXPECT_THAT(contradictionIn(parsed("kv=0-3@33 start=paper")), HasSubstr("under the rule eager only"));
}

TEST(Choice, HasNoActivationBlocksBesidePlaces) {
  EXPECT_EQ(contradictionIn(parsed("act-ratio=1/3 kv=0-3@33 kv-slots=3")), "");
  EXPECT_EQ(contradictionIn(parsed("act-ratio=1/3 kv-places=3")), ""); // nothing is away that could cycle
  EXPECT_EQ(contradictionIn(parsed("act-ratio=1/3 kv=0-3@33 kv-places=3")),
            "has activation blocks or places for tails of caches, got act-ratio=1/3 and kv-places=3: how many "
            "activation blocks there are, and their home, is fixed for the whole plan");
}

TEST(Choice, AttendsOnTheCpuToCachesThatAreWhollyOnTheHost) {
  const char *all = "mini-batches=2 attention=cpu kv=0-3 start=eager";
  EXPECT_EQ(toText(parsed(all)), all);
  EXPECT_TRUE(parsed(all).attendsOnCpu);
  EXPECT_NE(parsed(all), parsed("mini-batches=2 kv=0-3"));
  EXPECT_EQ(contradictionIn(parsed(all)), "");
  EXPECT_EQ(contradictionIn(parsed("attention=cpu kv=0-3 weights=1-4 ring=60000 wrap mixed-write-back=dirty")), "");
  for (const char *some : {"attention=cpu", "attention=cpu kv=0-3@2"})
    EXPECT_EQ(contradictionIn(parsed(some)), "attends on the CPU to caches that are wholly at home on the host, got "
                                             "attention=cpu with blocks of them on the device")
        << some;
  EXPECT_EQ(contradictionIn(parsed("attention=cpu kv=0-3 act-ratio=1/2")),
            "attends on the CPU beside --act-ratio: the CPU has no keys and values of activation blocks");
  EXPECT_THAT(contradictionIn(parsed("attention=cpu kv=0-3 kv-places=3")), HasSubstr("attends on the CPU beside "));
  EXPECT_THAT(contradictionIn(parsed("attention=cpu kv=0-3 residual-slots=3")),
              HasSubstr("residual streams stay between the halves of a layer"));
  EXPECT_TRUE(alike(Candidate{parsed("kv=0-3"), "its name"}, parsed(all)).attendsOnCpu);
}

TEST(Choice, MovesActivationBlocksUnderTheRuleEagerOnly) {
  EXPECT_EQ(contradictionIn(parsed("act-ratio=1/3 act=2")), "");
  EXPECT_EQ(contradictionIn(parsed("act-ratio=1/3 weights=1-4 slots=1 start=paper")), ""); // they are on the device
  EXPECT_EQ(contradictionIn(parsed("act-ratio=1/3 act=2 weights=1-4 slots=2 start=ahead-1")),
            "moves activation blocks under the rule eager only, not under ahead-1");
}

// Weights, caches and their blocks are a placement's own.
TEST(Choice, PlacementsOfAPlanHaveTheRestAlike) {
  const Choice common = parsed("mini-batches=4 act-ratio=1/3 sequences=8 largest-chunk=4096 kv-dtype=q4 act=2 "
                               "residual-slots=3");
  Candidate candidate{parsed("kv-blocks=150 weight-encoding=q8 weights=0 kv=0-3@33 act=0 slots=2 kv-slots=3"),
                      "its name"};
  candidate = alike(candidate, common);
  EXPECT_EQ(toText(candidate),
            "mini-batches=4 act-ratio=1/3 kv-blocks=150 sequences=8 largest-chunk=4096 kv-dtype=q4 weights=0 "
            "kv=0-3@33 act=2 start=eager slots=2 kv-slots=3 residual-slots=3");
  EXPECT_EQ(candidate.name, "its name");
  EXPECT_FALSE(candidate.offloadsNothing());
  EXPECT_TRUE(alike({}, common).offloadsNothing()); // of what placements differ by
}

} // namespace
} // namespace headrace::compiler
