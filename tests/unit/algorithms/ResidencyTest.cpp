// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/Residency.h"

#include <random>

#include "passes/algorithms/AssignSlots.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Residency parsed(std::string_view text) {
  std::string error;
  const std::optional<Residency> residency = residencyFromText(text, error);
  EXPECT_TRUE(residency.has_value()) << error;
  return residency.value_or(Residency());
}

std::string refused(std::string_view text) {
  std::string error;
  EXPECT_FALSE(residencyFromText(text, error).has_value()) << text;
  return error;
}

TEST(Residency, IsReadFromItsText) {
  const Residency r = parsed("weights=0,4-6 kv=1 start=ahead-2 slots=2 mixed-cut=3+512");
  EXPECT_THAT(r.weightsAway(), ElementsAre(0, 4, 5, 6));
  EXPECT_TRUE(r.isAway({MovableKind::Kv, 1}));
  EXPECT_FALSE(r.isAway({MovableKind::Kv, 0}));
  EXPECT_FALSE(r.isAway({MovableKind::Act, 1}));
  EXPECT_EQ(r.start, ahead(2));
  EXPECT_EQ(r.weights().slots(), 2);
  EXPECT_EQ(r.wrap.mixed, (Cut{3, 512}));
  EXPECT_FALSE(r.wrap.decode.has_value());
  EXPECT_TRUE(r.wrap.around);
  EXPECT_TRUE(parsed("").nothingAway());
  EXPECT_EQ(parsed("").start, kEager);
  EXPECT_TRUE(parsed("  wrap   one-cut ").wrap.oneCut);
}

TEST(Residency, HowTailsGetHomeIsSaidByClass) {
  const Residency none = parsed("kv=0-3@2"), all = parsed("kv=0-3@0 decode-write-back=mirror mixed-write-back=all");
  EXPECT_FALSE(none.kv().writesBack());
  EXPECT_EQ(none.slotsOf(MovableKind::Kv), 2);
  EXPECT_EQ(all.kv().decodeBack, WriteBack::Mirror);
  EXPECT_EQ(all.kv().mixedBack, WriteBack::All);
  EXPECT_EQ(all.firstKvBlockAway(), 0);
  EXPECT_TRUE(all.kv().writesBack());
  EXPECT_EQ(all.slotsOf(MovableKind::Kv), 2);
  EXPECT_FALSE(parsed("kv=0 decode-write-back=mirror").kv().writesBack());
  EXPECT_EQ(parsed("kv=0 decode-write-back=dirty kv-slots=5").slotsOf(MovableKind::Kv), 5);
  EXPECT_EQ(toText(parsed("decode-write-back=dirty mixed-write-back=mirror")),
            "start=eager decode-write-back=dirty mixed-write-back=mirror");
}

TEST(Residency, WhatIsNoTextOfOneIsNamed) {
  for (const char *text : {"weights=",
                           "weights=1-",
                           "weights=2,1",
                           "weights=1,1",
                           "weights=3-2",
                           "weights=-1",
                           "weights=0-99999999999",
                           "layers=1",
                           "start=late",
                           "start=ahead",
                           "start=ahead--1",
                           "start=ahead-x",
                           "slots=-1",
                           "slots=two",
                           "ring=1KiB",
                           "decode-write-back=",
                           "decode-write-back=auto",
                           "mixed-write-back=Dirty",
                           "decode-cut=",
                           "decode-cut=1+",
                           "decode-cut=+1",
                           "mixed-cut=1+2+3",
                           "wrap=1",
                           "one-cut=0",
                           "paper"})
    EXPECT_THAT(refused(text), HasSubstr("has '" + std::string(text) + "', expected weights=")) << text;
  EXPECT_EQ(refused("slots=1 slots=1"), "says 'slots' twice");
}

TEST(Residency, AnyOneIsReadBackFromWhatItPrints) {
  std::mt19937 generator(7);
  const auto below = [&](uint32_t n) { return static_cast<int32_t>(generator() % n); };
  for (int i = 0; i < 2000; ++i) {
    Residency r;
    for (int32_t index = 0; index < 12; ++index)
      for (const MovableKind kind : {MovableKind::Weight, MovableKind::Kv, MovableKind::Act})
        if (below(3) == 0)
          r.away.push_back({{kind, index}});
    std::sort(r.away.begin(), r.away.end(), [](const Extent &a, const Extent &b) { return a.of < b.of; });
    r.start = below(3) == 0 ? kPaper : below(2) == 0 ? kEager : ahead(below(4));
    if (below(2) == 0)
      r.weights().setSlots(below(3));
    else
      r.weights().setRing(1 + static_cast<uint64_t>(below(100000)));
    r.wrap.around = below(2) == 0;
    if (r.wrap.around && below(2) == 0)
      r.wrap.decode = Cut{static_cast<size_t>(below(5)), static_cast<uint64_t>(below(1000))};
    if (r.wrap.around && below(2) == 0)
      r.wrap.mixed = Cut{static_cast<size_t>(below(5)), static_cast<uint64_t>(below(1000))};
    r.wrap.oneCut = below(4) == 0;
    if (below(2) == 0)
      r.kv().setSlots(below(3));
    else
      r.kv().setPlaces(1 + below(3), below(2) == 0 ? std::nullopt
                                                   : std::optional(SwapVisits{1 + below(3), 1 + below(3),
                                                                              below(2) == 0 ? 1000 : 1 + below(1000)}));
    r.residuals().setSlots(below(4));
    ASSERT_EQ(parsed(toText(r)), r) << toText(r);
  }
}

