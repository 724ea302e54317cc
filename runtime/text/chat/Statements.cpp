// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {

using model::cat;

class Machine::Entered {
public:
  Entered(Machine &machine, Frame *parent)
      : machine_(machine), before_(machine.frame_), frame_{parent, ++machine.frames_, {}} {
    machine.alive_.push_back(&frame_);
    machine.frame_ = &frame_;
  }
  ~Entered() {
    machine_.frame_ = before_;
    machine_.alive_.pop_back();
  }
  Entered(const Entered &) = delete;
  Entered &operator=(const Entered &) = delete;

  void clear() { // as if it were left and entered again
    frame_.values.clear();
    frame_.id = ++machine_.frames_;
  }

private:
  Machine &machine_;
  Frame *before_;
  Frame frame_;
};

class Machine::Capture {
public:
  explicit Capture(Machine &machine) : machine_(machine), before_(machine.out_) { machine.out_ = &text_; }
  ~Capture() { restore(); }
  Capture(const Capture &) = delete;
  Capture &operator=(const Capture &) = delete;

  std::string take() {
    restore();
    return std::move(text_);
  }

private:
  void restore() {
    if (machine_.out_ != &text_)
      return;
    machine_.out_ = before_;
    machine_.heap_.release(static_cast<int64_t>(text_.size()));
  }

  Machine &machine_;
  std::string *before_, text_;
};

std::string Machine::run() {
  Capture output(*this);
  const Entered scope(*this, nullptr);
  run(ast_.body);
  return output.take();
}

void Machine::write(std::string_view text) {
  heap_.read(text.size());
  heap_.hold(static_cast<int64_t>(text.size()));
  out_->append(text);
}

void Machine::print(const Value &value) {
  if (value.isString())
    write(value.text());
  else
    write(toText(heap_, value));
}

Machine::Flow Machine::run(const Block &block) {
  for (const Statement *statement : block)
    if (const Flow flow = run(*statement); flow != Flow::On)
      return flow;
  return Flow::On;
}

Machine::Flow Machine::run(const Statement &statement) {
  const Deeper deeper(*this);
  heap_.step();
  line_ = statement.line;
  switch (statement.kind) {
  case Statement::Text:
    write(statement.value.text());
    break;
  case Statement::Print:
    print(evaluate(*statement.expressions[0]));
    break;
  case Statement::If:
    return runIf(statement);
  case Statement::For:
    return runFor(statement);
  case Statement::Set:
    assign(*statement.target, evaluate(*statement.expressions[0]));
    break;
  case Statement::SetBlock:
  case Statement::FilterText:
    return runCaptured(statement);
  case Statement::Macro:
    assignName(statement.name, macroValue(statement));
    break;
  case Statement::CallBlock:
    runCallBlock(statement);
    break;
  case Statement::With:
    return runWith(statement);
  case Statement::Scope:
    return runInScope(statement.blocks[0]);
  case Statement::Break:
    return Flow::Break;
  case Statement::Continue:
    return Flow::Continue;
  }
  return Flow::On;
}

Machine::Flow Machine::runInScope(const Block &block) {
  const Entered scope(*this, frame_);
  return run(block);
}

Machine::Flow Machine::runIf(const Statement &statement) {
  for (size_t i = 0; i < statement.expressions.size(); ++i)
    if (truthy(evaluate(*statement.expressions[i])))
      return run(statement.blocks[i]);
  return statement.blocks.size() > statement.expressions.size() ? run(statement.blocks.back()) : Flow::On;
}

// The items for which the loop's condition holds.
Value Machine::filtered(const Statement &loop, const Value &items) {
  if (!loop.expressions[1])
    return items;
  std::vector<Value> kept;
  Entered scope(*this, frame_);
  for (const Value &item : items.items()) {
    scope.clear();
    assign(*loop.target, item);
    if (truthy(evaluate(*loop.expressions[1])))
      kept.push_back(item);
  }
  return makeSequence(heap_, std::move(kept));
}

Machine::Flow Machine::runFor(const Statement &statement) {
  const Value over = evaluate(*statement.expressions[0]);
  line_ = statement.line;
  const Value items = filtered(statement, iterated(heap_, over));
  const auto length = static_cast<int64_t>(items.items().size());
  if (length == 0)
    return statement.blocks[1].empty() ? Flow::On : runInScope(statement.blocks[1]);

  Value loopValue;
  std::shared_ptr<LoopObject> loop;
  if (loopName_ >= 0) { // the template names it somewhere
    loop = std::make_shared<LoopObject>();
    adopt(heap_, *loop, sizeof(LoopObject));
    holdWithin(heap_, *loop, items);
    loop->items = items;
    loop->length = length;
    loopValue = Value(Kind::Loop, loop);
  }
  Entered scope(*this, frame_);
  for (int64_t i = 0; i < length; ++i) {
    heap_.step();
    scope.clear();
    if (loop) {
      loop->index = i;
      assignName(loopName_, loopValue);
    }
    line_ = statement.line;
    assign(*statement.target, items.items()[static_cast<size_t>(i)]);
    if (run(statement.blocks[0]) == Flow::Break)
      break;
  }
  return Flow::On;
}

Machine::Flow Machine::runCaptured(const Statement &statement) {
  Value text;
  {
    Capture capture(*this);
    if (const Flow flow = runInScope(statement.blocks[0]); flow != Flow::On)
      return flow; // what was written so far is lost, as in jinja2
    text = this->text(capture.take());
  }
  if (const Expression *filter = statement.expressions[0]) {
    blockText_ = std::move(text);
    text = evaluate(*filter);
  }
  if (statement.kind == Statement::FilterText)
    print(text);
  else
    assign(*statement.target, text);
  return Flow::On;
}

