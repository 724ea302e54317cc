// SPDX-License-Identifier: Apache-2.0
//
// A template as it was parsed: expressions and statements, owned by one list each and pointing at each other, so that
// nothing recursive destroys them.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "runtime/text/chat/Value.h"

namespace headrace::text::jinja {

struct Builtin;

struct Expression {
  enum Kind {
    Constant, // value
    Name,     // name
    List,     // operands
    Tuple,
    Dict,      // operands: key, value, key, value, ...
    Attribute, // operands[0], value: the attribute's name
    Element,   // operands[0], operands[1]
    Slice,     // operands[0], then start, stop, step, each null where it is missing
    Call,      // operands[0], then arguments; keywords are those of the last ones
    Filter,    // builtin; operands[0] (null: the text of a block), then arguments
    Test,      // builtin; operands[0], then arguments
    Negate,
    Plus,
    Not,
    And,
    Or,
    Compare, // operands, with operators between them
    Concatenate,
    Arithmetic,         // operators[0] between two operands
    Condition,          // operands: what, if, else (null: undefined)
    NamespaceAttribute, // a target: name and value, the attribute's name
  };
  Kind kind;
  int line = 0;
  int depth = 1; // of the tree below
  int name = -1;
  Value value;
  std::vector<const Expression *> operands;
  std::vector<std::string> operators;
  std::vector<std::string> keywords;
  const Builtin *builtin = nullptr;
};

struct Statement;
using Block = std::vector<const Statement *>;

struct Statement {
  enum Kind {
    Text,       // value
    Print,      // expressions
    If,         // expressions: conditions; blocks: one each, and perhaps one more
    For,        // target, expressions[0]: over what, expressions[1] (or null): the filter; blocks[0], blocks[1]: else
    Set,        // target, expressions[0]
    SetBlock,   // target, blocks[0], expressions[0] (or null): a filter of the text
    FilterText, // blocks[0], expressions[0]: the filter
    Macro,      // name, value: its name, parameters, expressions: defaults of the last ones; blocks[0]
    CallBlock,  // a macro without a name as caller of expressions[0]; its defaults are the other expressions
    With,       // parameters, expressions: their values; blocks[0]
    Scope,      // blocks[0] in a scope of its own
    Break,
    Continue,
  };
  Kind kind;
  int line = 0;
  int name = -1;
  Value value;
  const Expression *target = nullptr;
  std::vector<const Expression *> expressions;
  std::vector<int> parameters;
  std::vector<Value> parameterNames;
  bool usesCaller = false; // the macro's body reads `caller`
  std::vector<Block> blocks;
};

struct Ast {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::vector<Value> names; // by number, strings
  Block body;
};

// Throws SyntaxError.
Ast parse(std::string_view source);

} // namespace headrace::text::jinja
