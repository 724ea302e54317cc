// SPDX-License-Identifier: Apache-2.0
//
// Methods of strings.
#include <algorithm>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Builtins.h"
#include "runtime/text/chat/Characters.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/PyText.h"
#include "runtime/text/chat/TextParts.h"

namespace headrace::text::jinja {
namespace {

using model::cat;
constexpr size_t kNone = std::string_view::npos;

enum class Side { Left, Right, Both };

template <Side side> Value stripMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  const bool spaces = !arguments[0].given() || arguments[0].isNone();
  return machine.text(std::string(stripped(machine.heap(), self.text(), spaces ? nullptr : &textOf(arguments[0]),
                                           side != Side::Right, side != Side::Left)));
}

template <std::string (*change)(std::string_view)>
Value changed(Machine &machine, const Value &self, const Arguments &) {
  machine.heap().examine(self.text().size());
  return machine.text(change(self.text()));
}

std::vector<Value> splitAtSpaces(Machine &machine, std::string_view text, int64_t most) {
  std::vector<Value> parts;
  for (text = stripLeft(text); !text.empty(); text = stripLeft(text)) {
    size_t end = 0;
    if (most >= 0 && static_cast<int64_t>(parts.size()) >= most)
      end = text.size();
    else
      for (size_t at = 0; at < text.size() && !isSpace(nextCodePoint(text, at));)
        end = at;
    parts.push_back(machine.text(std::string(text.substr(0, end))));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<Value> splitAtSpacesFromRight(Machine &machine, std::string_view text, int64_t most) {
  std::vector<Value> parts;
  for (text = stripRight(text); !text.empty(); text = stripRight(text)) {
    size_t begin = text.size();
    if (static_cast<int64_t>(parts.size()) >= most)
      begin = 0;
    else
      for (size_t at = text.size(); at > 0 && !isSpace(previousCodePoint(text, at));)
        begin = at;
    parts.push_back(machine.text(std::string(text.substr(begin))));
    text = text.substr(0, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

const std::string &separatorOf(const Value &argument) {
  const std::string &separator = textOf(argument);
  if (separator.empty())
    fail("empty separator");
  return separator;
}

Value splitMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  const std::string_view text = self.text();
  const int64_t most = integerOr(arguments[1], -1);
  if (!arguments[0].given() || arguments[0].isNone())
    return makeSequence(machine.heap(), splitAtSpaces(machine, text, most));
  const std::string &separator = separatorOf(arguments[0]);
  std::vector<Value> parts;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t end = findText(text, separator, begin);
    if (end == kNone)
      break;
    machine.heap().step();
    parts.push_back(machine.text(std::string(text.substr(begin, end - begin))));
    begin = end + separator.size();
  }
  parts.push_back(machine.text(std::string(text.substr(begin))));
  return makeSequence(machine.heap(), std::move(parts));
}

// The last `what` in a text; a search from the right is not linear, and is charged for.
size_t findLast(Machine &machine, std::string_view text, std::string_view what) {
  machine.heap().read(text.size() * (1 + what.size() / 8));
  return text.rfind(what);
}

Value rsplitMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  std::string_view text = self.text();
  const int64_t most = integerOr(arguments[1], -1);
  if (most < 0)
    return splitMethod(machine, self, arguments);
  if (!arguments[0].given() || arguments[0].isNone())
    return makeSequence(machine.heap(), splitAtSpacesFromRight(machine, text, most));
  const std::string &separator = separatorOf(arguments[0]);
  std::vector<Value> parts;
  while (static_cast<int64_t>(parts.size()) < most) {
    const size_t begin = findLast(machine, text, separator);
    if (begin == kNone)
      break;
    parts.push_back(machine.text(std::string(text.substr(begin + separator.size()))));
    text = text.substr(0, begin);
  }
  parts.push_back(machine.text(std::string(text)));
  std::reverse(parts.begin(), parts.end());
  return makeSequence(machine.heap(), std::move(parts));
}

Value splitlinesMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  std::vector<Value> lines;
  for (const std::string_view line : splitLines(self.text(), truthy(arguments[0])))
    lines.push_back(machine.text(std::string(line)));
  return makeSequence(machine.heap(), std::move(lines));
}

template <bool atEnd> bool hasAffix(const std::string &text, const Value &affix) {
  const std::string &piece = textOf(affix);
  return text.size() >= piece.size() && text.compare(atEnd ? text.size() - piece.size() : 0, piece.size(), piece) == 0;
}

template <bool atEnd> Value affixMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  machine.heap().step();
  if (!arguments[0].is(Flavor::Tuple))
    return Value::boolean(hasAffix<atEnd>(self.text(), arguments[0]));
  const auto &affixes = arguments[0].items();
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(),
                                    [&](const Value &affix) { return hasAffix<atEnd>(self.text(), affix); }));
}

template <bool atEnd> Value removeAffix(Machine &machine, const Value &self, const Arguments &arguments) {
  if (!hasAffix<atEnd>(self.text(), arguments[0]))
    return self;
  const size_t rest = self.text().size() - textOf(arguments[0]).size();
  return machine.text(self.text().substr(atEnd ? 0 : self.text().size() - rest, rest));
}

Value replaceMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  return machine.text(
      replaced(machine.heap(), self.text(), textOf(arguments[0]), textOf(arguments[1]), integerOr(arguments[2], -1)));
}