Machine::Flow Machine::runWith(const Statement &statement) {
  std::vector<Value> values;
  for (const Expression *expression : statement.expressions)
    values.push_back(evaluate(*expression));
  const Entered scope(*this, frame_);
  for (size_t i = 0; i < values.size(); ++i)
    assignName(statement.parameters[i], std::move(values[i]));
  return run(statement.blocks[0]);
}

void Machine::assignName(int name, Value value) {
  for (auto &[have, old] : frame_->values)
    if (have == name) {
      old = std::move(value);
      return;
    }
  frame_->values.emplace_back(name, std::move(value));
}

void Machine::assign(const Expression &target, const Value &value) {
  heap_.step();
  if (target.kind == Expression::Name)
    return assignName(target.name, value);
  if (target.kind == Expression::NamespaceAttribute) {
    const Value to = lookUp(target.name);
    if (!to.is(Kind::Namespace))
      fail("cannot assign attribute on non-namespace object");
    if (value.object() && value.object()->holdsNamespace)
      fail("a namespace within a namespace is not supported");
    auto &attributes = to.as<NamespaceObject>().attributes;
    const std::string &name = target.value.text();
    const auto found =
        std::find_if(attributes.begin(), attributes.end(), [&](const auto &a) { return a.first == name; });
    if (found != attributes.end())
      found->second = value;
    else
      attributes.emplace_back(name, value);
    return;
  }
  const Value items = iterated(heap_, value);
  const size_t given = items.items().size(), wanted = target.operands.size();
  if (given > wanted)
    fail(cat("too many values to unpack (expected ", wanted, ")"));
  if (given < wanted)
    fail(cat("not enough values to unpack (expected ", wanted, ", got ", given, ")"));
  for (size_t i = 0; i < wanted; ++i)
    assign(*target.operands[i], items.items()[i]);
}

Value Machine::macroValue(const Statement &statement) {
  auto object = std::make_shared<MacroObject>();
  adopt(heap_, *object, sizeof(MacroObject));
  object->statement = &statement;
  object->frame = frame_;
  object->frameId = frame_->id;
  return {Kind::Callable, std::move(object)};
}

void Machine::runCallBlock(const Statement &statement) {
  const Expression &expression = *statement.target;
  const Value callee = evaluate(*expression.operands[0]);
  Arguments given = arguments(expression);
  given.keywords.emplace_back("caller", macroValue(statement));
  line_ = statement.line;
  print(call(callee, std::move(given)));
}

Value Machine::callMacro(const MacroObject &macro, Arguments arguments) {
  const Statement &statement = *macro.statement;
  // As Python shows its name: that of a call's block is None.
  const std::string name = statement.kind == Statement::Macro ? cat("'", statement.value.text(), "'") : "None";
  const auto lives = [&](const Frame *frame) { return frame == macro.frame && frame->id == macro.frameId; };
  if (std::find_if(alive_.begin(), alive_.end(), lives) == alive_.end())
    fail(cat("the macro ", name, " is called outside the block that it stands in"));
  const size_t count = statement.parameters.size();
  if (arguments.values.size() > count)
    fail(cat("macro ", name, " takes not more than ", count, " argument(s)"));
  arguments.values.resize(count);
  Value caller;
  for (auto &[keyword, value] : arguments.keywords) {
    size_t index = 0;
    while (index < count && statement.parameterNames[index].text() != keyword)
      ++index;
    if (index == count && keyword == "caller" && statement.usesCaller)
      caller = std::move(value);
    else if (index == count && keyword == "caller")
      fail(cat("macro ", name,
               " was invoked with two values for the special caller argument. This is most likely a bug."));
    else if (index == count || arguments.values[index].given())
      fail(cat("macro ", name, " takes no keyword argument ", reprOfText(printable(keyword, 60))));
    else
      arguments.values[index] = std::move(value);
  }

  const Deeper deeper(*this);
  Capture capture(*this);
  const Entered scope(*this, macro.frame);
  if (statement.usesCaller) // a parameter of that name stands over it
    assignName(callerName_, caller.given() ? std::move(caller) : undefined(text("No caller defined"), Kind::Undefined));
  const size_t firstDefault = count - (statement.expressions.size());
  for (size_t i = 0; i < count; ++i) {
    Value value = std::move(arguments.values[i]);
    if (!value.given())
      value =
          i >= firstDefault
              ? evaluate(*statement.expressions[i - firstDefault])
              : undefined(text(cat("parameter ", reprOfText(statement.parameterNames[i].text()), " was not provided")),
                          Kind::Undefined);
    assignName(statement.parameters[i], std::move(value));
  }
  run(statement.blocks[0]);
  return text(capture.take());
}

Value Machine::macroAttribute(const MacroObject &macro, const std::string &name) {
  const Statement &statement = *macro.statement;
  if (name == "name")
    return statement.kind == Statement::Macro ? statement.value : Value::none();
  if (name == "arguments")
    return makeSequence(heap_, statement.parameterNames, Flavor::Tuple);
  if (name == "caller")
    return Value::boolean(statement.usesCaller);
  if (name == "catch_kwargs" || name == "catch_varargs") // a template with kwargs or varargs was refused
    return Value::boolean(false);
  return {};
}

} // namespace headrace::text::jinja
