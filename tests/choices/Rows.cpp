// SPDX-License-Identifier: Apache-2.0
#include "tests/choices/Rows.h"

namespace headrace::choices {
namespace {

// clang-format off
constexpr Row kRows[] = {
    // name, in, out, choices, goal, heads
    // Weights.
    {"slots", "weights", "", "weights=5-8,13-16 slots=2"},
    {"slots_wrap", "weights", "", "weights=1-20 slots=2 wrap"},
    {"slots_of_single_units", "weights", "", "weights=2,7-8,12,18 slots=2 wrap"},
    {"one_slot", "weights", "", "weights=1-20 slots=1 wrap"},
    {"paper", "weights", "", "weights=5-8,13-16 slots=1 start=paper"},
    {"paper_of_all_layers", "weights", "", "weights=1-20 slots=2 start=paper"},
    {"ahead_0", "weights", "", "weights=1-20 slots=1 start=ahead-0"},
    {"ahead_1", "weights", "", "weights=1-20 slots=2 start=ahead-1"},
    {"ahead_2", "weights", "", "weights=5-20 slots=3 start=ahead-2"},
    {"ring", "weights", "", "weights=1-20 ring=120000"},
    {"ring_wrap", "weights", "", "weights=1,3-7,10-20 ring=120000 wrap"},
    {"ring_with_cuts", "weights", "", "weights=1-20 ring=120000 decode-cut=1+4096 mixed-cut=1"},
    {"slots_with_one_cut", "weights", "", "weights=1-20 slots=2 wrap one-cut"},
    {"embedding", "table", "", "weights=0 slots=1", {}, Heads::Own},
    {"embedding_that_is_the_head", "table weights", "", "weights=0 slots=1 wrap", {}, Heads::Tied},
    {"head", "weights", "", "weights=21 slots=1", {}, Heads::Own},
    {"all_units", "table weights", "", "weights=0-21 slots=2 wrap", {}, Heads::Own},
    {"all_units_ring", "table weights", "", "weights=0-21 ring=120000 wrap", {}, Heads::Own},
    // Tails of caches.
    {"kv_2_slots", "kv", "rows", "kv=0-4@3 kv-slots=2 wrap"},
    {"kv_3_slots", "kv", "rows", "kv=0-4@2 kv-slots=3"},
    {"kv_4_slots", "kv", "rows", "kv=0-4@4 kv-slots=4 wrap"},
    {"kv_all_away", "kv", "rows", "kv=0-4"},
    {"kv_back_all", "kv", "kv", "kv=0-4@3 decode-write-back=all mixed-write-back=all wrap"},
    {"kv_back_dirty", "kv", "kv", "kv=0-4@3 decode-write-back=dirty mixed-write-back=dirty"},
    {"kv_back_by_class", "kv", "kv rows",
     "kv=0-4@1 kv-slots=3 decode-write-back=mirror mixed-write-back=dirty wrap"},
    {"kv_back_by_class_too", "kv", "kv", "kv=0-4 decode-write-back=dirty mixed-write-back=all"},
    {"places_2", "kv", "rows", "kv=0-4@3 kv-places=2 wrap"},
    {"places_4", "kv", "kv", "kv=0-4@2 kv-places=4 decode-write-back=all mixed-write-back=all"},
    {"places_3_dirty", "kv", "kv", "kv=0-4 kv-places=3 decode-write-back=dirty mixed-write-back=dirty wrap"},
    {"fifo", "kv", "kv", "kv=0-4 kv-places=4 kv-fifo=1/1 decode-write-back=all mixed-write-back=all"},
    {"fifo_slow", "kv", "kv", "kv=0-4 kv-places=3 kv-fifo=1/2 decode-write-back=all mixed-write-back=all"},
    {"fifo_turns", "kv", "kv", "kv=0-4 kv-places=4 kv-fifo=9/9/800 decode-write-back=all mixed-write-back=all"},
    // Activations, and what passes from layer to layer.
    {"acts", "", "", "act-ratio=1/2"},
    {"acts_on_the_host", "acts", "acts", "act-ratio=1/2 act=0-4"},
    {"acts_of_some_layers", "acts", "acts", "act-ratio=1/3 act=1,3"},
    {"acts_alone", "acts", "acts", "act-ratio=1/1 act=0-4"},
    {"residuals", "residuals", "residuals", "residual-slots=3"},
    {"mini_batches_2", "", "", "mini-batches=2", {.batch = 4}},
    {"mini_batches_4", "weights", "", "mini-batches=4 weights=1-20 slots=2 wrap", {.batch = 4}},
    // Two mechanisms, or three.
    {"weights_kv", "weights kv", "rows", "weights=5-8,13-16 slots=2 kv=0-4@3 wrap"},
    {"ring_kv", "weights kv", "rows", "weights=1-4,6,9-20 ring=120000 kv=0-4@3 kv-slots=3 wrap"},
    {"ring_kv_back", "weights kv", "kv",
     "weights=1-20 ring=120000 kv=0-4@2 decode-write-back=dirty mixed-write-back=all wrap"},
    {"ring_places", "weights kv", "rows", "weights=2,6,10,14 ring=60000 kv=0-4@3 kv-places=3 wrap"},
    {"ring_fifo", "weights kv", "kv",
     "weights=2,6,10,14 ring=60000 kv=0-4 kv-places=4 kv-fifo=1/1 decode-write-back=all mixed-write-back=all wrap"},
    {"weights_places_back", "weights kv", "kv",
     "weights=5-8,13-16 slots=2 kv=0-4@2 kv-places=4 decode-write-back=dirty mixed-write-back=dirty wrap"},
    {"weights_acts", "weights", "", "weights=1-20 slots=2 act-ratio=1/2 wrap"},
    {"ring_acts_on_the_host", "weights acts", "acts", "weights=1-20 ring=120000 act-ratio=1/2 act=0-4 wrap"},
    {"paper_acts", "weights", "", "weights=5-8,13-16 slots=1 start=paper act-ratio=1/2"},
    {"acts_kv", "kv acts", "acts rows", "act-ratio=1/2 act=1,3 kv=0-4@2 wrap"},
    {"acts_kv_back", "kv acts", "acts kv",
     "act-ratio=1/3 act=0-4 kv=0-4@1 decode-write-back=dirty mixed-write-back=dirty"},
    {"residuals_weights", "weights residuals", "residuals", "weights=5-8,13-16 slots=2 residual-slots=3 wrap"},
    {"residuals_ring_acts", "weights acts residuals", "acts residuals",
     "weights=1-20 ring=120000 residual-slots=3 act-ratio=1/2 act=0-4 wrap"},
    {"residuals_kv_back", "kv residuals", "kv residuals",
     "residual-slots=3 kv=0-4@3 decode-write-back=dirty mixed-write-back=dirty"},
    {"mini_batches_paper", "weights", "", "mini-batches=2 weights=5-8,13-16 slots=1 start=paper", {.batch = 4}},
    {"mini_batches_kv", "kv", "rows", "mini-batches=2 kv=0-4@2 kv-slots=4 wrap", {.batch = 4}},
    {"mini_batches_kv_back", "kv", "kv",
     "mini-batches=4 kv=0-4@1 decode-write-back=all mixed-write-back=dirty", {.batch = 4}},
    {"mini_batches_places", "kv", "rows", "mini-batches=2 kv=0-4@2 kv-places=6 wrap", {.batch = 4}},
    {"mini_batches_weights_residuals", "weights residuals", "residuals",
     "mini-batches=4 weights=1-20 slots=2 residual-slots=3 wrap", {.batch = 4}},
    {"mini_batches_acts_residuals", "acts residuals", "acts residuals",
     "mini-batches=2 residual-slots=4 act-ratio=1/2 act=0-4", {.batch = 4}},
    {"zig_zag", "weights kv residuals", "kv residuals",
     "mini-batches=2 weights=1-20 slots=2 kv=0-4 residual-slots=3 decode-write-back=dirty "
     "mixed-write-back=dirty wrap", {.batch = 4}},
    // Attention on the CPU, in iterations that only decode.
    {"cpu", "kv attended", "rows qkv meta", "kv=0-4 attention=cpu"},
    {"cpu_weights", "weights kv attended", "rows qkv meta", "kv=0-4 attention=cpu weights=5-8,13-16 slots=2 wrap"},
    {"cpu_ring", "weights kv attended", "rows qkv meta", "kv=0-4 attention=cpu weights=1-20 ring=120000 wrap"},
    {"cpu_ring_kv_back", "weights kv attended", "kv qkv meta",
     "kv=0-4 attention=cpu mixed-write-back=dirty weights=1-20 ring=120000 wrap"},
    {"cpu_mini_batches", "weights kv attended", "rows qkv meta",
     "mini-batches=2 kv=0-4 attention=cpu weights=1-20 slots=2", {.batch = 4}},
    {"cpu_mini_batches_kv_back", "kv attended", "kv qkv meta",
     "mini-batches=4 kv=0-4 kv-slots=3 attention=cpu mixed-write-back=all wrap", {.batch = 4}},
    {"cpu_change", "weights kv attended", "rows qkv meta",
     "kv=0-4 attention=cpu weights=1-20 slots=2 wrap"
     " | kv=0-4 attention=cpu"},
    // Changes while requests run.
    {"change_weights", "weights", "",
     "weights=1-20 slots=1 start=paper"
     " | weights=5-8,13-16 slots=1 start=paper"
     " | "},
    {"change_rule", "weights", "",
     "weights=1-20 slots=2 wrap"
     " | weights=2,7,12 ring=60000 wrap"
     " | weights=5-8 slots=2 start=ahead-1"},
    {"change_split", "kv", "rows",
     "kv=0-4@2 wrap"
     " | kv=0-4@6 kv-slots=3"
     " | "},
    {"change_write_back", "kv", "kv rows",
     "kv=0-4@2 decode-write-back=dirty mixed-write-back=dirty"
     " | kv=0-4@5 decode-write-back=all mixed-write-back=all wrap"},
    {"change_weights_for_kv", "weights kv", "rows",
     "kv=0-4@2 wrap"
     " | weights=1-20 slots=2 wrap"
     " | weights=5-8 slots=1 kv=0-4@5"},
    {"change_places", "kv", "kv rows",
     "kv=0-4@2 kv-places=4 decode-write-back=all mixed-write-back=all"
     " | kv=0-4@3 kv-places=2 wrap"},
    {"change_mini_batches", "weights kv", "rows",
     "mini-batches=2 weights=1-20 slots=2 kv=0-4@2 wrap"
     " | mini-batches=2 kv=0-4@4", {.batch = 4}},
    {"change_acts", "weights acts", "acts",
     "act-ratio=1/2 act=0-4 weights=1-20 slots=2"
     " | act-ratio=1/2 act=0-4"},
    {"expansions", "kv", "rows",
     "kv=0-4@2 kv-blocks=20 wrap"
     " | kv=0-4@2 kv-blocks=31 wrap"},
    {"expansions_to_the_device", "weights kv", "rows",
     "kv=0-4@2 kv-blocks=20"
     " | weights=1-4 slots=1"
     " | kv=0-4@12 kv-blocks=28 wrap"},
    {"expansions_fifo", "kv", "kv",
     "kv=0-4 kv-places=4 kv-fifo=1/1 kv-blocks=16 decode-write-back=all mixed-write-back=all"
     " | kv=0-4 kv-places=2 kv-fifo=1/1 kv-blocks=31 decode-write-back=all mixed-write-back=all"},
    {"expansions_ring", "weights kv", "kv rows",
     "weights=1-20 ring=120000 kv=0-4@2 kv-blocks=20 decode-write-back=dirty wrap"
     " | weights=1-20 ring=120000 kv=0-4@2 kv-blocks=31 decode-write-back=dirty wrap"},
    {"expansions_residuals", "kv residuals", "residuals rows",
     "mini-batches=2 residual-slots=3 kv=0-4@2 kv-blocks=15"
     " | mini-batches=2 residual-slots=3 kv=0-4@2 kv-blocks=21", {.batch = 4}},
    {"growth", "weights", "",
     "weights=1-20 slots=1 start=paper"
     " | weights=5-20 slots=2 wrap", {.context = 32, .growsFrom = 32}},
    {"growth_from_nothing_away", "weights", "",
     ""
     " | weights=1-20 ring=120000 wrap"
     " | weights=1-12 slots=1", {.context = 32, .growsFrom = 32}},
    {"growth_residuals", "weights residuals", "residuals",
     "residual-slots=3"
     " | residual-slots=3 weights=1-20 slots=1", {.context = 32, .growsFrom = 32}},
    {"growth_mini_batches", "weights", "",
     "mini-batches=2"
     " | mini-batches=2 weights=1-20 slots=1", {.batch = 6, .context = 32, .growsFrom = 64}},
};
// clang-format on

} // namespace

absl::Span<const Row> rows() { return kRows; }

} // namespace headrace::choices