Value joinMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  const Value items = iterated(machine.heap(), arguments[0]);
  std::string joined;
  for (size_t i = 0; i < items.items().size(); ++i) {
    const Value &item = items.items()[i];
    if (!item.isString())
      fail(cat("sequence item ", i, ": expected str instance, ", typeName(item), " found"));
    append(machine.heap(), joined, i > 0 ? self.text() : "");
    append(machine.heap(), joined, item.text());
  }
  return machine.text(std::move(joined));
}

Value codePointIndex(const std::string &text, size_t offset) {
  return Value::integer(offset == kNone ? -1 : countCodePoints(std::string_view(text).substr(0, offset)));
}

Value findMethodOfText(Machine &, const Value &self, const Arguments &arguments) {
  return codePointIndex(self.text(), findText(self.text(), textOf(arguments[0])));
}
Value rfindMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  return codePointIndex(self.text(), findLast(machine, self.text(), textOf(arguments[0])));
}
Value indexMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  Value found = findMethodOfText(machine, self, arguments);
  if (found.integer() < 0)
    fail("substring not found");
  return found;
}

Value countMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  const std::string &what = textOf(arguments[0]);
  if (what.empty())
    return Value::integer(self.codePoints() + 1);
  machine.heap().examine(self.text().size());
  int64_t count = 0;
  for (size_t at = findText(self.text(), what); at != kNone; at = findText(self.text(), what, at + what.size()))
    ++count;
  return Value::integer(count);
}

template <bool fromRight> Value partitionMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  const std::string &text = self.text(), &separator = separatorOf(arguments[0]);
  const size_t at = fromRight ? findLast(machine, text, separator) : findText(text, separator);
  std::vector<Value> parts;
  if (at == kNone)
    parts = fromRight ? std::vector<Value>{machine.text(""), machine.text(""), self}
                      : std::vector<Value>{self, machine.text(""), machine.text("")};
  else
    parts = {machine.text(text.substr(0, at)), arguments[0], machine.text(text.substr(at + separator.size()))};
  return makeSequence(machine.heap(), std::move(parts), Flavor::Tuple);
}

template <bool (*is)(char32_t)> Value everyCharacter(Machine &machine, const Value &self, const Arguments &) {
  machine.heap().examine(self.text().size());
  const std::string &text = self.text();
  for (size_t at = 0; at < text.size();)
    if (!is(nextCodePoint(text, at)))
      return Value::boolean(false);
  return Value::boolean(!text.empty());
}
bool isAlphanumeric(char32_t c) { return isLetter(c) || isDigitCharacter(c); }

template <bool (*is)(std::string_view)> Value asWhole(Machine &machine, const Value &self, const Arguments &) {
  machine.heap().examine(self.text().size());
  return Value::boolean(is(self.text()));
}

template <Side side> Value justifyMethod(Machine &machine, const Value &self, const Arguments &arguments) {
  const std::string fill = arguments[1].given() ? textOf(arguments[1]) : " ";
  if (countCodePoints(fill) != 1)
    fail("The fill character must be exactly one character long");
  const int64_t width = integerOr(arguments[0], 0), missing = std::max<int64_t>(width - self.codePoints(), 0);
  machine.heap().check(missing > (int64_t{1} << 40) ? missing : missing * static_cast<int64_t>(fill.size()));
  const int64_t left = side == Side::Right ? 0 : side == Side::Left ? missing : missing / 2 + (missing & width & 1);
  std::string text;
  for (int64_t i = 0; i < left; ++i)
    text += fill;
  text += self.text();
  for (int64_t i = left; i < missing; ++i)
    text += fill;
  return machine.text(std::move(text));
}

constexpr Builtin kMethods[] = {
    {"capitalize", "", 0, changed<capitalize>},
    {"center", "width fillchar", 1, justifyMethod<Side::Both>},
    {"count", "sub", 1, countMethod},
    {"endswith", "suffix", 1, affixMethod<true>},
    {"find", "sub", 1, findMethodOfText},
    {"index", "sub", 1, indexMethod},
    {"isalnum", "", 0, everyCharacter<isAlphanumeric>},
    {"isalpha", "", 0, everyCharacter<isLetter>},
    {"isdecimal", "", 0, everyCharacter<isDecimal>},
    {"isdigit", "", 0, everyCharacter<isDigitCharacter>},
    {"islower", "", 0, asWhole<isLower>},
    {"isspace", "", 0, everyCharacter<isSpace>},
    {"isupper", "", 0, asWhole<isUpper>},
    {"join", "iterable", 1, joinMethod},
    {"ljust", "width fillchar", 1, justifyMethod<Side::Right>},
    {"lower", "", 0, changed<lower>},
    {"lstrip", "chars", 0, stripMethod<Side::Left>},
    {"partition", "sep", 1, partitionMethod<false>},
    {"removeprefix", "prefix", 1, removeAffix<false>},
    {"removesuffix", "suffix", 1, removeAffix<true>},
    {"replace", "old new count", 2, replaceMethod},
    {"rfind", "sub", 1, rfindMethod},
    {"rjust", "width fillchar", 1, justifyMethod<Side::Left>},
    {"rpartition", "sep", 1, partitionMethod<true>},
    {"rsplit", "sep maxsplit", 0, rsplitMethod},
    {"rstrip", "chars", 0, stripMethod<Side::Right>},
    {"split", "sep maxsplit", 0, splitMethod},
    {"splitlines", "keepends", 0, splitlinesMethod},
    {"startswith", "prefix", 1, affixMethod<false>},
    {"strip", "chars", 0, stripMethod<Side::Both>},
    {"title", "", 0, changed<title>},
    {"upper", "", 0, changed<upper>},
};

} // namespace

absl::Span<const Builtin> textMethods() { return kMethods; }

} // namespace headrace::text::jinja
