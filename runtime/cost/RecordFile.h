// SPDX-License-Identifier: Apache-2.0
//
// Performance records as TOML (record.toml), for people to read and for `profile` to resume.
//
//   format = "headrace performance record"
//   version = 1
//
//   [identity]
//   model = "opt-6.7b"                 # a name; model_hash decides
//   model_hash = "9f..."
//   device = "a10"
//   device_kind = "cuda"
//   activation = "f16"                 # element types of activations and KV cache
//   kv = "f16"
//   layers = 32
//   layer_bytes = 402767872
//
//   [model]                            # its shape, keys of Shape.h
//
//   [hardware]                         # the profile measured under, keys of Hardware.h
//
//   [grid]
//   batch = [1, 2, 4]                  # powers of two
//   sequence = [64, 128]
//   prefill_tokens = 4096              # pairs of more tokens are not on the grid; without the key all are
//   decode_tokens = 16384
//   layers_run = 32                    # layers that were there when it was measured
//   layers_equal = true
//
//   [[transfer]]                       # [median, p10, p90], ns
//   bytes = 16777216
//   repetitions = 21
//   h2d = [700000, 699000, 702000]     # d2h, h2d_with_compute, d2h_with_compute, both
//
//   [interference]                     # how compute and copies disturb each other; without it they do not
//   repetitions = 9
//   compute_alone = [900000, 899000, 902000]
//   compute_beside = [931000, 920000, 940000]
//   copy_start = [8000, 7000, 11000]
//
//   [spread]                           # how far the slowest iterations lie from the prediction; may be missing
//   repetitions = 300
//   resident = [900000, 905000, 960000]     # [predicted, median, p99], ns
//   waiting = [1380000, 1400000, 1490000]
//
//   [loading]                          # weights from a folder's files into memory; may be missing
//   bytes = 12884901888                # as they lie there
//   ns = 9000000000
//
//   [regression.rebuild_kv]            # tokens and ns; load_kv and load_act are written alike; without them none;
//                                      # recompute_kv is read as this one
//   tokens = [512, 1024, 1536, 2048, 2560] # lines are fitted to the first, the third, ...: R^2 at least 0.98
//   median = [61000, 113000, 164000, 215000, 266000]
//   p10 = [60500, 112000, 163000, 214000, 265000]
//   p90 = [62000, 115000, 166000, 217000, 268000]
//
//   [[cell]]                           # one a phase, batch and sequence
//   phase = "decode"
//   batch = 1
//   sequence = 64
//   repetitions = 11
//   qkv = [310000, 309000, 312000]     # one line for each op site, ns
//   layer_ns = [980000, 990000]        # only with layers_equal = false
//
//   [end]                              # a file without it was cut off
//   transfers = 1
//   cells = 1
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cost/Record.h"

namespace headrace::cost {

// The same record gives the same text; parseRecord() gives the record back.
std::string recordText(const Record &record);

// Text from a file is untrusted: refuses, by file, line and key, what is not TOML, unknown and missing keys, another
// format or version, times that are negative, NaN or no integers, whatever checkRecord() refuses, and a file that was
// cut off (kInvalidArgument). A partial record is accepted: missingCells() says what it lacks.
absl::StatusOr<Record> parseRecord(std::string_view text, const std::string &path);
absl::StatusOr<Record> readRecord(const std::string &path);

// Beside the target, then renamed: after a crash there is the last whole record, which can be resumed. Refuses what
// checkRecord() refuses.
absl::Status writeRecord(const Record &record, const std::string &path);

} // namespace headrace::cost
