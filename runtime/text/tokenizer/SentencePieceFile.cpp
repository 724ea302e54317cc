// SPDX-License-Identifier: Apache-2.0
//
// A sentencepiece model is a protocol buffer (sentencepiece_model.proto): pieces with scores, how it was trained, how a
// text is normalised. Of type BPE it is a byte pair model: the pair whose piece has the highest score is merged first.
#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/OtherFiles.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using model::cat;

constexpr size_t kLongestPiece = 512;                        // bytes
constexpr uint64_t kLargestFile = uint64_t{128} << 20;       // bytes
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";    // U+2581
constexpr std::string_view kUnknownShown = " \xE2\x81\x87 "; // U+2047

// Fields of a message, one after another.
class Fields {
public:
  explicit Fields(std::string_view message) : left_(message) {}

  // The next one's number, 0 at the end or where the message is broken.
  uint64_t next() {
    if (left_.empty() || broken_)
      return 0;
    const uint64_t tag = readVarint();
    bytes_ = {};
    value_ = 0;
    switch (tag & 7) {
    case 0:
      value_ = readVarint();
      break;
    case 1:
      bytes_ = take(8);
      break;
    case 2:
      bytes_ = take(readVarint());
      break;
    case 5:
      bytes_ = take(4);
      break;
    default:
      broken_ = true;
    }
    broken_ = broken_ || tag >> 3 == 0;
    return broken_ ? 0 : tag >> 3;
  }
  uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }
  bool broken() const { return broken_; }

private:
  uint64_t readVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (byte.empty())
        return 0;
      value |= uint64_t{static_cast<unsigned char>(byte[0]) & 0x7Fu} << shift;
      if ((static_cast<unsigned char>(byte[0]) & 0x80) == 0)
        return value;
    }
    broken_ = true;
    return 0;
  }
  std::string_view take(uint64_t count) {
    if (count > left_.size()) {
      broken_ = true;
      return {};
    }
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_, bytes_;
  uint64_t value_ = 0;
  bool broken_ = false;
};

// For messages: what of it is UTF-8.
std::string shown(std::string_view bytes) { return model::escaped(bytes.substr(0, utf8Prefix(bytes)), 80); }

enum PieceType : uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct ScoredPiece {
  std::string_view text;
  float score = 0;
  uint64_t type = kNormal;
};

struct Model {
  std::vector<ScoredPiece> pieces;
  uint64_t modelType = 1; // unigram
  bool byteFallback = false, spaceAsSuffix = false;
  uint64_t bos = 1, eos = 2; // 2^64 - 1: none
  std::string_view normalization, normalizationMap, unknownShown = kUnknownShown;
  bool dummyPrefix = true, removesSpaces = true, escapesSpaces = true;
};

bool readPiece(std::string_view message, ScoredPiece &piece) {
  Fields fields(message);
  while (const uint64_t field = fields.next()) {
    if (field == 1)
      piece.text = fields.bytes();
    else if (field == 2 && fields.bytes().size() == 4)
      std::memcpy(&piece.score, fields.bytes().data(), 4);
    else if (field == 3)
      piece.type = fields.value();
  }
  return !fields.broken();
}

bool readTrainer(std::string_view message, Model &model) {
  Fields fields(message);
  while (const uint64_t field = fields.next()) {
    if (field == 3)
      model.modelType = fields.value();
    else if (field == 24)
      model.spaceAsSuffix = fields.value() != 0;
    else if (field == 35)
      model.byteFallback = fields.value() != 0;
    else if (field == 41)
      model.bos = fields.value();
    else if (field == 42)
      model.eos = fields.value();
    else if (field == 44)
      model.unknownShown = fields.bytes();
  }
  return !fields.broken();
}

bool readNormalizer(std::string_view message, Model &model) {
  Fields fields(message);
  while (const uint64_t field = fields.next()) {
    if (field == 1)
      model.normalization = fields.bytes();
    else if (field == 2)
      model.normalizationMap = fields.bytes();
    else if (field == 3)
      model.dummyPrefix = fields.value() != 0;
    else if (field == 4)
      model.removesSpaces = fields.value() != 0;
    else if (field == 5)
      model.escapesSpaces = fields.value() != 0;
  }
  return !fields.broken();
}

absl::StatusOr<Model> readModel(std::string_view bytes, const std::string &path) {
  Model model;
  Fields fields(bytes);
  bool whole = true;
  while (const uint64_t field = fields.next()) {
    if (field == 1)
      whole = whole && readPiece(fields.bytes(), model.pieces.emplace_back());
    else if (field == 2)
      whole = whole && readTrainer(fields.bytes(), model);
    else if (field == 3)
      whole = whole && readNormalizer(fields.bytes(), model);
    if (model.pieces.size() > static_cast<size_t>(kMostIds))
      return absl::InvalidArgumentError(cat(path, ": expected at most ", kMostIds, " pieces"));
  }
  if (fields.broken() || !whole || model.pieces.empty())
    return absl::InvalidArgumentError(cat(path, ": expected a sentencepiece model: it is cut off or something else"));
  const auto refused = [&](std::string_view what) {
    return absl::InvalidArgumentError(cat(path, ": ", what, " is not supported: a tokenizer.json made of it may be"));
  };
  if (model.modelType != 2)
    return refused(cat("trainer_spec.model_type = ", model.modelType, " (2: BPE)"));
  if (!model.normalizationMap.empty())
    return refused(cat("normalizer_spec.name = ", shown(model.normalization)));
  if (model.removesSpaces || !model.escapesSpaces || model.spaceAsSuffix)
    return refused(model.removesSpaces   ? "normalizer_spec.remove_extra_whitespaces = true"
                   : model.spaceAsSuffix ? "trainer_spec.treat_whitespace_as_suffix = true"
                                         : "normalizer_spec.escape_whitespaces = false");
  return model;
}

