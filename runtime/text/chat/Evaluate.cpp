// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Evaluate.h"

#include <algorithm>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;

Machine::Machine(const Ast &ast, Heap &heap, int64_t unixSeconds)
    : ast_(ast), heap_(heap), unixSeconds_(unixSeconds), context_(ast.names.size()) {
  for (size_t name = 0; name < ast.names.size(); ++name) {
    const std::string &text = ast.names[name].text();
    functions_.push_back(findFunction(text));
    if (text == "loop")
      loopName_ = static_cast<int>(name);
    if (text == "caller")
      callerName_ = static_cast<int>(name);
  }
}

Value Machine::lookUp(int name) const {
  for (const Frame *frame = frame_; frame; frame = frame->parent)
    for (const auto &[have, value] : frame->values)
      if (have == name)
        return value;
  const auto index = static_cast<size_t>(name);
  if (context_[index].given())
    return context_[index];
  if (const Builtin *function = functions_[index]) {
    auto object = std::make_shared<BuiltinObject>();
    object->builtin = function;
    adopt(heap_, *object, sizeof(BuiltinObject));
    return {Kind::Callable, std::move(object)};
  }
  return undefined(ast_.names[index], Kind::Absent);
}

Value Machine::evaluate(const Expression &expression) {
  const Deeper deeper(*this);
  heap_.step();
  const auto &operands = expression.operands;
  switch (expression.kind) {
  case Expression::Constant:
    return expression.value;
  case Expression::Name:
    return lookUp(expression.name);
  case Expression::List:
    return makeSequence(heap_, this->operands(expression));
  case Expression::Tuple:
    return makeSequence(heap_, this->operands(expression), Flavor::Tuple);
  case Expression::Dict:
    return dictOf(expression);
  case Expression::Attribute: {
    const Value of = evaluate(*operands[0]);
    line_ = expression.line;
    return attribute(of, expression.value);
  }
  case Expression::Element: {
    const Value of = evaluate(*operands[0]), key = evaluate(*operands[1]);
    line_ = expression.line;
    return element(of, key);
  }
  case Expression::Slice: {
    const Value of = evaluate(*operands[0]);
    Value bounds[3];
    for (size_t i = 0; i < 3; ++i)
      bounds[i] = operands[i + 1] ? evaluate(*operands[i + 1]) : Value::none();
    line_ = expression.line;
    return slice(heap_, of, bounds[0], bounds[1], bounds[2]);
  }
  case Expression::Call:
    return evaluateCall(expression);
  case Expression::Filter: {
    const Value self = operands[0] ? evaluate(*operands[0]) : blockText_;
    Arguments given = arguments(expression);
    line_ = expression.line;
    return runBuiltin(*expression.builtin, self, std::move(given), "filter");
  }
  case Expression::Test: {
    const Value self = evaluate(*operands[0]);
    Arguments given = arguments(expression);
    line_ = expression.line;
    return runBuiltin(*expression.builtin, self, std::move(given), "test");
  }
  case Expression::Negate:
  case Expression::Plus: {
    const Value value = evaluate(*operands[0]);
    line_ = expression.line;
    if (value.is(Kind::Undefined))
      fail(undefinedMessage(value));
    if (!value.isNumber())
      fail(cat("bad operand type for unary ", expression.kind == Expression::Negate ? "-" : "+", ": '", typeName(value),
               "'"));
    if (expression.kind == Expression::Plus)
      return value.isInteger() ? Value::integer(value.integer()) : value;
    return value.isInteger() ? arithmetic(heap_, "-", Value::integer(0), value) : Value::real(-value.real());
  }
  case Expression::Not:
    return Value::boolean(!truthy(evaluate(*operands[0])));
  case Expression::And:
  case Expression::Or: {
    Value left = evaluate(*operands[0]);
    return truthy(left) == (expression.kind == Expression::Or) ? left : evaluate(*operands[1]);
  }
  case Expression::Compare:
    return compared(expression);
  case Expression::Concatenate:
    return concatenated(expression);
  case Expression::Arithmetic: {
    const Value left = evaluate(*operands[0]), right = evaluate(*operands[1]);
    line_ = expression.line;
    return arithmetic(heap_, expression.operators[0], left, right);
  }
  case Expression::Condition:
    if (truthy(evaluate(*operands[1])))
      return evaluate(*operands[0]);
    if (operands[2])
      return evaluate(*operands[2]);
    return undefined(text(cat("the inline if-expression on line ", expression.line,
                              " evaluated to false and no else section was defined.")),
                     Kind::Undefined);
  case Expression::NamespaceAttribute: // a target only
    break;
  }
  return Value::none();
}

std::vector<Value> Machine::operands(const Expression &expression) {
  std::vector<Value> values;
  values.reserve(expression.operands.size());
  for (const Expression *operand : expression.operands)
    values.push_back(evaluate(*operand));
  return values;
}

Value Machine::dictOf(const Expression &expression) {
  Pairs pairs;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    Value key = evaluate(*expression.operands[i]), value = evaluate(*expression.operands[i + 1]);
    setKey(heap_, pairs, std::move(key), std::move(value));
  }
  return makeDict(heap_, std::move(pairs));
}

