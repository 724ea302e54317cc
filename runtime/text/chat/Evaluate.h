// SPDX-License-Identifier: Apache-2.0
//
// Runs a template. Scopes are as jinja2's: a loop, a macro, a block of text each have their own, if does not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/Ast.h"
#include "runtime/text/chat/Builtins.h"

namespace headrace::text::jinja {

class Machine {
public:
  Machine(const Ast &ast, Heap &heap, int64_t unixSeconds);

  // A variable that the template names; others need not be set.
  void set(int name, Value value) { context_[static_cast<size_t>(name)] = std::move(value); }
  std::string run(); // once

  int line() const { return line_; } // where it is, or failed
  Heap &heap() const { return heap_; }
  int64_t unixSeconds() const { return unixSeconds_; }

  Value text(std::string text) { return makeText(heap_, std::move(text)); }
  Value runBuiltin(const Builtin &builtin, const Value &self, Arguments arguments, std::string_view what);
  Value call(const Value &callee, Arguments arguments);
  Value element(const Value &of, const Value &key); // of[key], Undefined where there is none

private:
  enum class Flow : uint8_t { On, Break, Continue };

  // The variables of one scope. Macros see those of the scope they stand in as long as that lasts.
  struct Frame {
    Frame *parent;
    uint64_t id;
    std::vector<std::pair<int, Value>> values;
  };
  class Entered; // makes a frame the current one
  class Deeper;  // one level of recursion
  class Capture; // output goes to a text of its own

  struct MacroObject : Object {
    const Statement *statement = nullptr;
    Frame *frame = nullptr;
    uint64_t frameId = 0;
  };
  struct BuiltinObject : Object {
    const Builtin *builtin = nullptr;
    Value self;
  };

  // Statements.cpp
  Flow run(const Block &block);
  Flow run(const Statement &statement);
  Flow runIf(const Statement &statement);
  Flow runFor(const Statement &statement);
  Flow runCaptured(const Statement &statement);
  Flow runInScope(const Block &block);
  Value filtered(const Statement &loop, const Value &items);
  void runCallBlock(const Statement &statement);
  Flow runWith(const Statement &statement);
  Value macroValue(const Statement &statement);
  Value callMacro(const MacroObject &macro, Arguments arguments);
  Value macroAttribute(const MacroObject &macro, const std::string &name); // Absent where there is none
  void assign(const Expression &target, const Value &value);
  void assignName(int name, Value value);
  void write(std::string_view text);
  void print(const Value &value);

  // Evaluate.cpp
  Value evaluate(const Expression &expression);
  Value evaluateCall(const Expression &expression);
  Value compared(const Expression &expression);
  Value concatenated(const Expression &expression);
  Value dictOf(const Expression &expression);
  std::vector<Value> operands(const Expression &expression);
  Arguments arguments(const Expression &expression);
  Value lookUp(int name) const;
  Value method(const Builtin &builtin, const Value &self);
  Value attribute(const Value &of, const Value &name);
  Value loopAttribute(const Value &loop, const std::string &name);

  const Ast &ast_;
  Heap &heap_;
  const int64_t unixSeconds_;
  std::vector<Value> context_; // by name
  std::vector<const Builtin *> functions_;
  int loopName_ = -1, callerName_ = -1;
  Frame *frame_ = nullptr;
  std::vector<const Frame *> alive_;
  uint64_t frames_ = 0;
  int64_t depth_ = 0;
  int line_ = 1;
  std::string *out_ = nullptr;
  Value blockText_; // that a block's filter works on
};

class Machine::Deeper {
public:
  explicit Deeper(Machine &machine) : machine_(machine) { machine.heap_.checkDepth(++machine.depth_); }
  ~Deeper() { --machine_.depth_; }
  Deeper(const Deeper &) = delete;
  Deeper &operator=(const Deeper &) = delete;

private:
  Machine &machine_;
};

} // namespace headrace::text::jinja