TEST(Residency, SetsWeightsAndKeepsTheRest) {
  Residency r = parsed("weights=1-3 act=0 kv=2");
  r.setWeightsAway({9, 4, 9});
  EXPECT_EQ(toText(r), "weights=4,9 kv=2 act=0 start=eager");
  r.setWeightsAway({});
  EXPECT_EQ(toText(r), "kv=2 act=0 start=eager");
}

TEST(Residency, SaysWhatContradictsItself) {
  EXPECT_EQ(contradictionIn(parsed("residual-slots=1 weights=1 ring=512 kv=0-3@1")), "");
  EXPECT_EQ(contradictionIn(parsed("residual-slots=3 start=ahead-1")),
            "moves residual streams under the rule eager only, not under ahead-1");
  EXPECT_EQ(contradictionIn(parsed("residual-slots=3 kv=0-3@1 kv-places=2")),
            "keeps residual streams on the device where tails of caches cycle through places");
  EXPECT_EQ(contradictionIn(parsed("weights=1 slots=2 wrap")), "");
  EXPECT_EQ(contradictionIn(parsed("weights=1 ring=512 decode-cut=1")), "");
  EXPECT_EQ(refused("weights=1 slots=2 ring=512"),
            "has either item-sized slots or a ring, got 2 slots and a ring of 512 bytes");
  EXPECT_EQ(contradictionIn(parsed("weights=1 ring=512 start=paper")),
            "has item-sized slots under the rule paper, not a ring");
  EXPECT_EQ(contradictionIn(parsed("weights=1 slots=1 wrap start=paper")),
            "states no cut under the rule paper: nothing wraps around");
  EXPECT_EQ(contradictionIn(parsed("weights=1 decode-cut=1 start=ahead-1")),
            "states no cut under the rule ahead-1, which says itself what is there on entry");
}

TEST(Residency, PlacesAreFewerThanWhatCyclesThroughThem) {
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=6")), "");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=2 weights=1 slots=2 decode-cut=1 mixed-cut=1")), "");
  EXPECT_EQ(refused("kv=0-6@3 kv-places=3 kv-slots=2"),
            "has either slots or places for tails of caches, got 2 slots and 3 places");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=1")),
            "needs at least two places for tails of caches, one is filled while the other is in use, got 1");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=3 weights=1,2 slots=2 decode-cut=1 mixed-cut=1+256")),
            "is cut alike in all iterations of a cycle, got decode-cut=1 and mixed-cut=1+256");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=3 decode-write-back=dirty")), "");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=3 decode-write-back=all mixed-write-back=all")), "");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@3 kv-places=3 mixed-write-back=all")),
            "writes tails that cycle back as they are given up (all) in iterations of both classes or of none, got "
            "decode-write-back=mirror and mixed-write-back=all");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@0 kv-places=3 kv-fifo=3/2")), "");
  EXPECT_EQ(refused("kv=0-6@0 kv-fifo=3/2"), "swaps tails first in, first out through places, got none");
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@0 kv-places=3 kv-fifo=3/0")),
            "swaps tails while one layer computes, or more, got 3 in and 0 out");
  EXPECT_EQ(toText(parsed("kv=0-6@0 kv-places=3 kv-fifo=3/2")), "kv=0-6 start=eager kv-places=3 kv-fifo=3/2");
  EXPECT_EQ(toText(parsed("kv=0-6@0 kv-places=3 kv-fifo=3/2/841")), "kv=0-6 start=eager kv-places=3 kv-fifo=3/2/841");
  EXPECT_EQ(parsed("kv=0-6@0 kv-places=3 kv-fifo=3/2/1000"), parsed("kv=0-6@0 kv-places=3 kv-fifo=3/2"));
  EXPECT_EQ(contradictionIn(parsed("kv=0-6@0 kv-places=3 kv-fifo=3/2/1001")),
            "swaps tails with 1 to 1000 thousandths of a direction's rate while both are at work, got 1001");
  EXPECT_TRUE(parsed("kv=0-6@3 kv-places=6").cycles());
  EXPECT_TRUE(parsed("kv=0-6@3 kv-places=6").wrapsAround());
  EXPECT_FALSE(parsed("kv=0-6@3").cycles());
}

TEST(Residency, SomethingIsThereOnEntryWhereItWraps) {
  EXPECT_TRUE(parsed("weights=1 wrap").wrapsAround());
  EXPECT_TRUE(parsed("weights=1 start=ahead-1").wrapsAround());
  EXPECT_FALSE(parsed("weights=1 start=ahead-0").wrapsAround());
  EXPECT_FALSE(parsed("weights=1 start=paper").wrapsAround());
  EXPECT_FALSE(parsed("wrap").wrapsAround());
}

// Three items of 100 bytes. In a line item 2 takes item 0's slot; on a circle of two slots it would lie beside item 0,
// which comes next in the same slot, so there are three.
TEST(Residency, ItsStartAsksForSlotsInALineOrInACircle) {
  const std::vector<uint64_t> items = {100, 100, 100};
  const auto slots = [&](std::string_view text, bool neighbours) {
    return assignSlots(parsed(text), items, neighbours).slotBytes.size();
  };
  EXPECT_EQ(slots("start=paper", false), 1u);
  EXPECT_EQ(slots("start=paper", true), 2u);
  EXPECT_EQ(slots("start=eager", false), 3u);
  EXPECT_EQ(slots("start=eager slots=1", false), 1u);
  EXPECT_EQ(slots("start=ahead-0", true), 1u);
  EXPECT_EQ(slots("start=ahead-1", true), 1u);
  EXPECT_EQ(slots("start=ahead-2", false), 3u);
  EXPECT_EQ(slots("start=ahead-3", false), 3u);
}

} // namespace
} // namespace headrace::algorithms