absl::Status addPieces(const Model &model, const std::string &path, BpeTokenizerParts &parts) {
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const ScoredPiece &piece = model.pieces[i];
    const auto refused = [&](std::string_view why) {
      return absl::InvalidArgumentError(cat(path, ": piece ", i, ", ", shown(piece.text), ": ", why));
    };
    const auto id = static_cast<int32_t>(i);
    if (piece.text.empty() || piece.text.size() > kLongestPiece || utf8Prefix(piece.text) != piece.text.size())
      return refused(cat("expected UTF-8 of 1 to ", kLongestPiece, " bytes"));
    if (piece.type < kNormal || piece.type > kByte || piece.type == kUnused)
      return refused(cat("type ", piece.type, " is not supported"));
    if (!parts.vocabulary.add(piece.text, id))
      return refused("another piece is the same");
    if (piece.type == kNormal || piece.type == kByte)
      continue;
    AddedToken token;
    token.id = id;
    token.content = std::string(piece.text);
    token.special = piece.type == kControl;
    token.normalized = piece.type == kUserDefined;
    parts.added.push_back(std::move(token));
    if (piece.type == kControl)
      parts.decoder.say(id, "");
    if (piece.type == kUnknown) {
      parts.decoder.say(id, model.unknownShown);
      parts.options.unknown = id;
    }
  }
  return absl::OkStatus();
}

// Every way to put a piece together of two.
void addMerges(const Model &model, BpeTokenizerParts &parts) {
  std::map<float, uint32_t, std::greater<>> ranks; // of scores
  for (const ScoredPiece &piece : model.pieces)
    ranks.emplace(piece.score, 0);
  uint32_t rank = 0;
  for (auto &[score, place] : ranks)
    place = rank++;
  const auto normal = [&](std::string_view text) {
    const std::optional<int32_t> id = parts.vocabulary.find(text);
    return id && model.pieces[static_cast<size_t>(*id)].type == kNormal ? id : std::nullopt;
  };
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const ScoredPiece &piece = model.pieces[i];
    if (piece.type != kNormal)
      continue;
    for (size_t cut = codePointAt(piece.text, 0).bytes; cut < piece.text.size();
         cut += codePointAt(piece.text, cut).bytes) {
      const std::optional<int32_t> left = normal(piece.text.substr(0, cut));
      const std::optional<int32_t> right = left ? normal(piece.text.substr(cut)) : std::nullopt;
      if (right)
        parts.merges.set(*left, *right, {ranks.find(piece.score)->second, static_cast<int32_t>(i)});
    }
  }
}

} // namespace

absl::StatusOr<BpeTokenizerParts> readSentencePiece(std::string_view bytes, const TokenizerConfig &config,
                                                    const std::string &path) {
  ASSIGN_OR_RETURN(model, readModel(bytes, path));
  for (const ScoredPiece &piece : model.pieces)
    if (!(piece.score == piece.score))
      return absl::InvalidArgumentError(cat(path, ": expected scores that are numbers"));
  BpeTokenizerParts parts;
  parts.decoder = Decoder::sentencePiece(model.dummyPrefix);
  RETURN_IF_ERROR(addPieces(model, path, parts));
  addMerges(model, parts);
  parts.options.byteFallback = model.byteFallback;
  parts.options.fuseUnknown = true;
  parts.normalizer = Normalizer::sentencePiece(model.dummyPrefix ? kSpaceSymbol : "", kSpaceSymbol);
  for (const auto &[id, adds, first] : {std::tuple(model.bos, config.addBos.value_or(true), true),
                                        std::tuple(model.eos, config.addEos.value_or(false), false)})
    if (adds && id < model.pieces.size()) {
      std::vector<int32_t> &ids = parts.postProcessor.ids;
      ids.insert(first ? ids.begin() : ids.end(), static_cast<int32_t>(id));
    }
  return parts;
}

absl::StatusOr<BpeTokenizerParts> readSentencePieceFile(const std::string &folder) {
  const std::string path = model::joinPath(folder, "tokenizer.model");
  ASSIGN_OR_RETURN(bytes, model::readTextFile(path, kLargestFile));
  RETURN_IF_ERROR(model::refuseLfsPointer(bytes, path));
  ASSIGN_OR_RETURN(config, TokenizerConfig::open(folder));
  return readSentencePiece(bytes, config, path);
}

} // namespace headrace::text
