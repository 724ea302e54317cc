// SPDX-License-Identifier: Apache-2.0
//
// The kinds of buffers whose home may be elsewhere than on the device, and all in which they differ: one table, asked
// by the text of a residency, by items and slots, by layouts and by planners of movement. A kind that is none of these
// rows does not compile.
//
//   kind      away by   an iteration      on the device at home   slots turn       from one iteration to the next
//   weight    unit      reads it          among the homes         as starts say    may be there on entry
//   kv        layer     appends rows      below, by block         in a circle      may be there on entry
//   act       layer     appends rows      below                   in a line        is brought anew
//   residual  nothing   writes it whole   is a transient          in a line        is made anew
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

namespace headrace::algorithms {

// Residual: the residual stream of a mini-batch. It is not away between iterations: no extent names it.
enum class MovableKind : uint8_t { Weight = 0, Kv = 1, Act = 2, Residual = 3 };

// What an iteration does to the home of one.
enum class Written : uint8_t {
  Never,
  Appended, // rows: to the home on the host by the step itself, or by a copy behind it
  Whole,    // given up by one layer, brought by the next
};

// Which items of a kind may share a slot (AssignSlots.h).
enum class Turns : uint8_t { ByStart, Circle, Line };

struct MovableTraits {
  MovableKind kind;
  std::string_view name;     // of one, as the IR and addresses have it
  std::string_view plural;   // as messages have them
  std::string_view awayKey;  // of a residency's text: which are on the host; empty: no extent names it
  std::string_view slotsKey; // the same: how many slots
  bool inBlocks;             // an extent may begin at a block
  bool byPlacement;          // placements of a plan may differ by which are away
  bool onItsOwn;             // an item for each; else one for all of a layer
  bool carried;              // may be there on entry, copied by the iteration before
  Written written;
  Turns turns;
  int64_t slots; // where none are stated; 0: as many as the start asks for, or none may be moved
};

// Of tails of caches: one is used, and written back, while the next is brought.
inline constexpr int64_t kKvSlots = 2;
// Of activation blocks at home on the host: keys and values are rebuilt from one layer's while the next are brought.
inline constexpr int64_t kActSlots = 2;
// Of residual streams that leave the device, where they do: a layer works on one from its first step to its last, while
// the one before is written home and the next is brought.
inline constexpr int64_t kResidualSlots = 3;
// Of a stage's, which come from the host once and go there once: as many as there may be mini-batches, so that each has
// its own and stays there between layers.
inline constexpr int64_t kOwnResidualSlots = 64;

// By kind.
inline constexpr std::array kMovables = {
    MovableTraits{.kind = MovableKind::Weight,
                  .name = "weight",
                  .plural = "weights",
                  .awayKey = "weights",
                  .slotsKey = "slots",
                  .inBlocks = false,
                  .byPlacement = true,
                  .onItsOwn = false,
                  .carried = true,
                  .written = Written::Never,
                  .turns = Turns::ByStart,
                  .slots = 0},
    MovableTraits{.kind = MovableKind::Kv,
                  .name = "kv",
                  .plural = "tails of caches",
                  .awayKey = "kv",
                  .slotsKey = "kv-slots",
                  .inBlocks = true,
                  .byPlacement = true,
                  .onItsOwn = true,
                  .carried = true,
                  .written = Written::Appended,
                  .turns = Turns::Circle,
                  .slots = kKvSlots},
    MovableTraits{.kind = MovableKind::Act,
                  .name = "act",
                  .plural = "activation blocks",
                  .awayKey = "act",
                  .slotsKey = "act-slots",
                  .inBlocks = false,
                  .byPlacement = false,
                  .onItsOwn = true,
                  .carried = false,
                  .written = Written::Appended,
                  .turns = Turns::Line,
                  .slots = kActSlots},
    MovableTraits{.kind = MovableKind::Residual,
                  .name = "residual",
                  .plural = "residual streams",
                  .awayKey = "",
                  .slotsKey = "residual-slots",
                  .inBlocks = false,
                  .byPlacement = false,
                  .onItsOwn = true,
                  .carried = false,
                  .written = Written::Whole,
                  .turns = Turns::Line,
                  .slots = 0},
};
inline constexpr size_t kMovableKinds = kMovables.size();
// Whose slots lie behind whose. An iteration that brings no tails of caches lacks theirs: they are the last.
inline constexpr std::array<MovableKind, kMovableKinds> kSlotOrder = {MovableKind::Weight, MovableKind::Residual,
                                                                      MovableKind::Act, MovableKind::Kv};

constexpr const MovableTraits &traitsOf(MovableKind kind) { return kMovables[static_cast<size_t>(kind)]; }
static_assert([] { // the rows stand by kind, and each has a place in the order of slots
  std::array<bool, kMovableKinds> hasSlots{};
  for (const MovableKind kind : kSlotOrder)
    hasSlots[static_cast<size_t>(kind)] = true;
  for (size_t i = 0; i < kMovables.size(); ++i)
    if (static_cast<size_t>(kMovables[i].kind) != i || !hasSlots[i])
      return false;
  return true;
}());

struct Movable {
  MovableKind kind = MovableKind::Weight;
  int32_t index = 0; // of a weight its unit, else the layer; of a residual stream its mini-batch
  bool operator==(const Movable &other) const { return kind == other.kind && index == other.index; }
  bool operator<(const Movable &other) const { return std::tie(kind, index) < std::tie(other.kind, other.index); }
};

} // namespace headrace::algorithms