Value Machine::compared(const Expression &expression) {
  Value left = evaluate(*expression.operands[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1]);
    line_ = expression.line;
    if (!compares(heap_, expression.operators[i], left, right))
      return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Machine::concatenated(const Expression &expression) {
  std::string joined;
  for (const Expression *operand : expression.operands) {
    const Value value = evaluate(*operand);
    line_ = expression.line;
    const std::string printed = value.isString() ? std::string() : toText(heap_, value);
    const std::string &piece = value.isString() ? value.text() : printed;
    heap_.check(static_cast<int64_t>(joined.size() + piece.size()));
    heap_.read(piece.size());
    joined += piece;
  }
  return text(std::move(joined));
}

Arguments Machine::arguments(const Expression &expression) {
  Arguments made;
  const size_t given = expression.operands.size() - 1, positional = given - expression.keywords.size();
  made.values.reserve(positional);
  for (size_t i = 0; i < given; ++i) {
    Value value = evaluate(*expression.operands[i + 1]);
    if (i < positional)
      made.values.push_back(std::move(value));
    else
      made.keywords.emplace_back(expression.keywords[i - positional], std::move(value));
  }
  return made;
}

Value Machine::runBuiltin(const Builtin &builtin, const Value &self, Arguments arguments, std::string_view what) {
  heap_.step();
  if (self.isString())
    heap_.read(self.text().size());
  if (builtin.takesAny())
    return builtin.run(*this, self, arguments);
  const size_t most = builtin.most();
  if (arguments.values.size() > most)
    fail(cat("the ", what, " '", builtin.name, "' takes at most ", most, " arguments, not ", arguments.values.size()));
  arguments.values.resize(most);
  for (auto &[keyword, value] : arguments.keywords) {
    const size_t index = builtin.indexOf(keyword);
    if (index == most)
      fail(cat("the ", what, " '", builtin.name, "' has no argument '", printable(keyword, 60), "'"));
    if (arguments.values[index].given())
      fail(cat("the ", what, " '", builtin.name, "' has its argument '", keyword, "' twice"));
    arguments.values[index] = std::move(value);
  }
  for (size_t i = 0; i < builtin.least; ++i)
    if (!arguments.values[i].given())
      fail(cat("the ", what, " '", builtin.name, "' needs at least ", builtin.least, " arguments"));
  return builtin.run(*this, self, arguments);
}

Value Machine::evaluateCall(const Expression &expression) {
  const Expression &callee = *expression.operands[0];
  if (callee.kind == Expression::Attribute) {
    const Value self = evaluate(*callee.operands[0]);
    line_ = callee.line;
    if (const Builtin *found = findMethod(self, callee.value.text())) {
      Arguments given = arguments(expression);
      line_ = expression.line;
      return runBuiltin(*found, self, std::move(given), "method");
    }
    const Value called = attribute(self, callee.value);
    Arguments given = arguments(expression);
    line_ = expression.line;
    return call(called, std::move(given));
  }
  const Value called = evaluate(callee);
  Arguments given = arguments(expression);
  line_ = expression.line;
  return call(called, std::move(given));
}

Value Machine::call(const Value &callee, Arguments arguments) {
  if (callee.is(Kind::Undefined))
    fail(undefinedMessage(callee));
  if (!callee.is(Kind::Callable))
    fail(cat("'", typeName(callee), "' object is not callable"));
  if (const auto *macro = dynamic_cast<const MacroObject *>(callee.object().get()))
    return callMacro(*macro, std::move(arguments));
  const auto &builtin = callee.as<BuiltinObject>();
  return runBuiltin(*builtin.builtin, builtin.self, std::move(arguments), builtin.self.given() ? "method" : "function");
}

Value Machine::method(const Builtin &builtin, const Value &self) {
  auto object = std::make_shared<BuiltinObject>();
  adopt(heap_, *object, sizeof(BuiltinObject));
  holdWithin(heap_, *object, self);
  object->builtin = &builtin;
  object->self = self;
  return {Kind::Callable, std::move(object)};
}

Value Machine::attribute(const Value &of, const Value &name) {
  if (of.is(Kind::Loop))
    return loopAttribute(of, name.text());
  if (const auto *macro = dynamic_cast<const MacroObject *>(of.object().get()))
    if (Value found = macroAttribute(*macro, name.text()); found.given())
      return found;
  if (const Builtin *found = findMethod(of, name.text()))
    return method(*found, of);
  return attributeOf(heap_, of, name);
}

Value Machine::element(const Value &of, const Value &key) {
  if (Value found = elementOf(heap_, of, key); found.given())
    return found;
  return key.isString() ? attribute(of, key) : undefinedElement(heap_, of, key);
}

Value Machine::loopAttribute(const Value &value, const std::string &name) {
  const auto &loop = value.as<LoopObject>();
  const auto neighbour = [&](int64_t index, const char *which) {
    if (index < 0 || index >= loop.length)
      return undefined(text(cat("there is no ", which, " item")), Kind::Undefined);
    return loop.items.items()[static_cast<size_t>(index)];
  };
  if (name == "index")
    return Value::integer(loop.index + 1);
  if (name == "index0")
    return Value::integer(loop.index);
  if (name == "revindex")
    return Value::integer(loop.length - loop.index);
  if (name == "revindex0")
    return Value::integer(loop.length - loop.index - 1);
  if (name == "first")
    return Value::boolean(loop.index == 0);
  if (name == "last")
    return Value::boolean(loop.index + 1 == loop.length);
  if (name == "length")
    return Value::integer(loop.length);
  if (name == "depth")
    return Value::integer(1);
  if (name == "depth0")
    return Value::integer(0);
  if (name == "previtem")
    return neighbour(loop.index - 1, "previous");
  if (name == "nextitem")
    return neighbour(loop.index + 1, "next");
  if (const Builtin *found = findMethod(value, name))
    return method(*found, value);
  return undefined(text(name), Kind::Loop);
}

} // namespace headrace::text::jinja
